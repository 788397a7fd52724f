"""What kind of bug each fault of hostatb is."""

from __future__ import annotations

_PRODUCTS = ("qkv", "o", "gate-up", "down")
# What each fault of hostatb is. A dropped tail shortens the sums of products; of other results it
# leaves the ends of rows unwritten.
KINDS = {
    "wrong_epsilon": "wrong epsilon",
    "wrong_softmax_scale": "wrong softmax scale",
    "missing_mask": "wrong mask area",
    "swapped_heads": "swapped heads",
    "stale_padding": "stale or uninitialised region",
    "half_accumulation": "half-precision accumulation",
    "dropped_tail": "stale or uninitialised region",
    "scale_1pct": "constant scale",
    "wrong_element": "isolated elements",
    "inf_at_step": "values not finite",
}


def kind_of(fault: str, place: str) -> str:
    """What a fault is at an operator."""
    if fault == "dropped_tail" and place in _PRODUCTS:
        return "truncated reduction"
    return KINDS[fault]
