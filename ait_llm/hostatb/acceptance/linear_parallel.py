"""LinearParallel: a product and the exchange between ranks around it."""

from __future__ import annotations

from ait_llm.core import FORMAT_FRACTAL_NZ, DType, TensorDesc
from ait_llm.hostatb.acceptance.base import (
    Acceptance,
    Descs,
    Params,
    accept,
    require_input,
    require_output,
    require_param,
)
from ait_llm.hostatb.acceptance.matrix import (
    batch_of,
    depth_of,
    require_rank,
    rows_of,
    weight_columns,
    weight_depth,
)
from ait_llm.hostatb.acceptance.ranks import require_backend, require_group
from ait_llm.hostatb.acceptance.table import has_section
from ait_llm.hostatb.params.linear import LinearParallelParam
from ait_llm.opcheck.golden.base import Refusal

_Type = LinearParallelParam.ParallelType
_Quant = LinearParallelParam.QuantType
_EXPERTS = (_Type.ALLTOALLVC_ALL_GATHER_GMM, _Type.GMM_REDUCE_SCATTER_ALLTOALLVC)
_NAME = "LinearParallelOperation"
_FLOAT = DType.UNDEFINED.code  # outDataType of products of floats
_MOST_EXPERTS, _MOST_ROWS, _MOST_DEPTH = 16, 204800, 24000
_MC2_DEPTHS = range(256, 65535)


def _is_fused(params: Params) -> bool:
    return params["backend"] in ("lcoc", "mc2")


def _kind(params: Params) -> int:
    return int(params["type"]) if _is_fused(params) else int(_Type.LINEAR_ALL_REDUCE)


def _is_quantised(params: Params) -> bool:
    """The inputs have scales; the two-dimensional kind has none whatever quantType says."""
    two = params["type"] == _Type.ALL_GATHER_LINEAR_REDUCE_SCATTER
    quant = _Quant.QUANT_TYPE_UNQUANT < params["quantType"] < _Quant.QUANT_TYPE_MAX
    return _is_fused(params) and not two and quant


def _create(params: Params) -> None:
    require_group(params)
    require_backend(params, "hccl", "lccl", "lcoc", "mc2")
    size, backend, kind = params["rankSize"], params["backend"], params["type"]
    quant = params["quantType"]
    if backend == "lcoc":
        require_param(size > 0 and size & (size - 1) == 0, "rankSize", size, "2 ** n")
        require_param(0 <= kind < _Type.MAX, "type", int(kind), "0 .. 6")
        keeps = params["keepIntermediate"] and kind != _Type.ALL_GATHER_LINEAR
        require_param(not keeps, "keepIntermediate", True, "false (type != 2)")
        by_token = (*_EXPERTS, _Type.LINEAR_ALL_REDUCE)
        alone = quant == _Quant.QUANT_TYPE_PER_TOKEN and kind not in by_token
        require_param(not alone, "quantType", int(quant), "-1, 0, 1, 2 (type 1, 2, 3, 4)")
        if kind in _EXPERTS:
            _create_experts(params)
    elif backend == "mc2":
        require_param(not params["hasResidual"], "hasResidual", True, "false (mc2)")
        require_param(params["commMode"] == 1, "commMode", int(params["commMode"]), "1 (mc2)")
        unquantised = quant == _Quant.QUANT_TYPE_UNQUANT
        require_param(unquantised, "quantType", int(quant), "-1 (mc2)")
        scatters = kind == _Type.LINEAR_REDUCE_SCATTER
        require_param(scatters, "type", int(kind), "1 (mc2)")


def _create_experts(params: Params) -> None:
    size, local = params["rankSize"], params["local_expert_nums"]
    group = params["epSize"] * params["tpSize"]
    require_param(group == size, "epSize * tpSize", group, str(size))
    require_param(1 <= local <= _MOST_EXPERTS, "localExpertNums", local, f"1 .. {_MOST_EXPERTS}")
    quant = int(params["quantType"])
    require_param(quant in (-1, 1, 3), "quantType", quant, "-1, 1, 3 (type 5, 6)")


def _table(params: Params) -> str:
    """The table lacks some names that the library asks for; it looks at no types then."""
    name = f"{_NAME}With{'' if params['hasResidual'] else 'out'}Residual"
    if _is_fused(params):
        name += params["backend"].capitalize()
        name += "KeepIntermediate" if params["keepIntermediate"] else ""
        name += "Moe" if params["type"] in _EXPERTS else ""
        if _is_quantised(params):
            name += "Quant"
            name += "PerToken" if params["quantType"] == _Quant.QUANT_TYPE_PER_TOKEN else ""
    return name if has_section(name) else ""


def _check_product(params: Params, inputs: Descs) -> None:
    """Everything about the operands has one status."""
    x, weight = inputs[:2]
    quantised, transposed = _is_quantised(params), params["transWeight"]
    float_bias = quantised and inputs[2].dtype is DType.FLOAT32
    require_rank(0, x, 2, 3, status=Refusal.DIM)
    if float_bias:
        ranks = (2, 3) if len(x.shape) == 3 else (2,)
    else:
        ranks = (2, 4) if weight.format == FORMAT_FRACTAL_NZ else (2, 3)
    require_rank(1, weight, *ranks, status=Refusal.DIM)
    batch, depth = batch_of(weight), depth_of(x)
    if not float_bias:
        require_input(batch == 1, 1, weight, "batch = 1")
    elif len(weight.shape) == 3:
        require_input(batch == x.shape[0], 1, weight, f"batch = {x.shape[0]}")
    require_input(weight_depth(weight, transposed) == depth, 1, weight, f"k = {depth}")
    if len(weight.shape) == 4:
        block = 32 if quantised else 16
        aligned = weight.shape[2] % 16 == 0 and weight.shape[3] == block
        require_input(aligned, 1, weight, f"[1, d, 16 * r, {block}]")
    if not quantised:
        return
    columns, size = weight_columns(weight, transposed), params["quantGroupSize"]
    bias = inputs[2]
    if float_bias:
        require_input(bias.shape == (batch, columns), 2, bias, f"[{batch}, {columns}]")
        return
    width = 1 if params["quantType"] == _Quant.QUANT_TYPE_PER_TENSOR else columns
    groups = -(-depth // size) if size else 1
    for index in (2, 3):
        if index == 3 or not bias.is_absent:
            _check_row(index, inputs[index], groups, width)


def _check_row(index: int, row: TensorDesc, first: int, columns: int) -> None:
    wanted = (first, columns)[-len(row.shape) :]
    require_input(row.shape == wanted, index, row, f"[{first}, {columns}]")


def _check_scale(params: Params, inputs: Descs, index: int) -> None:
    """A float32 scale goes with bfloat16 outputs."""
    if not _is_quantised(params) or int(params["outDataType"]) != DType.FLOAT16.code:
        return
    wrong = inputs[index].dtype is DType.FLOAT32
    require_input(not wrong, index, inputs[index], "int64 (outDataType 1)", Refusal.OPERATOR_TABLE)


def _inputs(params: Params, inputs: Descs) -> None:
    kind = _kind(params)
    if kind in _EXPERTS:
        _check_experts(params, inputs)
        return
    size, info = params["rankSize"], params["twoDimTPInfo"]
    if kind == _Type.ALL_GATHER_LINEAR_REDUCE_SCATTER:
        ranks = info["agDim"] * info["rsDim"]
        require_param(ranks == size and ranks > 0, "agDim * rsDim", ranks, str(size))
    if kind == _Type.ALL_GATHER_LINEAR:
        _check_scale(params, inputs, 3)
    _check_product(params, inputs)
    x, weight = inputs[:2]
    if kind in (_Type.LINEAR_ALL_REDUCE, _Type.PURE_LINEAR, _Type.LINEAR_REDUCE_SCATTER):
        _check_scale(params, inputs, 3)
    if kind == _Type.LINEAR_REDUCE_SCATTER and params["backend"] == "mc2":
        require_rank(0, x, 2)
        require_rank(1, weight, 2)
        depths = f"k = {_MC2_DEPTHS.start} .. {_MC2_DEPTHS.stop - 1}"
        require_input(depth_of(x) in _MC2_DEPTHS, 0, x, depths)
    if kind == _Type.ALL_GATHER_LINEAR_REDUCE_SCATTER:
        divides = rows_of(x) * info["agDim"] % info["rsDim"] == 0
        require_input(divides, 0, x, f"m * {info['agDim']} % {info['rsDim']} = 0")
    _check_residual(params, inputs, len(inputs) - 1)
    if kind == _Type.LINEAR_REDUCE_SCATTER:
        axis = 1 if x.shape[0] == 1 else 0
        shape = (*x.shape[:-1], weight_columns(weight, params["transWeight"]))
        require_input(shape[axis] % size == 0, 0, x, f"shape[{axis}] % {size} = 0")


def _check_experts(params: Params, inputs: Descs) -> None:
    if _is_quantised(params):
        _check_scale(params, inputs, 2)
    counts, group = inputs[-2], params["epSize"]
    experts = group * params["local_expert_nums"]
    fits = rows_of(counts) == group and depth_of(counts) == experts
    require_input(fits, len(inputs) - 2, counts, f"[{group}, {experts}]")
    _check_residual(params, inputs, len(inputs) - (4 if _is_quantised(params) else 3))
    rows, depth = inputs[-1].shape[0], depth_of(inputs[0])
    for value, most, index in ((rows, _MOST_ROWS, len(inputs) - 1), (depth, _MOST_DEPTH, 0)):
        require_input(value <= most, index, inputs[index], f"<= {most}", Refusal.SIZE)


def _check_residual(params: Params, inputs: Descs, index: int) -> None:
    by_token = params["quantType"] == _Quant.QUANT_TYPE_PER_TOKEN
    if params["hasResidual"] and not by_token:
        _check_row(index, inputs[index], 1, weight_columns(inputs[1], params["transWeight"]))


def _setup(params: Params, inputs: Descs) -> None:
    grouped = params["quantType"] == _Quant.QUANT_TYPE_PER_GROUP
    reduces = params["type"] in (_Type.LINEAR_ALL_REDUCE, _Type.PURE_LINEAR)
    wrong = reduces and grouped and inputs[0].dtype is DType.INT8
    require_param(not wrong, "quantType", int(params["quantType"]), "-1, 0, 1, 3 (int8)")


def _outputs(params: Params, inputs: Descs, outputs: Descs, inferred: Descs) -> None:
    got, wanted = outputs[0], inferred[0]
    kinds = (_Type.LINEAR_REDUCE_SCATTER, _Type.ALL_GATHER_LINEAR)
    out = int(params["outDataType"])
    typed = params["type"] not in kinds or out in (_FLOAT, got.dtype.code)
    require_param(typed, "outDataType", out, str(got.dtype.code), Refusal.OPERATOR_TABLE)
    if _kind(params) not in _EXPERTS or not len(got.shape) == len(inputs[0].shape) == 2:
        require_output(0, got, wanted, Refusal.DIM)


accept(Acceptance(_NAME, _table, _create, _inputs, _outputs, _setup))
