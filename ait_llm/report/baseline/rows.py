"""A result row by an identity that is the same in every run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ait_llm.core.comparison import Verdict

FACTOR = 2.0
"""How many times its earlier error a failing tensor may have and is still the known failure.

An error that fails is larger than its limit, and the limit is what rounding can make of a right
computation. So rounding in another order moves a failing error by at most one limit, which is at
most the error itself: it becomes no more than twice as large. Below the limit nothing is worse.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One tensor of one result.

    Attributes:
        identity: operator, tensor, step, call, rank: all that tells it from the others, and nothing
            that differs between two runs.
        kind: type and width, which another program would not share.
        verdict: PASS, FAIL, SKIPPED or ERROR.
        comparable: False where it has no counterpart by its nature, which decides nothing.
        excess: its error, in units of its limit; None where nothing was measured.
        place: what to call it.
        reason: why it did not pass.
    """

    identity: tuple[str, ...]
    kind: tuple[str, ...]
    verdict: Verdict
    comparable: bool
    excess: float | None
    place: str
    reason: str

    @property
    def compared(self) -> bool:
        """True if there are numbers behind the verdict."""
        return self.verdict in (Verdict.PASS, Verdict.FAIL)

    def has_grown_from(self, before: Row) -> bool:
        """True if its error is more than rounding can make of the earlier one."""
        if self.excess is None or before.excess is None:
            return False
        if not math.isfinite(before.excess):  # a NaN was there already
            return False
        return not self.excess <= FACTOR * before.excess


def unique_rows(rows: Iterable[Row]) -> dict[tuple[str, ...], Row]:
    """Rows by identity; those that share one are told apart by their order."""
    seen: Counter[tuple[str, ...]] = Counter()
    found = {}
    for row in rows:
        seen[row.identity] += 1
        if (number := seen[row.identity]) > 1:
            row = replace(row, identity=(*row.identity, str(number)))
        found[row.identity] = row
    return found
