"""SetValue: a box of a tensor overwritten."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.base import MOVES, Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    F32,
    I32,
    I64,
    check_count,
    check_dtypes,
    same,
)
from ait_llm.opcheck.golden.support import ints_param, refused, tensor_at

NAME = "SetValueOperation"


def _box(params: Params, target: Sequence[int], source: Sequence[int]) -> list[slice]:
    starts, ends, strides = (ints_param(NAME, params, key) for key in ("starts", "ends", "strides"))
    if not len(starts) == len(ends) == len(strides) == len(target) == len(source):
        raise refused(
            NAME,
            f"starts {list(starts)}, ends {list(ends)} and strides {list(strides)} need one entry "
            f"for each dimension of {list(target)} and {list(source)}",
        )
    if any(stride != 1 for stride in strides):
        raise refused(NAME, f"parameter strides is {list(strides)}; it takes ones only")
    for start, end, length, size in zip(starts, ends, target, source, strict=True):
        if start < 0 or end > length or end - start != size:
            raise refused(
                NAME,
                f"{start} to {end} of a dimension of {length} entries does not take {size} entries",
            )
    return [slice(start, end) for start, end in zip(starts, ends, strict=True)]


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """No formal output.

    The library takes a source that is smaller in exactly one dimension besides the first.
    """
    check_count(NAME, descs, 2)
    check_dtypes(NAME, descs, same(F16, F32, I32, I64, BF16, count=2))
    target, source = descs[0].shape, descs[1].shape
    _box(params, target, source)
    smaller = sum(a != b for a, b in zip(target[1:], source[1:], strict=True))
    if smaller != 1:
        raise refused(
            NAME,
            f"source {list(source)} and target {list(target)} differ in {smaller} dimensions "
            "besides the first; the library takes exactly one",
        )
    return ()


@golden_op(NAME, infer_shape=infer_shape, kernel=MOVES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """``target[starts:ends] = source`` in every dimension; input 0 is overwritten."""
    target, source = tensor_at(NAME, inputs, 0), tensor_at(NAME, inputs, 1)
    changed = target.clone()
    changed[tuple(_box(params, target.shape, source.shape))] = source
    return Result((), {0: changed})
