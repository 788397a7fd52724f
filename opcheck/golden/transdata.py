"""Transdata: between row-major and blocked storage."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from torch import Tensor

from ait_llm.core import FORMAT_FRACTAL_NZ, FORMAT_ND, TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.layout import ROW_BLOCK, nd_to_nz, nz_to_nd
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    I8,
    check_count,
    check_dtypes,
    check_rank,
    same,
)
from ait_llm.opcheck.golden.support import enum_param, ints_param, refused, tensor_at

NAME = "TransdataOperation"


class TransdataType(IntEnum):
    """Values of ``transdataType``."""

    NZ_TO_ND = 1
    ND_TO_NZ = 2


def _crops(params: Params, rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns to keep of padded ones; 0 keeps all."""
    crops = ints_param(NAME, params, "outCrops") or (0, 0)
    if len(crops) != 2 or not (0 <= crops[0] <= rows and 0 <= crops[1] <= columns):
        raise refused(
            NAME, f"parameter outCrops is {list(crops)}; it takes at most [{rows}, {columns}]"
        )
    return crops[0] or rows, crops[1] or columns


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """``[b, n1, m, n0]`` in NZ format, or ``[b, m, n]`` in ND format."""
    check_count(NAME, descs, 1)
    x = descs[0]
    if enum_param(NAME, params, "transdataType", TransdataType, 0) is TransdataType.ND_TO_NZ:
        check_dtypes(NAME, descs, same(F16, I8, BF16, count=1))
        check_rank(NAME, descs, 0, 2, 3)
        batch, (rows, columns) = (x.shape[0] if len(x.shape) == 3 else 1), x.shape[-2:]
        block = 32 if x.dtype is I8 else 16
        shape = (batch, -(-columns // block), -(-rows // ROW_BLOCK) * ROW_BLOCK, block)
        return (TensorDesc(x.dtype, shape, FORMAT_FRACTAL_NZ),)
    check_dtypes(NAME, descs, same(F16, BF16, count=1))
    check_rank(NAME, descs, 0, 4)
    batch, outer, rows, block = x.shape
    return (TensorDesc(x.dtype, (batch, *_crops(params, rows, outer * block)), FORMAT_ND),)


@golden_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """The same matrix in the other layout; padding is zero one way and cropped the other."""
    x = tensor_at(NAME, inputs, 0)
    if enum_param(NAME, params, "transdataType", TransdataType, 0) is TransdataType.ND_TO_NZ:
        return Result((nd_to_nz(x if x.dim() == 3 else x.unsqueeze(0)),))
    matrix = nz_to_nd(x)
    rows, columns = _crops(params, *matrix.shape[1:])
    return Result((matrix[:, :rows, :columns].contiguous(),))
