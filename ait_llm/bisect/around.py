"""Which operations may have made the first difference."""

from __future__ import annotations

from collections.abc import Sequence

from ait_llm.bisect.picture import Place

_FEW = 6  # operations that need no narrowing down


def is_narrow(place: Place, candidates: Sequence[int]) -> bool:
    """True if it is known well enough where the two part.

    Programs of different kinds have few statistics in common, so that the first failure may be
    far behind the first difference; failing values on both sides are another matter.
    """
    if place.is_alike:
        return True
    by_values = place.failed is not None and place.values.error(place.failed) is not None
    return by_values and len(candidates) <= _FEW


def suspects(place: Place) -> list[int]:
    """The operations that may have made the first difference, in execution order."""
    found: set[int] = set()
    if place.failed is not None:
        found |= set(place.values.upstream(place.failed).operations)
    if place.is_alike and place.first_unequal is not None and _mostly_equal(place):
        producer = place.values.producer(place.first_unequal)
        if producer is not None:
            found.add(producer)
    return sorted(found)


def surroundings(place: Place, ops: Sequence[int], depth: int) -> list[int]:
    """Operations and what computed their inputs, up to ``depth`` operations back."""
    found = set(ops)
    for _ in range(depth):
        more = [op for op in place.producers(found) if place.values.is_leaf(op)]
        if not more:
            break
        found |= set(more)
    return sorted(found)


def _mostly_equal(place: Place) -> bool:
    """True if values before the first failure are equal to the bit: both sides round alike."""
    assert place.first_unequal is not None
    if place.failed is None:
        return True
    before = [value for value in place.values.evidence if value < place.failed]
    equal = [value for value in before if value < place.first_unequal]
    return 2 * len(equal) >= len(before)
