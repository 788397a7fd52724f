"""Activation, Elewise, Softmax, Reduce and their like."""

from __future__ import annotations

import itertools

from ait_llm.core import DType
from ait_llm.hostatb.acceptance.base import (
    Acceptance,
    Descs,
    Params,
    accept,
    counted_as,
    require_input,
    require_kind,
    require_output,
    require_output_kind,
    require_param,
)
from ait_llm.hostatb.acceptance.matrix import require_rank
from ait_llm.hostatb.params.elementwise import ElewiseParam
from ait_llm.hostatb.params.enums import ActivationType
from ait_llm.opcheck.golden.base import Refusal

_ACTIVATIONS = {
    ActivationType.ACTIVATION_RELU: "RELU",
    ActivationType.ACTIVATION_LOG: "LOG",
    ActivationType.ACTIVATION_GELU: "GELU",
    ActivationType.ACTIVATION_SWIGLU_FORWARD: "SWIGLUFORWARD",
    ActivationType.ACTIVATION_FAST_GELU: "FASTGELU",
    ActivationType.ACTIVATION_SIGMOID: "SIGMOID",
    ActivationType.ACTIVATION_SWISH: "SWISH",
    ActivationType.ACTIVATION_SWIGLU_BACKWARD: "SWIGLUBACKWARD",
    ActivationType.ACTIVATION_FASTER_GELU_FORWARD: "FasterGeluForward",
}


def _activation_table(params: Params) -> str:
    return "ActivationOperation" + _ACTIVATIONS[params["activationType"]]


def _activation(params: Params) -> None:
    kind, dim = params["activationType"], params["dim"]
    require_param(kind in _ACTIVATIONS, "activationType", int(kind), "1 to 9")
    require_param(dim == -1, "dim", dim, "-1")


def _activation_inputs(params: Params, inputs: Descs) -> None:
    if params["activationType"] == ActivationType.ACTIVATION_SWIGLU_BACKWARD:
        grad, x = inputs
        fits = grad.shape[:-1] == x.shape[:-1] and 2 * grad.shape[-1] == x.shape[-1]
        require_input(fits, 1, x, f"{list(grad.shape[:-1])} + [2 * {grad.shape[-1]}]")


def _activation_setup(params: Params, inputs: Descs) -> None:
    """Halves of an odd length are inferred, and refused here."""
    if params["activationType"] == ActivationType.ACTIVATION_SWIGLU_FORWARD:
        x = inputs[0]
        require_input(x.shape[-1] % 2 == 0, 0, x, "[..., 2 * n]")


accept(
    Acceptance(
        "ActivationOperation",
        _activation_table,
        _activation,
        _activation_inputs,
        counted_as(Refusal.DIM),
        _activation_setup,
    )
)


_ELEWISE = {
    kind: "".join(word.capitalize() for word in kind.name.split("_")[1:])
    for kind in ElewiseParam.ElewiseType
} | {
    ElewiseParam.ElewiseType.ELEWISE_REALDIV: "RealDiv",
}
_E = ElewiseParam.ElewiseType
_CAST = (DType.FLOAT16, DType.FLOAT32, DType.INT32, DType.INT64, DType.BFLOAT16)
_PAIRS = (
    _E.ELEWISE_ADD, _E.ELEWISE_MUL, _E.ELEWISE_REALDIV, _E.ELEWISE_LESS, _E.ELEWISE_GREATER,
    _E.ELEWISE_SUB, _E.ELEWISE_EQUAL, _E.ELEWISE_LOGICAL_AND, _E.ELEWISE_LOGICAL_OR,
)  # fmt: skip
_LONGEST = {DType.FLOAT16: 26624, DType.BFLOAT16: 7552}  # rows of a dynamic quantisation


def _elewise_inputs(params: Params, inputs: Descs) -> None:
    kind, x = params["elewiseType"], inputs[0]
    if kind == _E.ELEWISE_CAST:
        out = int(params["outTensorType"])
        wanted = (DType.UNDEFINED.code, *(dtype.code for dtype in _CAST))
        require_param(out in wanted, "outTensorType", out, ", ".join(map(str, wanted)))
    elif kind == _E.ELEWISE_QUANT:
        require_input(x.shape[-1] % 32 == 0, 0, x, "[..., 32 * n]")
    elif kind == _E.ELEWISE_DYNAMIC_QUANT:
        require_input(len(x.shape) >= 2, 0, x, "ndim >= 2", Refusal.DIM_COUNT)
        longest = _LONGEST[x.dtype]
        require_input(x.shape[-1] <= longest, 0, x, f"[..., <= {longest}]")
    elif kind in _PAIRS:
        require_kind(x.dtype is inputs[1].dtype, 1, inputs[1], x.dtype.label, Refusal.PARAM)
        fits = all(
            own == other or 1 in (own, other)
            for own, other in zip(x.shape[::-1], inputs[1].shape[::-1], strict=False)
        )
        require_input(fits, 1, inputs[1], f"~ {list(x.shape)}")


accept(
    Acceptance(
        "ElewiseOperation",
        lambda params: "ElewiseOperation" + _ELEWISE[params["elewiseType"]],
        inputs=_elewise_inputs,
    )
)


def _softmax(params: Params, inputs: Descs) -> None:
    axes, rank = list(params["axes"]), len(inputs[0].shape)
    follows = all(axis == before + 1 and axis != 0 for before, axis in itertools.pairwise(axes))
    inside = all(-1 <= axis < rank for axis in axes)
    require_param(bool(axes) and follows and inside, "axes", axes, f"n, n + 1, ... < {rank}")


accept(Acceptance("SoftmaxOperation", lambda _: "SoftmaxOperation", inputs=_softmax))


def _reduce_table(params: Params) -> str:
    return "ReduceOperationSUM" if params["reduceType"] == 3 else "ReduceOperation"


def _reduce(params: Params, inputs: Descs) -> None:
    kind, axis, rank = int(params["reduceType"]), list(params["axis"]), len(inputs[0].shape)
    require_param(0 < kind <= 3, "reduceType", kind, "1 to 3")
    fits = 0 < len(axis) <= rank and all(0 <= number < rank for number in axis)
    require_param(fits, "axis", axis, f"0 to {rank - 1}")


accept(Acceptance("ReduceOperation", _reduce_table, inputs=_reduce))


def _cumsum(params: Params) -> None:
    axes = list(params["axes"])
    require_param(len(axes) == 1, "axes", axes, "[n]")
    for name in ("reverse", "exclusive"):
        require_param(not params[name], name, params[name], "false")


def _cumsum_inputs(params: Params, inputs: Descs) -> None:
    axis, rank = params["axes"][0], len(inputs[0].shape)
    require_param(0 <= axis < rank, "axes", [axis], f"0 to {rank - 1}")


accept(Acceptance("CumsumOperation", lambda _: "CumsumOperation", _cumsum, _cumsum_inputs))


def _where(params: Params, inputs: Descs) -> None:
    """The condition is broadcast to both others, which are broadcast to each other."""
    condition, x, other = inputs
    for index, desc in ((1, x), (2, other)):
        fits = len(condition.shape) <= len(desc.shape) and all(
            own in (1, wanted)
            for own, wanted in zip(condition.shape[::-1], desc.shape[::-1], strict=False)
        )
        require_input(fits, 0, condition, f"-> input {index} {list(desc.shape)}")
    fits = all(
        own == wanted or 1 in (own, wanted)
        for own, wanted in zip(x.shape[::-1], other.shape[::-1], strict=False)
    )
    require_input(fits, 2, other, f"~ {list(x.shape)}")


accept(Acceptance("WhereOperation", lambda _: "WhereOperation", inputs=_where))


def _fill(params: Params) -> None:
    count, rank = len(params["value"]), len(params["outDim"])
    require_param(count == 1, "value", list(params["value"]), "[n]")
    if not params["withMask"]:
        require_param(0 < rank <= 8, "outDim", list(params["outDim"]), "ndim 1 to 8")


def _fill_inputs(params: Params, inputs: Descs) -> None:
    if not params["withMask"]:
        return
    x, mask = inputs
    fits = len(mask.shape) <= len(x.shape) and all(
        own in (1, wanted) for own, wanted in zip(mask.shape[::-1], x.shape[::-1], strict=False)
    )
    require_input(fits, 1, mask, f"-> {list(x.shape)}")


accept(
    Acceptance(
        "FillOperation",
        lambda params: f"FillOperationWith{'' if params['withMask'] else 'out'}Mask",
        _fill,
        _fill_inputs,
        counted_as(Refusal.DIM),
    )
)


def _onehot(params: Params) -> None:
    require_param(params["axis"] >= -1, "axis", params["axis"], ">= -1")


def _onehot_inputs(params: Params, inputs: Descs) -> None:
    indices, rank, axis = inputs[0], len(inputs[0].shape), params["axis"]
    require_input(rank < 8, 0, indices, "ndim < 8", Refusal.SIZE)
    for index in (1, 2):
        require_input(inputs[index].shape == (1,), index, inputs[index], "[1]", Refusal.SIZE)
    require_param(-rank - 1 < axis <= rank, "axis", axis, f"<= {rank}")


accept(
    Acceptance(
        "OnehotOperation",
        lambda _: "OnehotOperation",
        _onehot,
        _onehot_inputs,
        counted_as(Refusal.SIZE),
    )
)


def _ntk(params: Params) -> None:
    out = int(params["outputType"])
    require_param(out in (1, 27), "outputType", out, "1, 27")


def _ntk_inputs(params: Params, inputs: Descs) -> None:
    positions, frequencies, lengths = inputs
    require_rank(0, positions, 1)
    require_rank(2, lengths, 1)
    require_rank(1, frequencies, 2)
    batch, half = lengths.shape[0], frequencies.shape[1]
    fits = frequencies.shape[0] == batch <= 16
    require_input(fits, 1, frequencies, f"[{batch} <= 16, d / 2]")
    require_input(positions.shape[0] <= 256000, 0, positions, "[<= 256000]")
    require_input(half <= 1024 and half % 16 == 0, 1, frequencies, "[b, 16 * n <= 1024]")


def _ntk_outputs(params: Params, inputs: Descs, outputs: Descs, inferred: Descs) -> None:
    """The second output is looked at; the first has to be like it."""
    require_output_kind(1, outputs[1], inferred[1])
    require_output(1, outputs[1], inferred[1], Refusal.SIZE)
    require_output(0, outputs[0], outputs[1], Refusal.DIM)


accept(
    Acceptance(
        "DynamicNTKOperation", lambda _: "DynamicNTKOperation", _ntk, _ntk_inputs, _ntk_outputs
    )
)


def _fa_update(params: Params) -> None:
    require_param(1 <= params["sp"] <= 16, "sp", params["sp"], "1 to 16")


def _fa_update_inputs(params: Params, inputs: Descs) -> None:
    sums, parts = inputs
    require_rank(0, sums, 2)
    require_rank(1, parts, 3)
    count, rows = params["sp"], sums.shape[1]
    require_input(sums.shape[0] == count, 0, sums, f"[{count}, n]")
    fits = parts.shape[:2] == (count, rows)
    size = parts.shape[2]
    require_input(fits and 8 <= size <= 512 and size % 8 == 0, 1, parts, f"[{count}, {rows}, d]")


accept(
    Acceptance("FaUpdateOperation", lambda _: "FaUpdateOperation", _fa_update, _fa_update_inputs)
)
accept(Acceptance("NonzeroOperation", lambda _: "NonzeroOperation"))
