"""Checks and shape arithmetic shared by the shape inference of the operators.

Which dtypes an operator takes are the combinations of the 910B operator table.
"""

from __future__ import annotations

from collections.abc import Sequence

from ait_llm.core import DType, TensorDesc
from ait_llm.opcheck.golden.base import Refusal
from ait_llm.opcheck.golden.support import refused

F16, BF16, F32 = DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32
I8, I32, I64 = DType.INT8, DType.INT32, DType.INT64
U32, U64 = DType.UINT32, DType.UINT64

Combos = Sequence[Sequence[DType]]


def same(*dtypes: DType, count: int) -> list[tuple[DType, ...]]:
    """Combinations in which all ``count`` inputs have one of ``dtypes``, the same for all."""
    return [(dtype,) * count for dtype in dtypes]


def check_count(op: str, descs: Sequence[TensorDesc], *counts: int) -> None:
    """Refuse another number of inputs than one of ``counts``."""
    if len(descs) not in counts:
        wanted = " or ".join(map(str, counts))
        raise refused(
            op,
            f"got {len(descs)} inputs; with these parameters it takes {wanted}",
            Refusal.TENSOR_COUNT,
        )


def check_dtypes(op: str, descs: Sequence[TensorDesc], combos: Combos) -> None:
    """Refuse dtypes of the leading inputs that are no row of the operator table."""
    got = tuple(desc.dtype for desc in descs[: len(combos[0])])
    if got not in {tuple(row) for row in combos}:
        rows = "; ".join(", ".join(dtype.label for dtype in row) for row in combos)
        raise refused(
            op,
            f"inputs have dtypes {', '.join(d.label for d in got)}; it takes {rows}",
            Refusal.OPERATOR_TABLE,
        )


def check_rank(op: str, descs: Sequence[TensorDesc], index: int, *ranks: int) -> None:
    """Refuse an input whose rank is none of ``ranks``."""
    shape = descs[index].shape
    if len(shape) not in ranks:
        wanted = " or ".join(map(str, ranks))
        raise refused(
            op,
            f"input {index} has shape {list(shape)}; it takes {wanted} dimensions",
            Refusal.DIM_COUNT,
        )


def check_shape(op: str, descs: Sequence[TensorDesc], index: int, *shapes: Sequence[int]) -> None:
    """Refuse an input whose shape is none of ``shapes``."""
    got = descs[index].shape
    if got not in {tuple(shape) for shape in shapes}:
        wanted = " or ".join(str(list(shape)) for shape in shapes)
        raise refused(
            op, f"input {index} has shape {list(got)}; with the other inputs it must be {wanted}"
        )


def check_last_dim(op: str, descs: Sequence[TensorDesc], multiple: int) -> None:
    """Refuse a first input whose last dimension is not a multiple."""
    shape = descs[0].shape
    if not shape or shape[-1] % multiple:
        raise refused(
            op,
            f"input 0 has shape {list(shape)}; its last dimension must be a multiple of {multiple}",
        )


def axis_of(op: str, name: str, axis: int, rank: int) -> int:
    """A possibly negative axis as one in ``[0, rank)``.

    Raises:
        OperationError: the axis is out of range.
    """
    if not -rank <= axis < rank:
        raise refused(op, f"parameter {name} is {axis}; the tensor has {rank} dimensions")
    return axis % rank


def broadcast(op: str, first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    """The shape that two shapes broadcast to, aligned at the last dimension.

    Raises:
        OperationError: they do not broadcast.
    """
    rank = max(len(first), len(second))
    left = (1,) * (rank - len(first)) + tuple(first)
    right = (1,) * (rank - len(second)) + tuple(second)
    if any(a != b and 1 not in (a, b) for a, b in zip(left, right, strict=True)):
        raise refused(
            op, f"shapes {list(first)} and {list(second)} do not broadcast; make them equal or 1"
        )
    return tuple(b if a == 1 else a for a, b in zip(left, right, strict=True))


def replace(
    desc: TensorDesc, shape: Sequence[int] | None = None, dtype: DType | None = None
) -> TensorDesc:
    """The description with another shape or dtype; the format stays."""
    return TensorDesc(
        dtype or desc.dtype, desc.shape if shape is None else tuple(shape), desc.format
    )
