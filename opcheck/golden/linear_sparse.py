"""LinearSparse: dequantised product with a compressed weight."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import FORMAT_ND, TensorDesc
from ait_llm.opcheck.golden.base import (
    Arithmetic,
    Params,
    Refusal,
    Result,
    UnverifiableError,
    golden_op,
)
from ait_llm.opcheck.golden.layout import nz_to_nd
from ait_llm.opcheck.golden.products import integer_matmul
from ait_llm.opcheck.golden.quantise import matrix_unit_scale
from ait_llm.opcheck.golden.shapes import (
    F16,
    I8,
    I32,
    I64,
    U64,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
)
from ait_llm.opcheck.golden.support import bool_param, refused, tensor_at

NAME = "LinearSparseOperation"


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """float16 ``[..., M, N]`` with N from the bias: the weight's length tells nothing."""
    check_count(NAME, descs, 5)
    check_dtypes(NAME, descs, [(I8, I8, I32, scale, I8) for scale in (U64, I64)])
    if bool_param(NAME, params, "transposeA", False) or not bool_param(
        NAME, params, "transposeB", True
    ):
        raise refused(NAME, "it takes transposeA false and transposeB true", Refusal.PARAM)
    check_rank(NAME, descs, 0, 2, 3)
    columns = descs[2].shape[-1] if descs[2].shape else 0
    check_shape(NAME, descs, 3, descs[2].shape, (columns,), (1, columns))
    return (TensorDesc(F16, (*descs[0].shape[:-1], columns), FORMAT_ND),)


@golden_op(NAME, infer_shape=infer_shape)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``(x . weight + bias) * scale`` as float16, if the weight is not compressed.

    Inputs: int8 x ``[..., K]``; int8 weight, ``N * K`` entries as ``[N, K]`` or in NZ blocks where
    it is the original one; int32 bias ``[N]``; scale ``[N]``, float32 bits in 64-bit integers;
    index of the compression.

    Raises:
        UnverifiableError: the weight is compressed; its format is not published.
    """
    x, weight = tensor_at(NAME, inputs, 0), tensor_at(NAME, inputs, 1)
    bias, scale = tensor_at(NAME, inputs, 2).reshape(-1), tensor_at(NAME, inputs, 3).reshape(-1)
    inner, columns = x.shape[-1], len(bias)
    if weight.numel() != inner * columns:
        raise UnverifiableError(
            f"{NAME}: the weight is compressed to {weight.numel()} of {inner * columns} entries in "
            "a format that is not published; give the original weight"
        )
    matrix = nz_to_nd(weight) if weight.dim() == 4 else weight
    product = integer_matmul(x, matrix.reshape(columns, inner).T) + bias
    y = product.float() * matrix_unit_scale(scale)
    return Result((arithmetic.round(y, torch.float16),))
