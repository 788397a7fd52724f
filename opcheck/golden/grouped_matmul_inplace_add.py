"""GroupedMatmulInplaceAdd: products of groups along the summed dimension, accumulated."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import PRODUCTS, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    F32,
    I64,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
)
from ait_llm.opcheck.golden.support import bool_param, refused, tensor_at

NAME = "GroupedMatmulInplaceAddOperation"
_MAX_GROUPS, _MAX_SIZE = 128, 65535


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """The accumulator keeps its description."""
    check_count(NAME, descs, 4)
    check_dtypes(NAME, descs, [(x, x, I64, F32) for x in (F16, BF16)])
    for index, rank in enumerate((2, 2, 1, 2)):
        check_rank(NAME, descs, index, rank)
    rows, inner = descs[0].shape
    if bool_param(NAME, params, "transposeA", False):
        rows, inner = inner, rows
    stored, columns = descs[1].shape
    if bool_param(NAME, params, "transposeB", False):
        stored, columns = columns, stored
    if stored != inner:
        raise refused(NAME, f"x has {inner} and the weight {stored} entries along the summed one")
    groups = descs[2].shape[0]
    if not 1 <= groups <= _MAX_GROUPS or not (1 <= rows <= _MAX_SIZE and 1 <= columns <= _MAX_SIZE):
        raise refused(
            NAME,
            f"{groups} groups of {rows} by {columns}; it takes 1 to {_MAX_GROUPS} groups of at "
            f"most {_MAX_SIZE}",
        )
    check_shape(NAME, descs, 3, (groups * rows, columns), (rows, groups * columns))
    return (descs[3],)


@golden_op(NAME, infer_shape=infer_shape, kernel=PRODUCTS)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``out[g] += x[:, s:e] . weight[s:e]`` with s and e the ends of groups g - 1 and g.

    Inputs: x ``[m, K]`` (transposeA ``[K, m]``); weight ``[K, n]`` (transposeB ``[n, K]``); group
    ends ``[g]``; float32 accumulator ``[g * m, n]``, which is overwritten.
    """
    x, weight = (arithmetic.widen(tensor_at(NAME, inputs, index)) for index in (0, 1))
    ends, accumulator = tensor_at(NAME, inputs, 2).reshape(-1), tensor_at(NAME, inputs, 3)
    if bool_param(NAME, params, "transposeA", False):
        x = x.T
    if bool_param(NAME, params, "transposeB", False):
        weight = weight.T
    starts = torch.cat([ends.new_zeros(1), ends[:-1]])
    if bool((ends < starts).any()) or int(ends.max()) > x.shape[1]:
        raise refused(NAME, f"group ends {ends.tolist()} do not ascend to at most {x.shape[1]}")
    products = [
        x[:, start:end] @ weight[start:end]
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    total = arithmetic.widen(accumulator) + torch.stack(products).reshape(accumulator.shape)
    rounded = total.to(torch.float32)
    return Result((rounded,), {3: rounded})
