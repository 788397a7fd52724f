"""AsStrided: a tensor viewed with other sizes and strides."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import F16, I64, check_count, check_dtypes, same
from ait_llm.opcheck.golden.support import ints_param, refused, tensor_at

NAME = "AsStridedOperation"


def _view(params: Params, elements: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Sizes, strides and offset, in elements."""
    size, stride, offset = (ints_param(NAME, params, key) for key in ("size", "stride", "offset"))
    if not size or len(size) != len(stride) or len(offset) != 1:
        raise refused(
            NAME,
            f"size {list(size)}, stride {list(stride)} and offset {list(offset)} need a stride "
            "for each size, and one offset",
        )
    last = offset[0] + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if min(size) < 1 or min(stride) < 0 or offset[0] < 0 or last >= elements:
        raise refused(
            NAME,
            f"size {list(size)}, stride {list(stride)} and offset {offset[0]} reach outside "
            f"{elements} elements",
        )
    return size, stride, offset[0]


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """``size``, ND."""
    check_count(NAME, descs, 1)
    check_dtypes(NAME, descs, same(F16, I64, count=1))
    return (TensorDesc(descs[0].dtype, _view(params, descs[0].elements)[0]),)


@golden_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``out[i, j, ...] = x_flat[offset + i * stride[0] + j * stride[1] + ...]``."""
    x = tensor_at(NAME, inputs, 0)
    viewed = torch.as_strided(x.contiguous().reshape(-1), *_view(params, x.numel()))
    return Result((viewed.contiguous().clone(),))
