"""Sort: the largest values along the last dimension and where they were."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    F32,
    I32,
    check_count,
    check_dtypes,
    replace,
    same,
)
from ait_llm.opcheck.golden.support import ints_param, refused, tensor_at

NAME = "SortOperation"


def _count(params: Params, shape: Sequence[int]) -> int:
    number = ints_param(NAME, params, "num")
    length = shape[-1] if shape else 0
    if len(number) != 1 or not 0 < number[0] <= length:
        raise refused(NAME, f"parameter num is {list(number)}; give one number of 1 to {length}")
    return number[0]


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """``[..., num]`` values, and int32 indices."""
    check_count(NAME, descs, 1)
    check_dtypes(NAME, descs, same(F16, BF16, F32, count=1))
    x = descs[0]
    shape = (*x.shape[:-1], _count(params, x.shape))
    return replace(x, shape), replace(x, shape, I32)


def _accepts(inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], params: Params) -> bool:
    """Equal values may come in any order: values are the golden ones, and those at the indices."""
    x, (values, indices) = tensor_at(NAME, inputs, 0), outputs
    count = _count(params, x.shape)
    places = indices.to(torch.int64)
    if values.shape != places.shape or values.shape != (*x.shape[:-1], count):
        return False
    if bool((places < 0).any()) or bool((places >= x.shape[-1]).any()):
        return False
    ordered = torch.sort(places, dim=-1).values
    distinct = not bool((ordered.diff(dim=-1) == 0).any())
    largest = torch.sort(x, dim=-1, descending=True, stable=True).values[..., :count]
    return distinct and torch.equal(values, largest) and torch.equal(x.gather(-1, places), values)


@golden_op(NAME, infer_shape=infer_shape, accepts=_accepts, kernel=MOVES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """The ``num`` largest values, descending; of equal ones the first comes first."""
    x = tensor_at(NAME, inputs, 0)
    count = _count(params, x.shape)
    values, indices = torch.sort(x, dim=-1, descending=True, stable=True)
    return Result(
        (
            values[..., :count].contiguous(),
            indices[..., :count].to(torch.int32).contiguous(),
        )
    )
