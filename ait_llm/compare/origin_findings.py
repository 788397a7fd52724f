"""What was found out about the origins of a report, and what that changes in its comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ait_llm.compare.roundings import is_of_sums
from ait_llm.core.comparison import Comparison, Origin, Verdict
from ait_llm.judge.definition_pairs import DefinitionsOfPass
from ait_llm.judge.pairs import DISTANCE


@dataclass(frozen=True, slots=True)
class Shares:
    """How the error of one comparison is made up, as relative errors; None if unknown.

    Attributes:
        inherited: what its operation's inputs bring with them.
        introduced: what the operation adds.
    """

    inherited: float | None
    introduced: float | None


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found out about the origins.

    Attributes:
        origins: at most one per run of mine, the earliest first.
        shares: by index of the comparison, for those of operations that were recomputed.
        explained: by index of a comparison that failed, why it passes nevertheless: what came in
            makes its error, and nothing is wrong.
        excused: by index of a comparison that failed, why it cannot be held to golden: the runs
            chose differently before, each rightly.
        failures: by index of a comparison that passed, why it fails nevertheless: recomputation
            shows that an operation is wrong within the tolerance.
        problems: what could not be found out, a sentence per step. A wrong operation may hide
            there, so the comparison is incomplete.
        notes: what one should know, a sentence each.
        narrowed: by index of a comparison that failed, the one of all rows that can be held to
            golden, which passed.
    """

    origins: tuple[Origin, ...] = ()
    shares: Mapping[int, Shares] = field(default_factory=dict)
    explained: Mapping[int, str] = field(default_factory=dict)
    excused: Mapping[int, str] = field(default_factory=dict)
    failures: Mapping[int, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    narrowed: Mapping[int, Comparison] = field(default_factory=dict)


def nothing_differs(
    comparisons: Iterable[Comparison], definitions: Iterable[DefinitionsOfPass]
) -> bool:
    """True if there is nothing whose origin could be asked for.

    Every tensor has a counterpart with the same elements, or what sums in another order make of
    them, every weight has golden's, and no module is defined otherwise.
    """
    return all(map(_is_equal, comparisons)) and not any(
        map(DefinitionsOfPass.modules_differ, definitions)
    )


def _is_equal(item: Comparison) -> bool:
    if item.verdict is not Verdict.PASS:
        return False
    # a pair of empty tensors has no metrics
    is_same = not item.values or item.values.get(DISTANCE) == 0
    return is_same or (item.record.role in ("in", "out") and is_of_sums(item))


def apply_findings(comparisons: Sequence[Comparison], findings: Findings) -> list[Comparison]:
    """The comparisons with what is known of inherited and introduced error.

    What the error that came in explains passes. Where an operation was caught within the
    tolerances, the comparison that shows it fails.
    """
    applied = list(comparisons)
    for index, comparison in findings.narrowed.items():
        applied[index] = comparison
    for index, share in findings.shares.items():
        applied[index] = replace(
            applied[index], inherited=share.inherited, introduced=share.introduced
        )
    for index, reason in findings.explained.items():
        applied[index] = replace(applied[index], verdict=Verdict.PASS, reason=reason)
    for index, reason in findings.excused.items():
        applied[index] = replace(
            applied[index], verdict=Verdict.SKIPPED, reason=reason, comparable=False
        )
    for index, reason in findings.failures.items():
        applied[index] = replace(applied[index], verdict=Verdict.FAIL, reason=reason)
    return applied
