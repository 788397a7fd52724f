"""RmsNorm, LayerNorm and their variants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ait_llm.core import DType, TensorDesc
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
from ait_llm.opcheck.golden.base import Refusal

_LEAST_EPSILON = 2e-38
_NORM, _PRENORM, _POSTNORM = 1, 2, 3
_UNQUANT, _INT8 = 0, 2
_NOT_DYNAMIC, _SYMMETRIC, _ASYMMETRIC = 0, 1, 2
_LONGEST_ROW = 12288  # of a dynamic quantisation
_GROUPS = {_NORM: "normParam", _PRENORM: "preNormParam", _POSTNORM: "postNormParam"}


def _group(params: Params) -> Mapping[str, Any]:
    group: Mapping[str, Any] = params[_GROUPS[int(params["layerType"])]]
    return group


def _require_epsilon(name: str, value: float) -> None:
    require_param(abs(value) >= _LEAST_EPSILON, name, value, f"|{name}| >= {_LEAST_EPSILON}")


def _require_quant(params: Params, kinds: tuple[int, ...]) -> None:
    quant = int(_group(params)["quantType"])
    require_param(quant in kinds, "quantType", quant, ", ".join(map(str, kinds)))


def _is_quant(params: Params) -> bool:
    return int(_group(params)["quantType"]) == _INT8


def _dynamic(params: Params) -> int:
    return int(params["normParam"]["dynamicQuantType"])


def _require_symmetric(params: Params) -> None:
    kind = _dynamic(params)
    require_param(kind != _ASYMMETRIC, "dynamicQuantType", kind, "0, 1")


def _layer_norm(params: Params) -> None:
    kind, group = int(params["layerType"]), _group(params)
    _require_quant(params, (_UNQUANT, _INT8))
    _require_epsilon("epsilon", group["epsilon"])
    if kind == _NORM:
        _require_symmetric(params)
    else:
        require_param(group["opMode"] == 0, "opMode", group["opMode"], "0")


def _layer_norm_table(params: Params) -> str:
    kind = int(params["layerType"])
    name = "LayerNormOperation" + {_NORM: "Norm", _PRENORM: "Prenorm", _POSTNORM: "Postnorm"}[kind]
    if kind == _NORM and _is_quant(params):
        name += "SymmetricDynamic" if _dynamic(params) == _SYMMETRIC else ""
    return name + ("Quant" if _is_quant(params) else "")


def _has_static_scales(params: Params) -> bool:
    return (
        params["normParam"]["quantType"] == _INT8 and _dynamic(params) == _NOT_DYNAMIC
    ) or params["postNormParam"]["quantType"] == _INT8


def _layer_norm_axis(params: Params, inputs: Descs) -> None:
    """How many dimensions are normed has to follow from the weight's number of dimensions."""
    if int(params["layerType"]) != _NORM or _is_quant(params):
        return
    rank, weight = len(inputs[0].shape), inputs[1]
    require_input(len(weight.shape) <= rank, 1, weight, f"ndim <= {rank}")
    axis = params["normParam"]["beginNormAxis"]
    wanted = rank - len(weight.shape)
    fits = axis in (wanted, -len(weight.shape))
    require_param(fits, "beginNormAxis", axis, f"{wanted}, {-len(weight.shape)}")


def _layer_norm_rows(params: Params, inputs: Descs) -> None:
    x, last = inputs[0], inputs[0].shape[-1]
    plain = int(params["layerType"]) == _NORM and not _is_quant(params)
    require_input(plain or last % 16 == 0, 0, x, "[..., 16 * n]", Refusal.SIZE)
    count = len(inputs) - (2 if _has_static_scales(params) else 0)
    for index in range(1, count):
        fits = inputs[index].shape[-1] == last
        require_input(fits, index, inputs[index], f"[..., {last}]", Refusal.SIZE)
    if int(params["layerType"]) == _NORM and _dynamic(params) == _SYMMETRIC:
        require_input(last <= _LONGEST_ROW, 0, x, f"[..., <= {_LONGEST_ROW}]", Refusal.SIZE)


def _layer_norm_inputs(params: Params, inputs: Descs) -> None:
    kind = int(params["layerType"])
    _layer_norm_axis(params, inputs)
    x = inputs[0]
    if kind == _NORM and _is_quant(params) and _dynamic(params) == _SYMMETRIC:
        require_rank(0, x, *range(2, 9), status=Refusal.DIM)
    if kind != _NORM:
        require_rank(1, inputs[1], len(x.shape))
        require_input(inputs[1].shape == x.shape, 1, inputs[1], str(list(x.shape)))
    _layer_norm_rows(params, inputs)
    if _is_quant(params) and (kind == _POSTNORM or _dynamic(params) == _NOT_DYNAMIC):
        for index in (len(inputs) - 2, len(inputs) - 1):
            require_input(inputs[index].shape == (1,), index, inputs[index], "[1]", Refusal.SIZE)


def _layer_norm_setup(params: Params, inputs: Descs) -> None:
    """Setup does not look at scales and residuals again."""
    _layer_norm_axis(params, inputs)
    _layer_norm_rows(params, inputs)


accept(
    Acceptance(
        "LayerNormOperation",
        _layer_norm_table,
        _layer_norm,
        _layer_norm_inputs,
        counted_as(Refusal.DIM),
        _layer_norm_setup,
    )
)


def _rms_epsilons(params: Params) -> None:
    for group in _GROUPS.values():
        _require_epsilon("epsilon", params[group]["epsilon"])
    _require_epsilon("layerNormEps", params["normParam"]["layerNormEps"])


def _rms_norm(params: Params) -> None:
    _rms_epsilons(params)
    _require_quant(params, (_UNQUANT, _INT8))
    if int(params["layerType"]) == _NORM:
        _require_symmetric(params)


def _rms_norm_table(params: Params) -> str:
    kind, group = int(params["layerType"]), _group(params)
    name = "RmsNormOperation" + {_NORM: "NORM", _PRENORM: "PRENORM", _POSTNORM: "POSTNORM"}[kind]
    if kind != _NORM:
        return name + ("AndQUANT" if _is_quant(params) else "" if group["hasBias"] else "NoBias")
    if not _is_quant(params):
        return f"{name}AndQUANTUNDEFINEDWith{'' if group['rstd'] else 'out'}RSTD"
    return name + ("AndSymmetricDynamicQuant" if _dynamic(params) else "AndQUANTParamInTensor")


def _has_row(desc: TensorDesc, columns: int) -> bool:
    return desc.shape[-1] == columns and all(length == 1 for length in desc.shape[:-1])


def _require_row(index: int, desc: TensorDesc, x: TensorDesc) -> None:
    alike = desc.dtype is x.dtype and desc.format == x.format
    require_kind(alike, index, desc, x.dtype.label, Refusal.DIM)
    require_input(_has_row(desc, x.shape[-1]), index, desc, f"[1, {x.shape[-1]}]")


def _require_same(index: int, desc: TensorDesc, wanted: TensorDesc) -> None:
    require_kind(desc.dtype is wanted.dtype, index, desc, wanted.dtype.label, Refusal.DIM)
    require_input(desc.shape == wanted.shape, index, desc, str(list(wanted.shape)))


def _require_scales(inputs: Descs) -> None:
    for index in (len(inputs) - 2, len(inputs) - 1):
        require_input(inputs[index].shape == (1,), index, inputs[index], "[1]")


def _rms_shapes(params: Params, inputs: Descs) -> None:
    kind, group, x = int(params["layerType"]), _group(params), inputs[0]
    if kind == _NORM and group["rstd"]:
        weight = inputs[1].shape
        fits = len(weight) <= len(x.shape) and x.shape[len(x.shape) - len(weight) :] == weight
        require_input(fits, 1, inputs[1], f"end of {list(x.shape)}")
    elif kind == _NORM:
        require_input(_has_row(inputs[1], x.shape[-1]), 1, inputs[1], f"[1, {x.shape[-1]}]")
        if _is_quant(params) and _dynamic(params) == _NOT_DYNAMIC:
            _require_same(2, inputs[2], inputs[1])
            _require_scales(inputs)
    elif not _is_quant(params):
        has_bias = any(params[name]["hasBias"] for name in ("preNormParam", "postNormParam"))
        residual = 2 if has_bias else 1
        _require_same(residual, inputs[residual], x)
        _require_row(residual + 1, inputs[residual + 1], x)
        if has_bias:
            _require_row(1, inputs[1], x)
    else:
        _require_same(1, inputs[1], x)
        if kind == _PRENORM:
            _require_same(3, inputs[3], inputs[2])
        else:
            require_rank(2, inputs[2], 1, 2, status=Refusal.DIM)
        require_input(_has_row(inputs[2], x.shape[-1]), 2, inputs[2], f"[1, {x.shape[-1]}]")
        _require_scales(inputs)


def _rms_rows(params: Params, inputs: Descs) -> None:
    x, last = inputs[0], inputs[0].shape[-1]
    quants = [params[name]["quantType"] == _INT8 for name in _GROUPS.values()]
    status = Refusal.DIM if quants[2] else Refusal.SIZE
    step = 32 if quants[2] else 32 // (4 if x.dtype is DType.FLOAT32 else 2)
    require_input(last % step == 0, 0, x, f"[..., {step} * n]", status)
    if quants[0] and _dynamic(params) == _SYMMETRIC:
        require_input(last <= _LONGEST_ROW, 0, x, f"[..., <= {_LONGEST_ROW}]", status)
    for index in range(1, len(inputs) - (2 if any(quants) else 0)):
        fits = inputs[index].shape[-1] == last
        require_input(fits, index, inputs[index], f"[..., {last}]", status)


def _rms_modes(params: Params) -> None:
    """Modes that exclude each other are looked at with the inputs only."""
    norm = params["normParam"]
    quant, rstd, fast = norm["quantType"] != _UNQUANT, norm["rstd"], norm["precisionMode"] == 1
    if norm["modelType"] != 0:
        require_param(not (quant or fast or rstd), "modelType", int(norm["modelType"]), "0")
    require_param(not (fast and (quant or rstd)), "precisionMode", 1, "0")
    for name in ("preNormParam", "postNormParam"):
        wrong = params[name]["hasBias"] and params[name]["quantType"] != _UNQUANT
        require_param(not wrong, f"{name}.hasBias", True, "false (quantType 2)")
    require_param(not (rstd and quant), "rstd", rstd, "false (quantType 2)")


def _rms_inputs(params: Params, inputs: Descs) -> None:
    norm, x = params["normParam"], inputs[0]
    if norm["rstd"]:
        require_kind(x.dtype is DType.FLOAT32, 0, x, "float (rstd)")
    if norm["precisionMode"] == 1:
        require_kind(x.dtype is DType.FLOAT16, 0, x, "float16 (precisionMode 1)")
    _rms_shapes(params, inputs)
    _rms_rows(params, inputs)
    _rms_modes(params)


def _rms_outputs(params: Params, inputs: Descs, outputs: Descs, inferred: Descs) -> None:
    for index, (got, wanted) in enumerate(zip(outputs, inferred, strict=True)):
        require_output_kind(index, got, wanted)
        require_output(index, got, wanted, Refusal.SIZE)


accept(Acceptance("RmsNormOperation", _rms_norm_table, _rms_norm, _rms_inputs, _rms_outputs))


def _strided(params: Params) -> None:
    norm = params["normParam"]
    kind = int(params["layerType"])
    require_param(kind == _NORM, "layerType", kind, "1")
    _require_quant(params, (_UNQUANT,))
    require_param(not norm["rstd"], "rstd", True, "false")
    dynamic = _dynamic(params)
    require_param(dynamic == _NOT_DYNAMIC, "dynamicQuantType", dynamic, "0")
    _rms_epsilons(params)


def _strided_inputs(params: Params, inputs: Descs) -> None:
    x, weight = inputs[:2]
    require_input(_has_row(weight, x.shape[-1]), 1, weight, f"[1, {x.shape[-1]}]")
    step = 32 // (4 if x.dtype is DType.FLOAT32 else 2)
    require_input(x.shape[-1] % step == 0, 0, x, f"[..., {step} * n]")


accept(
    Acceptance(
        "RmsNormWithStrideOperation",
        lambda _: "RmsNormWithStrideOperationNORMAndQUANTUNDEFINEDWithoutRSTD",
        _strided,
        _strided_inputs,
        _rms_outputs,
    )
)


def _epsilon(params: Params) -> None:
    _require_epsilon("epsilon", params["epsilon"])


def _cohere_inputs(params: Params, inputs: Descs) -> None:
    x, weight = inputs
    require_rank(0, x, 3, 4, status=Refusal.DIM)
    wanted = x.shape[-2:]
    require_input(weight.shape == wanted, 1, weight, str(list(wanted)))
    require_input(x.shape[-1] % 4 == 0, 0, x, "[..., 4 * n]")


accept(
    Acceptance(
        "CohereLayerNormOperation",
        lambda _: "CohereLayerNormOperation",
        _epsilon,
        _cohere_inputs,
        counted_as(Refusal.DIM),
    )
)


def _gathered_inputs(params: Params, inputs: Descs) -> None:
    x, residual, indices, weight = inputs
    for index, desc in enumerate((x, residual)):
        require_rank(index, desc, 2, status=Refusal.DIM)
    _require_row(3, weight, x)
    columns = x.shape[1]
    require_input(columns % 16 == 0 and columns <= 7680, 0, x, "[n, 16 * m <= 7680]")
    require_input(residual.shape[1] == columns, 1, residual, f"[n, {columns}]")
    require_input(indices.shape[0] == x.shape[0], 2, indices, f"[{x.shape[0]}]")


accept(
    Acceptance(
        "GatherPreRmsNormOperation",
        lambda _: "GatherPreRmsNormOperation",
        _epsilon,
        _gathered_inputs,
        _rms_outputs,
    )
)
