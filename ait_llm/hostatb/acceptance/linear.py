"""Linear and LinearSparse."""

from __future__ import annotations

from ait_llm.core import FORMAT_FRACTAL_NZ, DType, TensorDesc
from ait_llm.hostatb.acceptance.base import (
    Acceptance,
    Descs,
    Params,
    accept,
    as_inferred,
    require_input,
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
from ait_llm.hostatb.params.linear import LinearParam
from ait_llm.opcheck.golden.base import Refusal

_FLOAT = DType.UNDEFINED.code  # outDataType of products of floats
_EIN_SUM = LinearParam.MatmulType.MATMUL_EIN_SUM
_PER_TOKEN = LinearParam.QuantMode.PER_TOKEN
_BLOCK, _INT8_BLOCK = 16, 32


def _is_float(params: Params) -> bool:
    return int(params["outDataType"]) == _FLOAT


def _is_per_token(params: Params) -> bool:
    return bool(params["quantMode"] == _PER_TOKEN)


def _create(params: Params) -> None:
    kind, out = params["matmulType"], int(params["outDataType"])
    accumulates, has_bias = params["enAccum"], params["hasBias"]
    require_param(kind in (0, _EIN_SUM), "matmulType", int(kind), "0, 1")
    if kind == _EIN_SUM:
        for name in ("enAccum", "transposeA", "hasBias"):
            require_param(not params[name], name, params[name], "false (matmulType 1)")
        require_param(out == _FLOAT, "outDataType", out, "-1 (matmulType 1)")
        return
    half = (DType.FLOAT16.code, DType.BFLOAT16.code)
    require_param(out in (_FLOAT, *half), "outDataType", out, "-1, 1, 27")
    if out == _FLOAT:
        mode = params["quantMode"]
        require_param(mode == 0, "quantMode", int(mode), "0 (outDataType -1)")
        require_param(not (accumulates and has_bias), "hasBias", True, "false (enAccum)")
        return
    require_param(not accumulates, "enAccum", True, f"false (outDataType {out})")
    wrong = _is_per_token(params) and has_bias
    require_param(not wrong, "hasBias", has_bias, "false (quantMode 2)")


def _table(params: Params) -> str:
    name, bias = "LinearOperationMatmul", params["hasBias"]
    if params["matmulType"] == _EIN_SUM:
        return f"{name}EinSum"
    if _is_float(params):
        if params["enAccum"]:
            return f"{name}Accum"
        return f"{name}{'WithBias' if bias else ''}Atlas800IA2"
    name += "DequantWithBias" if bias else "Dequant"
    name += "PerToken" if _is_per_token(params) else ""
    half = "Float16" if int(params["outDataType"]) == DType.FLOAT16.code else "Bf16"
    return f"{name}{half}Atlas800IA2"


def _check_operands(params: Params, x: TensorDesc, weight: TensorDesc) -> None:
    einsum = params["matmulType"] == _EIN_SUM
    require_rank(0, x, 2, 3)
    if weight.format == FORMAT_FRACTAL_NZ:
        require_rank(1, weight, *((4,) if einsum else (2, 3, 4)))
    else:
        require_rank(1, weight, *((3,) if einsum else (2, 3)))
    ranks = len(x.shape), len(weight.shape)
    require_input(ranks != (2, 3), 0, x, "[batch, m, k]", Refusal.DIM_COUNT)
    alone = _is_per_token(params) and ranks == (3, 2)
    require_input(not alone, 1, weight, "[batch, n, k]", Refusal.DIM_COUNT)
    own, batch = batch_of(x, einsum), batch_of(weight)
    shared = batch == 1 and not params["transposeA"] and len(weight.shape) != 3
    require_input(own == batch or shared, 1, weight, f"batch = {own}")
    depth = depth_of(x, params["transposeA"])
    fits = weight_depth(weight, params["transposeB"]) == depth
    require_input(fits, 1, weight, f"k = {depth}")
    if len(weight.shape) == 4:
        block = _BLOCK if _is_float(params) else _INT8_BLOCK
        aligned = weight.shape[2] % _BLOCK == 0 and weight.shape[3] == block
        require_input(aligned, 1, weight, f"[batch, d, 16 * r, {block}]")


def _check_row(index: int, row: TensorDesc, batch: int, columns: int) -> None:
    require_rank(index, row, 1, 2)
    own = row.shape[0] if len(row.shape) == 2 else 1
    fits = own == batch and row.shape[-1] == columns
    require_input(fits, index, row, f"[{batch}, {columns}]")


def _inputs(params: Params, inputs: Descs) -> None:
    x, weight = inputs[:2]
    _check_operands(params, x, weight)
    columns = weight_columns(weight, params["transposeB"])
    batch = batch_of(weight)
    rows = rows_of(x, params["transposeA"], params["matmulType"] == _EIN_SUM)
    index = 2
    if params["hasBias"]:
        _check_row(index, inputs[index], batch, columns)
        index += 1
    elif params["enAccum"]:
        total = inputs[index]
        require_rank(index, total, len(x.shape))
        wanted = (*x.shape[:-2], rows, columns)
        require_input(total.shape == wanted, index, total, str(list(wanted)))
    if _is_float(params):
        return
    if not _is_per_token(params):
        _check_row(index, inputs[index], batch, columns)
        return
    scale, token_scale = inputs[index : index + 2]
    require_rank(index, scale, 1)
    require_rank(index + 1, token_scale, 1)
    require_input(scale.shape == (columns,), index, scale, f"[{columns}]")
    require_input(token_scale.shape == (rows,), index + 1, token_scale, f"[{rows}]")


def _outputs(params: Params, inputs: Descs, outputs: Descs, inferred: Descs) -> None:
    """The kernel of float32 takes two matrices, the weight transposed; it is chosen at Setup."""
    as_inferred(params, inputs, outputs, inferred)
    if inputs[0].dtype is not DType.FLOAT32:
        return
    for name, wanted in (("transposeA", False), ("transposeB", True)):
        require_param(params[name] == wanted, name, params[name], f"{wanted} (float32)".lower())
    for index, desc in enumerate(inputs):
        require_rank(index, desc, 2, status=Refusal.PARAM)


accept(Acceptance("LinearOperation", _table, _create, _inputs, _outputs))


def _sparse(params: Params) -> None:
    require_param(False, "soc", "Ascend910B", "Ascend310P")


accept(Acceptance("LinearSparseOperation", lambda _: "LinearSparseOperation", _sparse))
