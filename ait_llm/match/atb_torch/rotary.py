"""Tables of cosines and sines, which come in two orders.

Each angle stands twice in a row: in both halves (``a b c a b c``) or side by side
(``a a b b c c``). A table shows its own order, so nothing of the other side is needed to know it.
"""

from __future__ import annotations

import numpy as np

from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.match.atb_torch.describe import width_of
from ait_llm.match.atb_torch.shapes import Columns

_HALVES = 2  # coefficient of ATB's rotary operation for angles in both halves


def table_columns(
    atb: Tensor, torch: Tensor, coefficient: int
) -> tuple[Columns | None, Columns | None] | None:
    """Which columns of two tables to compare; None if they have different widths.

    Args:
        atb, torch: ``[…, dim]``.
        coefficient: of the ATB operation, for a table that does not show its order.
    """
    width = width_of(atb)
    if not width or width != width_of(torch):
        return None
    assumed = "halves" if coefficient == _HALVES else "pairs"
    orders = _order(atb, assumed), _order(torch, "halves")
    if orders[0] == orders[1] or "either" in orders:
        return None, None
    left, right = (
        Columns(0, 1, width, (width // 2, 2, 1))
        if order == "pairs"
        else Columns(0, width // 2, width)
        for order in orders
    )
    return left, right


def _order(tensor: Tensor, assumed: str) -> str:
    """``halves``, ``pairs``, or ``either`` for a table that has both orders."""
    try:
        rows = np.asarray(tensor.nd(), np.float64).reshape(-1, width_of(tensor))
    except AitError:
        return assumed
    half = rows.shape[1] // 2
    if rows.shape[1] % 2:
        return assumed
    in_halves = np.array_equal(rows[:, :half], rows[:, half:])
    in_pairs = np.array_equal(rows[:, ::2], rows[:, 1::2])
    if in_halves and in_pairs:
        return "either"
    if in_halves == in_pairs:
        return assumed
    return "halves" if in_halves else "pairs"
