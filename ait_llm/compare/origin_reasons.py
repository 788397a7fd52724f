"""What gives reason to look for an origin in a run; most runs of a healthy program give none.

It needs a small part of what the search itself does, and is loaded alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ait_llm.compare.origin_growth import sudden_growth
from ait_llm.compare.origin_looks import Looks, worth_a_look
from ait_llm.compare.origin_run import operation_key, record_key
from ait_llm.compare.origin_stated import StatedDifferences
from ait_llm.compare.origin_unchanged import may_hand_on
from ait_llm.compare.origin_values import RunValues
from ait_llm.core.comparison import Comparison, Verdict
from ait_llm.judge.definition_pairs import DefinitionsOfPass
from ait_llm.program.one_pass import Pass


@dataclass(frozen=True)
class Reasons:
    """Why an origin may be in one run.

    Attributes:
        values: my run and what the comparisons say about it.
        stated: where weights and definitions of my run and of golden's differ.
        comparisons: all of the report.
        deep: every operation is looked at anyway.
    """

    values: RunValues
    stated: StatedDifferences
    comparisons: Sequence[Comparison]
    deep: bool

    @cached_property
    def failures(self) -> list[int]:
        """Comparisons that failed."""
        return [
            index
            for index in self.values.indices
            if self.comparisons[index].verdict is Verdict.FAIL
        ]

    @cached_property
    def grown(self) -> list[int]:
        """Comparisons where the error grows suddenly."""
        return list(sudden_growth(self.values.run, self.comparisons, self.values.indices))

    @cached_property
    def looks(self) -> Looks:
        """Operations that are worth running again."""
        if self.deep:
            return Looks()
        return worth_a_look(self.values.run, self.comparisons, self.values.indices)

    @cached_property
    def besides_failures(self) -> bool:
        """True if there is a reason to look even if nothing failed."""
        return bool(
            self.deep
            or self.grown
            or self.looks.at
            or self.stated.any
            or may_hand_on(self.values, self.comparisons)
        )


def reasons_of(
    comparisons: Sequence[Comparison],
    runs: Sequence[Pass],
    definitions: Sequence[DefinitionsOfPass] = (),
    *,
    deep: bool = False,
) -> Iterator[Reasons]:
    """Those of each run that something was compared of, in the order in which they ran.

    Args:
        comparisons: of the whole report.
        runs: my runs that were compared, in any order.
        definitions: of each of the runs, where they are known.
        deep: look at everything.
    """
    comparisons = list(comparisons)
    by_run = comparisons_by_run(comparisons, runs)
    for place in sorted(by_run, key=lambda at: (runs[at].device, runs[at].pid, runs[at].step)):
        values = RunValues(runs[place], comparisons, by_run[place])
        stated = StatedDifferences(values, comparisons, definitions[place] if definitions else None)
        yield Reasons(values, stated, comparisons, deep)


def comparisons_by_run(
    comparisons: Sequence[Comparison], runs: Sequence[Pass]
) -> dict[int, list[int]]:
    """Indices of the comparisons of each run of mine, by position of the run."""
    places = {
        (run.device, run.pid, *operation_key(operation)): place
        for place, run in enumerate(runs)
        for operation in run.operations
    }
    found: dict[int, list[int]] = {}
    for index, comparison in enumerate(comparisons):
        record = comparison.mine
        if record is None:
            continue
        place = places.get((record.device, record.pid, *record_key(record)))
        if place is not None:
            found.setdefault(place, []).append(index)
    return found
