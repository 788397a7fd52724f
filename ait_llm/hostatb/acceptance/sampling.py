"""Draws from probabilities, SwigluQuant and StridedBatchMatmul."""

from __future__ import annotations

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
from ait_llm.hostatb.acceptance.matrix import require_rank, require_ranks
from ait_llm.hostatb.params.sampling import TopkToppSamplingParam
from ait_llm.opcheck.golden.base import Refusal

# -- Multinomial --------------------------------------------------------------------------------

_MOST_SAMPLES = 64


def _multinomial(params: Params) -> None:
    samples = params["numSamples"]
    require_param(samples <= _MOST_SAMPLES, "numSamples", samples, f"0 .. {_MOST_SAMPLES}")


def _multinomial_inputs(params: Params, inputs: Descs) -> None:
    require_rank(0, inputs[0], 2, status=Refusal.DIM)


def _multinomial_setup(params: Params, inputs: Descs) -> None:
    samples, last = params["numSamples"], inputs[0].shape[-1]
    require_param(samples <= last, "numSamples", samples, f"0 .. {last}")


accept(
    Acceptance(
        "MultinomialOperation",
        lambda _: "MultinomialOperation",
        _multinomial,
        _multinomial_inputs,
        counted_as(Refusal.DIM),
        _multinomial_setup,
    )
)

# -- TopkToppSampling ---------------------------------------------------------------------------

_Kind = TopkToppSamplingParam.TopkToppSamplingType
_TABLES = {
    _Kind.SINGLE_TOPK_SAMPLING: "SingleTopK",
    _Kind.BATCH_TOPK_MULTINOMIAL_SAMPLING: "BatchTopKMulti",
    _Kind.BATCH_TOPK_EXPONENTIAL_SAMPLING: "BatchTopKExp",
    _Kind.BATCH_TOPK_MULTINOMIAL_LOGPROBS_SAMPLING: "BatchTopKLogProbsMulti",
    _Kind.BATCH_TOPK_EXPONENTIAL_LOGPROBS_SAMPLING: "BatchTopKLogProbsExp",
}
_WITH_LOGARITHMS = (
    _Kind.BATCH_TOPK_MULTINOMIAL_LOGPROBS_SAMPLING,
    _Kind.BATCH_TOPK_EXPONENTIAL_LOGPROBS_SAMPLING,
)
_EXPONENTIAL = (
    _Kind.BATCH_TOPK_EXPONENTIAL_SAMPLING,
    _Kind.BATCH_TOPK_EXPONENTIAL_LOGPROBS_SAMPLING,
)
_MOST_ROWS, _MOST_LOGARITHMS = 512, 16384


def _sampling(params: Params) -> None:
    kind = params["topkToppSamplingType"]
    require_param(kind in _TABLES, "topkToppSamplingType", int(kind), "0 .. 4")


def _sampling_table(params: Params) -> str:
    return f"TopkToppSampling{_TABLES[params['topkToppSamplingType']]}Operation"


def _sampling_inputs(params: Params, inputs: Descs) -> None:
    kind = params["topkToppSamplingType"]
    require_ranks(inputs, (2,) * len(inputs))
    probabilities = inputs[0]
    rows, width = probabilities.shape
    if kind == _Kind.SINGLE_TOPK_SAMPLING:
        require_param(params["topk"] <= width, "topk", params["topk"], f"1 .. {width}")
        require_input(inputs[1].shape[1] == 1, 1, inputs[1], "[batch, 1]")
        require_input(rows <= _MOST_ROWS, 0, probabilities, f"[<= {_MOST_ROWS}, {width}]")
        return
    if kind == _Kind.BATCH_TOPK_MULTINOMIAL_SAMPLING:
        seeds = len(params["randSeeds"])
        require_param(seeds == rows, "len(randSeeds)", seeds, str(rows))
    if kind == _Kind.BATCH_TOPK_MULTINOMIAL_LOGPROBS_SAMPLING:
        require_input(inputs[3].shape == (rows, 1), 3, inputs[3], f"[{rows}, 1]")
    if kind in _WITH_LOGARITHMS:
        size, most = params["logProbsSize"], min(width, _MOST_LOGARITHMS)
        require_param(0 <= size <= most, "logProbsSize", size, f"0 .. {most}")
    if kind in _EXPONENTIAL:
        same = (inputs[3].dtype, inputs[3].format, inputs[3].shape) == (
            probabilities.dtype,
            probabilities.format,
            probabilities.shape,
        )
        require_input(same, 3, inputs[3], str(list(probabilities.shape)))
    for index in (1, 2):
        require_input(inputs[index].shape == (rows, 1), index, inputs[index], f"[{rows}, 1]")
    require_input(rows <= _MOST_ROWS, 0, probabilities, f"[<= {_MOST_ROWS}, {width}]")


def _sampling_outputs(params: Params, inputs: Descs, outputs: Descs, inferred: Descs) -> None:
    """Rows are compared among the outputs only; that of no logarithms may be anything."""
    pairs = list(enumerate(zip(outputs, inferred, strict=True)))
    if params["logProbsSize"] == 0:
        pairs = pairs[:2]
    for index, (got, wanted) in pairs:
        if len(got.shape) != len(wanted.shape):
            require_output(index, got, wanted)
    for index, (got, wanted) in pairs:
        require_output(index, got, wanted)


accept(
    Acceptance(
        "TopkToppSamplingOperation",
        _sampling_table,
        _sampling,
        _sampling_inputs,
        _sampling_outputs,
    )
)

# -- SwigluQuant --------------------------------------------------------------------------------

_BUFFER = 192 * 1024 // 25  # elements of a row that a core's memory holds
_SECTOR = 32  # bytes


def _swiglu(params: Params) -> None:
    require_param(params["quantType"] == 0, "quantType", int(params["quantType"]), "0")


def _swiglu_inputs(params: Params, inputs: Descs) -> None:
    x = inputs[0]
    require_rank(0, x, 2)
    width = x.shape[1]
    require_input(width % 2 == 0, 0, x, "[tokens, 2 * n]")
    step = _SECTOR * 8 // x.dtype.bits
    require_input(-(-(width // 2) // step) * step < _BUFFER, 0, x, f"[tokens, < {2 * _BUFFER}]")


accept(
    Acceptance(
        "SwigluQuantOperation",
        lambda _: "SwigluQuantOperation",
        _swiglu,
        _swiglu_inputs,
        counted_as(Refusal.DIM),
    )
)

# -- StridedBatchMatmul -------------------------------------------------------------------------


def _strided_inputs(params: Params, inputs: Descs) -> None:
    batch, heads = params["batch"], params["headNum"]
    sizes = {name: list(params[name]) for name in ("m", "n")}
    for name, values in sizes.items():
        require_param(len(values) == batch, f"len({name})", len(values), str(batch))
    require_param(heads > 0, "headNum", heads, "> 0")
    for name, values in sizes.items():
        require_param(all(value > 0 for value in values), name, values, "> 0")
    total = heads * sum(m * n for m, n in zip(sizes["m"], sizes["n"], strict=True))
    require_param(total < 1 << 63, "headNum * m * n", total, "< 2 ** 63")


accept(
    Acceptance(
        "StridedBatchMatmulOperation",
        lambda _: "StridedBatchMatmulOperation",
        inputs=_strided_inputs,
    )
)
