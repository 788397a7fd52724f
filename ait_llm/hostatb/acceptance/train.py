"""Operators of training other than attention."""

from __future__ import annotations

from collections.abc import Sequence

from ait_llm.hostatb.acceptance.base import (
    Acceptance,
    Descs,
    Params,
    accept,
    counted_as,
    require_input,
    require_output,
    require_param,
)
from ait_llm.hostatb.acceptance.matrix import require_rank, require_shape
from ait_llm.opcheck.golden.base import Refusal

_MOST_SEQUENCES, _LONGEST = 32, 4096
_MOST = (1 << 63) - 1


def _require_lengths(name: str, lengths: Sequence[int], longest: int | None = None) -> None:
    fits = 0 < len(lengths) <= _MOST_SEQUENCES and min(lengths) > 0
    fits = fits and (longest is None or max(lengths) <= longest)
    limit = "> 0" if longest is None else f"1 to {longest}"
    require_param(fits, name, list(lengths), f"{limit}, {_MOST_SEQUENCES} at most")


def _squares(lengths: Sequence[int]) -> int:
    return sum(length * length for length in lengths)


def _fast(params: Params) -> None:
    _require_lengths("qSeqLen", params["qSeqLen"], _LONGEST)
    heads = params["headNum"]
    require_param(heads > 0, "headNum", heads, "> 0")
    fits = _squares(params["qSeqLen"]) * heads <= _MOST
    require_param(fits, "headNum", heads, f"headNum * sum(qSeqLen ** 2) <= {_MOST}")


def _fast_inputs(params: Params, inputs: Descs, status: Refusal = Refusal.SIZE) -> None:
    total = _squares(params["qSeqLen"]) * params["headNum"]
    for index, desc in enumerate(inputs):
        require_rank(index, desc, 1)
    for index, desc in enumerate(inputs):
        require_input(desc.shape == (total,), index, desc, f"[{total}]", status)


def _fast_grad_inputs(params: Params, inputs: Descs) -> None:
    _fast_inputs(params, inputs, Refusal.DIM)


_ONE_ROW = counted_as(Refusal.DIM, Refusal.SIZE)
for _name, _look in (
    ("FastSoftMaxOperation", _fast_inputs),
    ("FastSoftMaxGradOperation", _fast_grad_inputs),
):
    accept(Acceptance(_name, lambda _, name=_name: name, _fast, _look, _ONE_ROW))  # type: ignore[misc]  # mypy reads no default of a lambda


def _mask(params: Params) -> None:
    heads, lengths = params["headNum"], params["seqLen"]
    require_param(heads > 0, "headNum", heads, "> 0")
    _require_lengths("seqLen", lengths)
    fits = heads * _squares(lengths) <= _MOST
    require_param(fits, "headNum", heads, f"headNum * sum(seqLen ** 2) <= {_MOST}")


def _mask_inputs(params: Params, inputs: Descs) -> None:
    mask, lengths = inputs[0], params["seqLen"]
    require_rank(0, mask, 4, status=Refusal.DIM)
    longest = mask.shape[2]
    require_shape(0, mask, len(lengths), 1, longest, longest)
    require_param(max(lengths) <= longest, "seqLen", list(lengths), f"<= {longest}")


accept(
    Acceptance(
        "GenAttentionMaskOperation",
        lambda _: "GenAttentionMaskOperation",
        _mask,
        _mask_inputs,
        counted_as(Refusal.DIM),
    )
)


def _hidden(params: Params) -> None:
    longest = params["maxSeqLen"]
    require_param(0 < longest <= _LONGEST, "maxSeqLen", longest, f"1 to {_LONGEST}")
    _require_lengths("qSeqLen", params["qSeqLen"], longest)


def _pad_inputs(params: Params, inputs: Descs) -> None:
    x, total = inputs[0], sum(params["qSeqLen"])
    require_rank(0, x, 2, status=Refusal.DIM)
    require_input(x.shape[0] == total, 0, x, f"[{total}, n]", Refusal.SIZE)


def _unpad_inputs(params: Params, inputs: Descs) -> None:
    x, batch, longest = inputs[0], len(params["qSeqLen"]), params["maxSeqLen"]
    require_rank(0, x, 3, status=Refusal.DIM)
    fits = x.shape[:2] == (batch, longest)
    require_input(fits, 0, x, f"[{batch}, {longest}, n]", Refusal.SIZE)


accept(
    Acceptance(
        "PadWithHiddenStateOperation",
        lambda _: "PadWithHiddenStateOperation",
        _hidden,
        _pad_inputs,
        _ONE_ROW,
    )
)
accept(
    Acceptance(
        "UnpadWithHiddenStateOperation",
        lambda _: "UnpadWithHiddenStateOperation",
        _hidden,
        _unpad_inputs,
        _ONE_ROW,
    )
)


def _backward_inputs(params: Params, inputs: Descs) -> None:
    x, weight = inputs[1], inputs[3]
    rank = len(x.shape)
    require_input(len(weight.shape) <= rank, 3, weight, f"ndim <= {rank}")


def _backward_outputs(params: Params, inputs: Descs, outputs: Descs, inferred: Descs) -> None:
    for index, source in ((0, 1), (1, 3)):
        require_output(index, outputs[index], inputs[source], Refusal.DIM)


accept(
    Acceptance(
        "RmsNormBackwardOperation",
        lambda _: "RmsNormBackwardOperation",
        inputs=_backward_inputs,
        outputs=_backward_outputs,
    )
)


def _rope_grad(params: Params) -> None:
    _require_lengths("qSeqLen", params["c_qSeqLen"])


def _rope_grad_inputs(params: Params, inputs: Descs) -> None:
    query, key, cosine, sine = inputs
    for index, desc in enumerate(inputs):
        require_rank(index, desc, 2, status=Refusal.DIM)
    require_input(key.shape == query.shape, 1, key, str(list(query.shape)), Refusal.SIZE)
    require_input(sine.shape == cosine.shape, 3, sine, str(list(cosine.shape)), Refusal.SIZE)
    require_input(query.shape[1] % 128 == 0, 0, query, "[n, 128 * h]")
    require_input(cosine.shape[1] == 128, 2, cosine, "[n, 128]")
    lengths, longest = list(params["c_qSeqLen"]), cosine.shape[0]
    require_param(max(lengths) <= longest, "qSeqLen", lengths, f"<= {longest}")


accept(
    Acceptance("RopeGradOperation", lambda _: "RopeGradOperation", _rope_grad, _rope_grad_inputs)
)
