"""What the collective operators share: one group of ranks, its tensors and parameters."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import DType, TensorDesc
from ait_llm.opcheck.golden.base import KernelArithmetic, Params
from ait_llm.opcheck.golden.shapes import BF16, F16, F32, I8, I32, I64, check_dtypes
from ait_llm.opcheck.golden.support import int_param, ints_param, refused, tensor_at

MOVED = (F16, F32, I8, DType.INT16, I32, I64, BF16)


def rank_size(op: str, params: Params) -> int:
    """Ranks of the group, at least 1."""
    return max(1, int_param(op, params, "rankSize", 0))


def reduction_kernel(params: Params) -> KernelArithmetic:
    """Ranks may add up one after the other in the tensors' own 16 bits.

    Of ``rankSize - 1`` sums the last is the output. Source: float16 sums of R ranks differ by up to
    R spacings with the order of the ranks; sums of int8 are kept in float32.
    """
    if params.get("quantType", 0):
        return KernelArithmetic()
    return KernelArithmetic(roundings=max(0, int(params.get("rankSize", 0)) - 2))


def check_moved(op: str, descs: Sequence[TensorDesc], *, without: Sequence[DType] = ()) -> None:
    """Refuse a first input of a dtype that is not moved between ranks."""
    check_dtypes(op, descs, [(dtype,) for dtype in MOVED if dtype not in without])


def of_all_ranks(
    op: str,
    inputs: Sequence[Sequence[Tensor | None]],
    params: Sequence[Params],
    *,
    same_shape: bool = True,
) -> list[Tensor]:
    """The first input of every rank, in rank order.

    Raises:
        OperationError: ranks are missing, or their tensors or sizes of the group differ.
    """
    tensors = [tensor_at(op, given, 0) for given in inputs]
    sizes = {rank_size(op, own) for own in params}
    if sizes != {len(tensors)}:
        raise refused(
            op,
            f"got tensors of {len(tensors)} ranks; their parameters say rankSize "
            f"{', '.join(map(str, sorted(sizes)))}",
        )
    kinds = {(t.dtype, tuple(t.shape) if same_shape else ()) for t in tensors}
    if len(kinds) > 1:
        shapes = "; ".join(f"{t.dtype} {list(t.shape)}" for t in tensors)
        raise refused(op, f"ranks have different tensors: {shapes}; they must be equal")
    return tensors


def reduced(op: str, tensors: Sequence[Tensor], how: str) -> Tensor:
    """Tensors of all ranks reduced element by element, in their own dtype."""
    stacked = torch.stack(list(tensors))
    if how == "sum":
        return stacked.sum(dim=0, dtype=stacked.dtype)
    if how == "prod":
        return stacked.prod(dim=0, dtype=stacked.dtype)
    if how == "max":
        return stacked.amax(dim=0)
    if how == "min":
        return stacked.amin(dim=0)
    raise refused(op, f"the reduction is {how!r}; it takes sum, prod, max or min")


def counts(
    op: str, params: Params, key: str, size: int, tensor: Tensor | None = None
) -> tuple[int, ...]:
    """Element counts or positions per rank, from a tensor or else from the parameters.

    Raises:
        OperationError: there is not one per rank, or one is negative.
    """
    found = ints_param(op, params, key) if tensor is None else tuple(tensor.reshape(-1).tolist())
    if len(found) != size or any(count < 0 for count in found):
        raise refused(
            op, f"{key} is {list(found)}; give {size} numbers, one per rank, none below 0"
        )
    return found


def piece(op: str, flat: Tensor, start: int, count: int, what: str) -> Tensor:
    """``count`` elements of a flat tensor from ``start``.

    Raises:
        OperationError: the tensor is shorter.
    """
    if start + count > flat.numel():
        raise refused(
            op, f"{what} takes elements {start} to {start + count} of {flat.numel()}; too many"
        )
    return flat[start : start + count]
