"""What errors do to a margin, measured where gradients do not tell it.

With the own errors of the first ``k`` values left in and those of all others taken away, mine has a
margin between golden's and its own; the last two of these show what the error between them does.
So the parts add up to the whole change, in that order. Roundings come first and are one part: what
each of them does alone falls out by chance. Then halves of the others are measured, and halves of
what is furthest from its gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

MOST_RUNS = 12
"""Runs that measure parts; enough for the culprit among ``2**12`` errors."""
_LEAST = 0.05
"""Share of the change that the parts may be off; what is nearer is rounding in 16 bits."""
Margins = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Part:
    """What some errors do to a margin.

    Attributes:
        first, last: of the errors, by number.
        change: of the margin.
        measured: it was measured, and is no gradient.
    """

    first: int
    last: int
    change: float
    measured: bool


@dataclass(slots=True)
class MeasuredParts:
    """Splits the errors until their parts add up.

    Attributes:
        gradients: what each error does to each margin by its gradient; empty where not known.
        changes: of the margins, in all.
        margins: the change of each margin with the first so many errors alone; None where the
            run has no such answer.
        count: errors.
        together: how many of them, from the first, are one part.
        runs: that measured.
    """

    gradients: Sequence[Sequence[float]]
    changes: Sequence[float]
    margins: Callable[[int], Margins]
    count: int
    together: int = 0
    runs: int = 0
    _points: dict[int, Margins] = field(default_factory=dict)

    def find(self) -> list[list[Part]]:
        """The parts of each margin, in the order of the errors."""
        self._points = {0: [0.0] * len(self.changes), self.count: list(self.changes)}
        while self.runs < MOST_RUNS and (widest := self._furthest()) is not None:
            middle = self._middle(*widest)
            self._points[middle] = self.margins(middle)
            self.runs += 1
        return [list(self._parts(number)) for number in range(len(self.changes))]

    def _furthest(self) -> tuple[int, int] | None:
        """The errors, more than one, that are furthest off; None where all parts add up."""
        worst, found = _LEAST / 2, None
        for number, change in enumerate(self.changes):
            if not self._is_off(number):
                continue
            for first, end in self._between(number):
                share = abs(self._off(number, first, end) / change)
                if share > worst and self._middle(first, end) not in self._points:
                    worst, found = share, (first, end)
        return found

    def _between(self, number: int) -> list[tuple[int, int]]:
        """Neighbouring points at which this margin is known."""
        known = sorted(at for at, margins in self._points.items() if margins[number] is not None)
        return list(pairwise(known))

    def _middle(self, first: int, end: int) -> int:
        """Where these errors are split; their beginning if they are not."""
        if first < self.together < end:
            return self.together
        return first if end <= self.together else (first + end) // 2

    def _is_off(self, number: int) -> bool:
        """The parts of this margin do not add up; of one that does not change nothing is asked."""
        if not self.changes[number]:
            return False
        off = sum(self._off(number, *between) for between in self._between(number))
        return abs(off) > _LEAST * abs(self.changes[number])

    def _off(self, number: int, first: int, end: int) -> float:
        """How far the gradients of these errors are from what they do."""
        if end - first == 1 and self.runs:
            return 0.0
        return self._change(number, first, end) - sum(self.gradients[number][first:end])

    def _change(self, number: int, first: int, end: int) -> float:
        before, after = self._points[first][number], self._points[end][number]
        assert before is not None
        assert after is not None
        return after - before

    def _parts(self, number: int) -> Iterator[Part]:
        is_off, least = self._is_off(number), _LEAST / 2 * abs(self.changes[number])
        for first, end in self._between(number):
            gradients = self.gradients[number][first:end]
            change, is_alone = self._change(number, first, end), end - first == 1
            off = is_off and abs(self._off(number, first, end)) > least
            if off or not gradients or (is_alone and self.runs):
                yield Part(first, end - 1, change, measured=True)
            else:
                for at, each in enumerate(gradients, first):
                    yield Part(at, at, each, measured=False)
