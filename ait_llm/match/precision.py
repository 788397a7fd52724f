"""Which matches lie behind an int8 matrix product that only one side has.

What follows such a product carries the rounding of quantisation, whatever the type of its own
elements, and must be judged by that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ait_llm.core import DType, TensorRecord
from ait_llm.match.model import Match, Unmatched

_INTEGERS = (DType.INT8, DType.INT4)
_PRODUCTS = ("linear", "matmul")


def mark_quantised(found: Sequence[Match | Unmatched]) -> list[Match | Unmatched]:
    """Set ``Match.quantised`` from the first int8 product of the only side that has one.

    Args:
        found: all tensors of two runs.

    Returns:
        The same in the same order; unchanged if both sides or neither compute in integers.
    """
    golden = _first_product(found, "golden")
    mine = _first_product(found, "mine")
    if (golden is None) == (mine is None):
        return list(found)

    return [
        replace(each, quantised=True)
        if isinstance(each, Match)
        and (
            _is_behind(each.mine.record, mine)
            if mine is not None
            else _is_behind(each.golden.record, golden)
        )
        else each
        for each in found
    ]


def _first_product(found: Sequence[Match | Unmatched], side: str) -> TensorRecord | None:
    """A factor of the first operation that multiplies integers; None if none does."""
    factors = [
        record
        for each in found
        if (record := _record(each, side)) is not None and _is_product(record)
    ]
    return min(factors, key=lambda record: record.order, default=None)


def _is_behind(record: TensorRecord, product: TensorRecord | None) -> bool:
    """True from the product on, and for what a graph around it returns."""
    if product is None:
        return False
    holds_product = product.op_id.startswith(f"{record.op_id}_")
    return record.order >= product.order or (holds_product and record.role == "out")


def _record(each: Match | Unmatched, side: str) -> TensorRecord | None:
    if isinstance(each, Match):
        return each.golden.record if side == "golden" else each.mine.record
    return each.record if each.side == side else None


def _is_product(record: TensorRecord) -> bool:
    kind = record.op_type.lower()
    return (
        record.role == "in"
        and record.index < 2  # the two factors; an int8 mask or offset is none
        and record.dtype in _INTEGERS
        and any(word in kind for word in _PRODUCTS)
    )
