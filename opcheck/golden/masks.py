"""What attention adds to scores: mask tensors in all their layouts, and masks that are generated.

A mask is asked for a block of rows and keys, so that no mask larger than the block need exist.
Row and key numbers count from the first query and the first key of one sequence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ait_llm.opcheck.golden.layout import nz_to_nd
from ait_llm.opcheck.golden.support import refused

# What 16-bit kernels multiply a mask of ones with; -inf would make NaN of 0.
MASKED = -3e38

Bias = Callable[[int, int, int, int], Tensor]


@dataclass(frozen=True, slots=True)
class Mask:
    """What is added to the scores of one sequence.

    Attributes:
        bias: called with first and last row and first and last key (exclusive), gives a tensor
            that broadcasts to ``[heads, rows, keys]``.
        diagonal: if given, row i sees key j only if ``j <= i + diagonal``.
        window: if given beside ``diagonal``, row i sees at most the last ``window`` such keys.
    """

    bias: Bias | None = None
    diagonal: int | None = None
    window: int | None = None

    def keys_seen(self, first: int, last: int, keys: int) -> tuple[int, int]:
        """The range of keys that any of the rows ``[first, last)`` may see."""
        if self.diagonal is None:
            return 0, keys
        stop = min(max(last + self.diagonal, 0), keys)
        if self.window is None:
            return 0, stop
        return min(max(first + self.diagonal - self.window + 1, 0), stop), stop

    def additive(
        self, rows: tuple[int, int], keys: tuple[int, int], dtype: torch.dtype
    ) -> Tensor | None:
        """What to add to a block of scores, ``[1 or heads, rows, keys]``; None for nothing."""
        bias = None if self.bias is None else self.bias(*rows, *keys).to(dtype)
        if self.diagonal is None or self._all_seen(rows, keys):
            return bias
        row = torch.arange(*rows).unsqueeze(1) + self.diagonal
        key = torch.arange(*keys)
        hidden = key > row
        if self.window is not None:
            hidden |= key <= row - self.window
        if bias is None:
            bias = torch.zeros(1, *hidden.shape, dtype=dtype)
        return bias.masked_fill(hidden, -math.inf)

    def _all_seen(self, rows: tuple[int, int], keys: tuple[int, int]) -> bool:
        if self.diagonal is None:
            return True
        below = keys[1] - 1 <= rows[0] + self.diagonal
        return below and (
            self.window is None or keys[0] > rows[1] - 1 + self.diagonal - self.window
        )


def unblocked(mask: Tensor, heads: int, keys: int) -> Tensor:
    """An NZ mask ``[X, keys / 16, rows, 16]`` as ``[X, rows, keys]``; an ND mask as it is."""
    if mask.dim() == 4 and mask.shape[3] == 16 and (mask.shape[1] != heads or keys > 16):
        return nz_to_nd(mask)
    return mask


def split_heads(mask: Tensor, heads: int, batch: int) -> Tensor:
    """A mask ``[B * H, rows, keys]`` as ``[B, H, rows, keys]``; any other as it is."""
    if mask.dim() == 3 and mask.shape[0] == heads * batch:
        return mask.reshape(batch, heads, *mask.shape[1:])
    return mask


def effective(mask: Tensor, coefficient: float) -> Tensor:
    """The mask times its coefficient.

    Kernels that multiply with -3e38 expect ones where masked. A model that passes negative values
    means them as they are, so they are not multiplied. Boolean and int8 masks hold ones.
    """
    if not mask.dtype.is_floating_point:
        return mask.to(torch.float32) * MASKED
    if coefficient == 1.0 or bool((mask < 0).any()):
        return mask
    return mask.to(torch.float32) * coefficient


def tensor_mask(
    op: str,
    mask: Tensor,
    *,
    batch: int,
    per_head: bool,
    first_row: int,
    rows: int,
    keys: int,
) -> Bias:
    """The part of a mask tensor that concerns one sequence.

    Args:
        op: operator name, for messages.
        mask: ``[S, S]``; ``[B, S, S]``, ``[B, 1, S]`` or per head ``[H, S, S]``; ``[B, H, S, S]``
            or ``[B, H, 1, S]``. A leading dimension of 1 serves every batch entry.
        batch: number of the sequence.
        per_head: a 3-D mask has heads, not batch entries.
        first_row: row of the mask for the first query.
        rows: queries.
        keys: keys.

    Raises:
        OperationError: the mask has no such batch entry, or fewer rows or keys.
    """
    if mask.dim() == 2:
        part = mask.unsqueeze(0)
    elif mask.dim() == 3 and per_head:
        part = mask
    elif mask.dim() in (3, 4):
        if mask.shape[0] != 1 and batch >= mask.shape[0]:
            raise refused(op, f"mask {list(mask.shape)} has no entry for sequence {batch}")
        part = mask[batch if mask.shape[0] > 1 else 0]
        part = part if part.dim() == 3 else part.unsqueeze(0)
    else:
        raise refused(op, f"mask has shape {list(mask.shape)}; it takes 2 to 4 dimensions")
    single_row = part.shape[1] == 1
    if part.shape[2] < keys or (not single_row and part.shape[1] < first_row + rows):
        raise refused(
            op,
            f"mask {list(mask.shape)} is too small for rows {first_row} to {first_row + rows} "
            f"and {keys} keys of sequence {batch}",
        )

    def bias(row0: int, row1: int, key0: int, key1: int) -> Tensor:
        if single_row:
            return part[:, :, key0:key1]
        return part[:, first_row + row0 : first_row + row1, key0:key1]

    return bias


def tiled_alibi(op: str, mask: Tensor, *, first_row: int, rows: int, keys: int) -> Bias:
    """Compressed ALiBi ``[H, S, 128]``, with the slopes multiplied in.

    Column tile n0 of row i is row ``i - n0`` of the tensor; keys above the diagonal are hidden by
    the mask's diagonal, so rows below zero are never used.

    Raises:
        OperationError: the tensor has fewer rows than the sequence.
    """
    width = mask.shape[2]
    if mask.shape[1] < first_row + rows:
        raise refused(
            op, f"mask {list(mask.shape)} is too small for {first_row + rows} rows and {keys} keys"
        )

    def bias(row0: int, row1: int, key0: int, key1: int) -> Tensor:
        row = torch.arange(row0, row1).unsqueeze(1) + first_row
        key = torch.arange(key0, key1)
        tile = key - key % width
        return mask[:, (row - tile).clamp(min=0), key % width]

    return bias


def slope_bias(
    slopes: Tensor, distance: Callable[[Tensor, Tensor], Tensor], first_row: int
) -> Bias:
    """``slopes[h] * distance(i, j)`` for positions i of rows and j of keys.

    Slopes are taken with the sign they are dumped with.
    """
    factor = slopes.reshape(-1, 1, 1).float()

    def bias(row0: int, row1: int, key0: int, key1: int) -> Tensor:
        row = torch.arange(row0, row1).unsqueeze(1) + first_row
        return factor * distance(row.float(), torch.arange(key0, key1).float())

    return bias


def linear_distance(row: Tensor, key: Tensor) -> Tensor:
    """``i - j``."""
    return row - key


def root_distance(row: Tensor, key: Tensor) -> Tensor:
    """``sqrt(i - j)``, 0 above the diagonal, where keys are hidden."""
    return (row - key).clamp(min=0).sqrt()


def key_position(row: Tensor, key: Tensor) -> Tensor:
    """``j``."""
    return key.expand(len(row), -1)


def key_bias(values: Tensor) -> Bias:
    """The same values for every row, one per key."""

    def bias(row0: int, row1: int, key0: int, key1: int) -> Tensor:
        return values[key0:key1].reshape(1, 1, -1)

    return bias


def total(first: Bias | None, second: Bias | None) -> Bias | None:
    """The sum of two biases, either of which may be absent."""
    if first is None or second is None:
        return first or second
    left, right = first, second

    def bias(row0: int, row1: int, key0: int, key1: int) -> Tensor:
        return left(row0, row1, key0, key1) + right(row0, row1, key0, key1)

    return bias
