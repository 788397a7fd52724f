"""Linear: matrix product with bias, accumulation, int8 dequantisation and batched einsum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from ait_llm.core import FORMAT_FRACTAL_NZ, FORMAT_ND, DType, TensorDesc
from ait_llm.opcheck.golden.base import (
    Arithmetic,
    KernelArithmetic,
    Params,
    Result,
    golden_op,
)
from ait_llm.opcheck.golden.layout import nz_to_nd
from ait_llm.opcheck.golden.products import integer_matmul, wide_matmul
from ait_llm.opcheck.golden.quantise import matrix_unit_scale
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    F32,
    I8,
    I32,
    I64,
    U64,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
)
from ait_llm.opcheck.golden.support import (
    bool_param,
    dtype_param,
    enum_param,
    refused,
    tensor_at,
    torch_dtype,
)

NAME = "LinearOperation"


class MatmulType(IntEnum):
    """Values of ``matmulType``."""

    PLAIN = 0
    EIN_SUM = 1


class QuantMode(IntEnum):
    """Values of ``quantMode``; it matters to int8 inputs only."""

    UNDEFINED = 0
    PER_CHANNEL = 1
    PER_TOKEN = 2


@dataclass(frozen=True, slots=True)
class _Variant:
    transpose_a: bool
    transpose_b: bool
    has_bias: bool
    out_dtype: DType
    accumulate: bool
    einsum: bool
    per_token: bool

    @property
    def quantised(self) -> bool:
        return self.out_dtype is not DType.UNDEFINED

    @property
    def input_count(self) -> int:
        return 2 + self.has_bias + self.accumulate + self.quantised + self.per_token


def _variant(params: Params) -> _Variant:
    out_dtype = dtype_param(NAME, params, "outDataType")
    if out_dtype not in (DType.UNDEFINED, F16, BF16):
        raise refused(
            NAME, f"outDataType is {out_dtype.label}; it takes float16, bf16 or -1 for floats"
        )
    quantised = out_dtype is not DType.UNDEFINED
    mode = enum_param(NAME, params, "quantMode", QuantMode, 0)
    return _Variant(
        bool_param(NAME, params, "transposeA", False),
        bool_param(NAME, params, "transposeB", True),
        bool_param(NAME, params, "hasBias", True),
        out_dtype,
        bool_param(NAME, params, "enAccum", False),
        enum_param(NAME, params, "matmulType", MatmulType, 0) is MatmulType.EIN_SUM,
        quantised and mode is QuantMode.PER_TOKEN,
    )


def _dtypes(variant: _Variant) -> list[tuple[DType, ...]]:
    if variant.quantised:
        scales = (F32,) if variant.out_dtype is BF16 or variant.per_token else (U64, I64)
        bias = (I32,) if variant.has_bias else ()
        token = (F32,) if variant.per_token else ()
        return [(I8, I8, *bias, scale, *token) for scale in scales]
    if variant.accumulate:
        return [(F16, F16, F32), (BF16, BF16, F32)]
    if variant.has_bias:
        return [(x, x, bias) for x in (F16, BF16) for bias in (x, F32)]
    return [(F16, F16), (BF16, BF16), (F32, F32)]


def _weight_shape(weight: TensorDesc) -> tuple[int, int, int]:
    """Batch, rows and columns of the stored weight."""
    shape = weight.shape
    if len(shape) == 4:
        return shape[0], shape[2], shape[1] * shape[3]
    return (shape[0] if len(shape) == 3 else 1), shape[-2], shape[-1]


def _check_bias(descs: Sequence[TensorDesc], index: int, batch: int, columns: int) -> None:
    """A row of ``columns``, or one per batch of the weight."""
    shapes: list[tuple[int, ...]] = [(batch, columns)]
    if batch == 1:
        shapes.append((columns,))
    check_shape(NAME, descs, index, *shapes)


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """``[..., M, N]``; with accumulation float32, dequantised ``outDataType``."""
    variant = _variant(params)
    if variant.accumulate and (variant.has_bias or variant.quantised):
        raise refused(NAME, "enAccum excludes hasBias and int8 inputs; switch one off")
    if variant.per_token and variant.has_bias:
        raise refused(NAME, "quantMode per token excludes hasBias; switch one off")
    check_count(NAME, descs, variant.input_count)
    check_dtypes(NAME, descs, _dtypes(variant))
    x, weight = descs[:2]
    if weight.format == FORMAT_FRACTAL_NZ:
        check_rank(NAME, descs, 1, 2, 3, 4)
    else:
        check_rank(NAME, descs, 1, *((3,) if variant.einsum else (2, 3)))
    check_rank(NAME, descs, 0, *((3,) if variant.einsum else (2, 3)))
    if len(x.shape) == 2 and len(weight.shape) == 3:
        raise refused(
            NAME, f"x of {list(x.shape)} has no batch but the weight {list(weight.shape)} has"
        )

    batch, stored_rows, stored_columns = _weight_shape(weight)
    inner, columns = stored_rows, stored_columns
    if variant.transpose_b:
        inner, columns = columns, inner
    if variant.einsum:
        first, x_batch, last = x.shape
        x_rows, x_inner = (last, first) if variant.transpose_a else (first, last)
        shape: tuple[int, ...] = (x_rows, x_batch, columns)
    else:
        *lead, first, last = x.shape
        x_rows, x_inner = (last, first) if variant.transpose_a else (first, last)
        x_batch = lead[0] if lead else 1
        shape = (*lead, x_rows, columns)
    padded = weight.format == FORMAT_FRACTAL_NZ and inner >= x_inner > inner - 32
    if x_inner != inner and not padded:
        raise refused(
            NAME,
            f"x has {x_inner} and the weight {inner} entries along the summed dimension; they "
            "must be equal (see transposeA and transposeB)",
        )
    if batch != x_batch and (batch != 1 or len(weight.shape) == 3 or variant.transpose_a):
        raise refused(
            NAME, f"x has a batch of {x_batch} and the weight of {batch}; make them equal"
        )

    index = 2
    if variant.has_bias:
        _check_bias(descs, index, batch, columns)
        index += 1
    if variant.accumulate:
        check_shape(NAME, descs, index, shape)
        return (TensorDesc(F32, shape, FORMAT_ND),)
    if not variant.quantised:
        return (TensorDesc(x.dtype, shape, x.format),)
    if variant.per_token:
        check_shape(NAME, descs, index, (columns,))
        check_shape(NAME, descs, index + 1, (x_rows,))
    else:
        _check_bias(descs, index, batch, columns)
    return (TensorDesc(variant.out_dtype, shape, x.format),)


def _operands(inputs: Sequence[Tensor | None], variant: _Variant) -> tuple[Tensor, Tensor]:
    """x as ``[..., M, K]`` and weight as ``[..., K, N]``; for einsum with the batch leading."""
    x, weight = tensor_at(NAME, inputs, 0), tensor_at(NAME, inputs, 1)
    if weight.dim() == 4:
        weight = nz_to_nd(weight)
        if weight.shape[0] == 1 and x.dim() == 2:
            weight = weight[0]
    if variant.transpose_b:
        weight = weight.transpose(-1, -2)
    if variant.einsum:
        x = x.permute(1, 2, 0) if variant.transpose_a else x.transpose(0, 1)
    elif variant.transpose_a:
        x = x.transpose(-1, -2)
    return x, weight[..., : x.shape[-1], :]


def _rows(vector: Tensor, product: Tensor) -> Tensor:
    """``[N]``, ``[1, N]`` or ``[b, N]`` so that it broadcasts with ``[..., M, N]``."""
    if product.dim() == 3 and vector.dim() == 2 and vector.shape[0] > 1:
        return vector.unsqueeze(1)
    return vector.reshape(-1) if vector.dim() < 2 or vector.shape[0] == 1 else vector


def _dequantised(x: Tensor, weight: Tensor, extra: Sequence[Tensor], variant: _Variant) -> Tensor:
    """``(x . w + bias) * scale[n] * token_scale[m]`` in float32."""
    rest = list(extra)
    product = integer_matmul(x, weight)
    if variant.has_bias:
        product = product + _rows(rest.pop(0), product)
    y = product.float() * _rows(matrix_unit_scale(rest.pop(0)), product)
    return y * rest.pop(0).float().unsqueeze(-1) if variant.per_token else y


def _float_product(
    x: Tensor, weight: Tensor, extra: Sequence[Tensor], variant: _Variant, arithmetic: Arithmetic
) -> Tensor:
    product = wide_matmul(x, weight, arithmetic)
    if not variant.has_bias:
        return product
    bias = _rows(extra[0], product)
    if bias.dtype == torch.bfloat16:
        # The kernel rounds the product before it adds a bfloat16 bias.
        return (product.to(torch.bfloat16) + bias).to(product.dtype)
    return product + arithmetic.widen(bias)


def _kernel(params: Params) -> KernelArithmetic:
    """A bias is added by a second kernel, to the product in the output's 16 bits."""
    return KernelArithmetic(products=True, roundings=int(bool(params.get("hasBias", True))))


@golden_op(NAME, infer_shape=infer_shape, kernel=_kernel)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``op(x) . op(weight)`` with bias, accumulation or dequantisation.

    Inputs: x ``[M, K]`` or ``[b, M, K]``; weight ``[K, N]`` or ``[N, K]`` (transposeB), batched or
    not, a 4-D one in NZ blocks; then bias, or float32 accum (overwritten), or for int8 the int32
    bias, the dequantisation scale and the float32 token scale, each where enabled. EIN_SUM is
    ``mbk, bkn -> mbn``.
    """
    variant = _variant(params)
    x, weight = _operands(inputs, variant)
    extra = [tensor_at(NAME, inputs, index) for index in range(2, variant.input_count)]
    if variant.quantised:
        y = _dequantised(x, weight, extra, variant)
        if variant.einsum:
            y = y.transpose(0, 1)
        return Result((arithmetic.round(y, torch_dtype(variant.out_dtype)).contiguous(),))
    y = _float_product(x, weight, extra, variant, arithmetic)
    if variant.einsum:
        y = y.transpose(0, 1).contiguous()
    if variant.accumulate:
        total = (y + arithmetic.widen(extra[0])).to(torch.float32)
        return Result((total,), {2: total})
    return Result((arithmetic.round(y, x.dtype),))
