"""The smallest set that is enough, found with few tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def smallest_set(candidates: Sequence[T], is_enough: Callable[[Sequence[T]], bool]) -> list[T]:
    """A set of candidates that is enough, and of which none can be left out.

    All of them must be enough, and more is never worse than less. This is QuickXplain (Junker,
    "QuickXplain: Preferred Explanations and Relaxations for Over-Constrained Problems", AAAI 2004):
    of ``n`` candidates one culprit takes at most ``2 log2(n) + 1`` tests, ``k`` of them at most
    ``2k log2(n / k) + 2k``.

    Args:
        candidates: the likely ones first: of several smallest sets the one with them is found.
        is_enough: tests a set.

    Returns:
        The set, in the order of the candidates.
    """
    if len(candidates) <= 1 or is_enough(candidates[:1]):
        return list(candidates[:1])
    found = _needed([], candidates, is_enough, has_grown=False)
    return [each for each in candidates if each in found]


def _needed(
    given: Sequence[T],
    candidates: Sequence[T],
    is_enough: Callable[[Sequence[T]], bool],
    *,
    has_grown: bool,
) -> list[T]:
    """Those of the candidates that are needed beside what is given."""
    if has_grown and is_enough(given):
        return []
    if len(candidates) == 1:
        return list(candidates)
    middle = len(candidates) // 2
    likely, others = candidates[:middle], candidates[middle:]
    second = _needed([*given, *likely], others, is_enough, has_grown=True)
    first = _needed([*given, *second], likely, is_enough, has_grown=bool(second))
    return [*first, *second]
