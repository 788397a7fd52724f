"""Kernels of Linear: one matrix product, followed by an addition kernel for a 16-bit bias."""

from __future__ import annotations

from typing import Any

from ait_llm.core import FORMAT_FRACTAL_NZ, DType, TensorDesc
from ait_llm.hostatb.operators.elementwise import mki_elewise
from ait_llm.hostatb.operators.launch import TBE_TILING, Descs, Param, dtype_suffix
from ait_llm.hostatb.params.elementwise import ElewiseParam
from ait_llm.hostatb.params.json_text import dump_json
from ait_llm.hostatb.params.linear import LinearParam
from ait_llm.hostatb.spec import Kernel, OperatorSpec, Plan, operator_specs

_MATMUL_TILING = 256
_EIN_SUM = LinearParam.MatmulType.MATMUL_EIN_SUM
_PER_TOKEN = LinearParam.QuantMode.PER_TOKEN
_ADD = ElewiseParam.ElewiseType.ELEWISE_ADD

# Tiles (m, n, k) of the float32 kernels; the first that covers the product's m and n is taken.
_FLOAT32_TILES = (
    (16, 16, 2048),
    (16, 32, 1024),
    (32, 32, 1024),
    (32, 48, 640),
    (48, 48, 640),
    (48, 64, 512),
    (64, 64, 512),
)


def _is_dequant(param: Param) -> bool:
    return int(param["outDataType"]) != DType.UNDEFINED.code


def _names(param: Param) -> tuple[tuple[str, ...], tuple[str, ...]]:
    names = ["input", "weight"]
    if param["enAccum"]:
        return (*names, "accum"), ("output",)
    names += ["bias"] if param["hasBias"] else []
    if _is_dequant(param):
        names.append("deqScale")
        if int(param["quantMode"]) == _PER_TOKEN:
            names.append("perTokenDeqScale")
    return tuple(names), ("output",)


def _original_shape(param: Param, x: TensorDesc, weight: TensorDesc) -> list[int]:
    """Sizes m, k, n of the product that the matrix kernel reports."""
    transpose_a, transpose_b = param["transposeA"], param["transposeB"]
    rows, columns = x.shape[-2:] if len(x.shape) > 1 else (1, x.shape[-1])
    m, k = (columns, rows) if transpose_a else (rows, columns)
    three = len(x.shape) == 3
    if int(param["matmulType"]) == _EIN_SUM and three:
        m, k = (x.shape[2], x.shape[0]) if transpose_a else (x.shape[0], x.shape[2])
    elif three and (len(weight.shape) == 2 or (x.shape[0] != 1 and weight.shape[0] == 1)):
        m *= x.shape[0]  # leading axes merged into the rows
    if len(weight.shape) == 4:
        n = weight.shape[2] if transpose_b else weight.shape[1] * weight.shape[3]
    else:
        n = weight.shape[-2] if transpose_b else weight.shape[-1]
    return [m, k, n]


def _matmul_name(param: Param, inputs: Descs, outputs: Descs) -> str:
    weight_nz = inputs[1].format == FORMAT_FRACTAL_NZ
    if param["enAccum"]:
        return "PpMatmulAccumAtomicKernel"
    if _is_dequant(param):
        if outputs[0].dtype is DType.BFLOAT16 or int(param["quantMode"]) == _PER_TOKEN:
            return "PpMatMulI8Bf16Kernel"
        return "PpMatMulI8WeightNzKernel" if weight_nz else "PpMatMulI8Kernel"
    if int(param["matmulType"]) == _EIN_SUM:
        return "PpMatmulEinSumKernel"
    if param["hasBias"] and inputs[2].dtype is DType.FLOAT32:
        return "PpMatmulWithBiasKernel"
    if inputs[0].dtype is DType.BFLOAT16:
        return "PpMatMulBf16NdNzNdKernel" if weight_nz else "PpMatMulBf16Kernel"
    return "PpMatMulF16OptKernel" if weight_nz else "PpMatMulF16Kernel"


def _float32_kernel(shape: list[int]) -> str:
    m, _, n = shape
    fitting = (tile for tile in _FLOAT32_TILES if m <= tile[0] and n <= tile[1])
    tile = next(fitting, _FLOAT32_TILES[-1])
    return f"MoeGateCorrM{tile[0]}N{tile[1]}K{tile[2]}Kernel"


def _plan(param: Param, inputs: Descs, outputs: Descs) -> Plan:
    x, weight = inputs[0], inputs[1]
    shape = _original_shape(param, x, weight)
    floating = not _is_dequant(param) and not param["enAccum"]
    bias_kernel = floating and param["hasBias"] and inputs[2].dtype is not DType.FLOAT32
    golden_param: dict[str, Any] = dict(param)
    mki_op, name = "MatMulOperation", _matmul_name(param, inputs, outputs)
    mki_param: dict[str, Any] = {
        "enDequant": _is_dequant(param),
        "oriShape": shape,
        "tilingK": 0,
        "tilingN": 0,
        "transposeA": param["transposeA"],
        "transposeB": param["transposeB"],
        "withBias": param["hasBias"] and not param["enAccum"] and not bias_kernel,
    }
    if floating and not param["hasBias"] and x.dtype is DType.FLOAT32:
        mki_op, name = "MoeGateCorrOperation", _float32_kernel(shape)
        mki_param = {key: param[key] for key in ("transposeA", "transposeB")}
    output = len(inputs)
    matmul_inputs, matmul_output = tuple(range(output)), output
    if bias_kernel:
        golden_param["hasBias"] = False
        matmul_inputs, matmul_output = (0, 1), output + 1
    matmul = Kernel(
        name,
        mki_op,
        dump_json(mki_param),
        matmul_inputs,
        (matmul_output,),
        _MATMUL_TILING,
        "LinearOperation",
        golden_param,
    )
    if not bias_kernel:
        return Plan((matmul,))
    bias = inputs[2].shape
    # A bias per batch has the shape [batch, n]; it is added to every row of its batch.
    view = (bias[0], 1, bias[1]) if len(bias) == 2 and bias[0] != 1 else None
    addition = Kernel(
        f"Add{dtype_suffix(outputs[0])}Kernel",
        "ElewiseOperation",
        dump_json(mki_elewise(_ADD)),
        (matmul_output, 2),
        (output,),
        TBE_TILING,
        "ElewiseOperation",
        ElewiseParam(elewise_type=_ADD).entries(printed_only=False),
        () if view is None else (None, view),
    )
    return Plan((matmul, addition), (outputs[0],))


def _aliases(param: Param) -> tuple[int | None, ...]:
    return (2,) if param["enAccum"] else ()


operator_specs.register("LinearOperation")(
    OperatorSpec("LinearOperation", _names, _plan, output_aliases=_aliases)
)
