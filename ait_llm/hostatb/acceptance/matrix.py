"""Sizes of the operands of matrix products, as the library reads them from a description.

A left operand is ``[m, k]`` or ``[batch, m, k]``; a weight is ``[k, n]``, ``[batch, k, n]``, or
``[batch, n / 16, k, 16]`` in blocks. A number of dimensions that has no such reading gives 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from ait_llm.core import TensorDesc
from ait_llm.hostatb.acceptance.base import require_input
from ait_llm.opcheck.golden.base import Refusal


def require_ranks(
    descs: Sequence[TensorDesc], ranks: Sequence[int], status: Refusal = Refusal.DIM_COUNT
) -> None:
    """Refuse the first of the leading inputs that has another number of dimensions.

    Raises:
        RefusedError: there is one.
    """
    for index, rank in enumerate(ranks):
        require_rank(index, descs[index], rank, status=status)


def require_rank(
    index: int, desc: TensorDesc, *ranks: int, status: Refusal = Refusal.DIM_COUNT
) -> None:
    """Refuse an input whose number of dimensions is none of ``ranks``.

    Raises:
        RefusedError: it is none.
    """
    wanted = "ndim " + ", ".join(map(str, ranks))
    require_input(len(desc.shape) in ranks, index, desc, wanted, status)


def require_shape(index: int, desc: TensorDesc, *wanted: int) -> None:
    """Refuse an input whose dimensions, all present, are not those wanted.

    Raises:
        RefusedError: they are not.
    """
    require_input(desc.shape == wanted, index, desc, str(list(wanted)))


def batch_of(desc: TensorDesc, einsum: bool = False) -> int:
    """Matrices in an operand; in a sum of products by batch the middle dimension counts them."""
    if einsum:
        return desc.shape[1] if len(desc.shape) == 3 else 0
    return {2: 1, 3: desc.shape[0], 4: desc.shape[0]}.get(len(desc.shape), 0)


def rows_of(x: TensorDesc, transposed: bool = False, einsum: bool = False) -> int:
    """Rows m of a left operand."""
    if einsum:
        return x.shape[0] if len(x.shape) == 3 else 0
    return x.shape[-1 if transposed else -2] if len(x.shape) in (2, 3) else 0


def depth_of(x: TensorDesc, transposed: bool = False) -> int:
    """Entries k of a left operand along the summed dimension."""
    return x.shape[-2 if transposed else -1] if len(x.shape) in (2, 3) else 0


def _stored(weight: TensorDesc) -> tuple[int, int]:
    shape = weight.shape
    if len(shape) == 4:
        return shape[2], shape[1] * shape[3]
    return (shape[-2], shape[-1]) if len(shape) in (2, 3) else (0, 0)


def weight_depth(weight: TensorDesc, transposed: bool) -> int:
    """Entries k of a weight along the summed dimension."""
    return _stored(weight)[1 if transposed else 0]


def weight_columns(weight: TensorDesc, transposed: bool) -> int:
    """Columns n of the product."""
    return _stored(weight)[0 if transposed else 1]
