"""Origins of all runs brought together: those that follow from others are left out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ait_llm.compare.calls_within import of_other_tokens
from ait_llm.compare.chosen import OtherChoices
from ait_llm.compare.chosen_rows import OtherRows
from ait_llm.compare.origin_finding import Finding
from ait_llm.compare.origin_findings import Findings, Shares
from ait_llm.compare.origin_inherited import inherited_error
from ait_llm.compare.origin_kind import diagnosis_of
from ait_llm.compare.origin_search import Search
from ait_llm.compare.origin_values import RunValues
from ait_llm.compare.pair import Settings
from ait_llm.core.comparison import Comparison, Origin, Verdict
from ait_llm.dumps.model import Operation
from ait_llm.judge.evidence import Introduced
from ait_llm.match.model import REDUCED, Match

_DIAGNOSED = 8  # origins whose kind of bug is looked for; more repeat one of them
# Names in API-level dumps, and types of operators.
_COMMUNICATION = ("Distributed.", "c10d.", "_c10d_functional.")


class Collected:
    """Findings of the runs, the earliest first.

    Args:
        comparisons: of the whole report.
        matches: by index of the comparison.
        settings: of comparisons that are made again of a part of the rows.
    """

    def __init__(
        self,
        comparisons: Sequence[Comparison],
        matches: Mapping[int, Match],
        settings: Settings | None = None,
    ) -> None:
        self.problems: list[str] = []
        self._comparisons = comparisons
        self._matches = matches
        self._origins: list[tuple[tuple[int, int, int, int, int], Origin]] = []
        self._shares: dict[int, Shares] = {}
        self._explained: dict[int, str] = {}
        self._excused: dict[int, str] = {}
        self._notes: list[str] = []
        self._failures: dict[int, str] = {}
        self._proven: set[tuple[str, int, int, int]] = set()
        self._known: dict[tuple[int, int], set[tuple[str, str, int]]] = {}
        self._choices: dict[tuple[int, int], OtherChoices] = {}
        self._other_rows: dict[tuple[int, int], OtherRows] = {}
        self._narrowed: dict[int, Comparison] = {}
        self._settings = Settings(metrics=()) if settings is None else settings

    def excuse(self, values: RunValues) -> None:
        """Take out of a run what follows from a choice that golden made differently."""
        self._excused |= of_other_tokens(values, self._comparisons)
        place = values.run.device, values.run.pid
        choices = self._choices.setdefault(place, OtherChoices())
        reasons, notes = choices.excuse(values, self._matches)
        self._excused |= reasons
        self._notes += notes
        rows = self._other_rows.setdefault(place, OtherRows(self._settings))
        excuses = rows.excuse(values, self._matches)
        self._excused |= excuses.without_rows
        self._narrowed |= excuses.narrowed
        self._notes += excuses.told

    def is_excused(self, index: int) -> bool:
        """True for a comparison that follows from such a choice."""
        return index in self._excused

    def add(self, search: Search, found: Finding | None, *, failed: bool) -> None:
        """Take over what a search found, unless it follows from what an earlier one found."""
        shares = _shares(search, self._comparisons, self._matches)
        if found is not None and found.defined_otherwise and found.origin.index is not None:
            shares.pop(found.origin.index, None)  # nothing was inherited, nothing added
        self._shares |= shares
        self._explained |= search.explained
        if found is None:
            return
        origin = found.origin
        known = self._known.setdefault((origin.device, origin.pid), set())
        key = (origin.op, origin.op_id, origin.step)
        # A later step may suffer from what an earlier one left in the caches, or from its tokens.
        if (known and not found.own) or key in known:
            return
        known.add(key)
        # ranks that share out a pass run it together: what comes first in it was first
        run = search.values.run
        ranks = [(each.device, each.pid) for each in (run, *run.peers)]
        place = (*min(ranks), found.step, found.op, origin.pid)
        origin = _with_shares(found, self._shares)
        if found.guilty is not None and found.guilty.peers:
            self._proven.add(_place_of(origin))
        if found.guilty is not None and len(self._origins) < _DIAGNOSED:
            origin = _with_kind(origin, found.guilty)
        self._origins.append((place, origin))
        if not failed and origin.index is not None:
            self._failures[origin.index] = f"{origin.op}: {origin.evidence}"

    def findings(self) -> Findings:
        """All of it."""
        ordered = [origin for _, origin in sorted(self._origins, key=lambda each: each[0])]
        origins = tuple(self._shared_last(ordered))
        return Findings(
            origins,
            self._shares,
            self._explained,
            self._excused,
            self._failures,
            tuple(self.problems),
            tuple(self._notes),
            self._narrowed,
        )

    def _shared_last(self, origins: Sequence[Origin]) -> list[Origin]:
        """A sum over ranks may be wrong because of what another rank brought to it."""
        computed = [each for each in origins if not self._is_shared(each)]
        found = [*computed]
        sums = computed or [each for each in origins if self._is_sum(each)]
        for each in origins:
            if each in computed:
                continue
            others = [it for it in sums if it.step == each.step and it is not each]
            if others:
                name = f"{others[0].op} of process {others[0].device}_{others[0].pid}"
                evidence = f"{each.evidence}; what {name} brought may be the cause"
                each = replace(each, certain=False, evidence=evidence)
            found.append(each)
        return found

    def _is_shared(self, origin: Origin) -> bool:
        """True for a collective, and for what only all ranks together can be compared in."""
        names = origin.op, origin.op_type
        if self._is_sum(origin) and self._has_other_weights(origin):
            return False  # no other rank is needed to explain it
        if _place_of(origin) in self._proven:
            return False  # what all ranks brought does not make it
        return self._is_sum(origin) or any(each.startswith(_COMMUNICATION) for each in names)

    def _has_other_weights(self, origin: Origin) -> bool:
        """True if a weight of the module around an operation is not that of golden."""
        module = origin.op.partition(".aten.")[0]
        return any(
            each.verdict is Verdict.FAIL and (each.mine.op, each.mine.pid) == (module, origin.pid)
            for each in self._comparisons
            if each.mine is not None and each.mine.role == "weight"
        )

    def _is_sum(self, origin: Origin) -> bool:
        index = origin.index
        return index is not None and self._comparisons[index].relation == REDUCED


def _place_of(origin: Origin) -> tuple[str, int, int, int]:
    return origin.op, origin.step, origin.device, origin.pid


def _shares(
    search: Search, comparisons: Sequence[Comparison], matches: Mapping[int, Match]
) -> dict[int, Shares]:
    """Shares of the errors of all operations that were recomputed and compared."""
    found: dict[int, Shares] = {}
    for op, result in search.examined.items():
        if not isinstance(result, Introduced):
            continue
        operation = search.values.run.operations[op]
        for value in search.values.outputs(op):
            known = search.values.evidence.get(value.number)
            for index in (*known.failed, *known.passed) if known is not None else ():
                record = comparisons[index].mine
                if record is None or record.role != "out" or record.op != operation.name:
                    continue
                inherited = inherited_error(operation, matches[index]) if index in matches else None
                introduced = result.errors.get(record.index)
                found[index] = Shares(_finite(inherited), _finite(introduced))
    return found


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _with_shares(found: Finding, shares: Mapping[int, Shares]) -> Origin:
    origin = replace(found.origin, introduced=_finite(found.origin.introduced))
    share = shares.get(origin.index) if origin.index is not None else None
    if share is None:
        return origin
    return replace(origin, inherited=share.inherited, introduced=share.introduced)


def _with_kind(origin: Origin, guilty: Operation) -> Origin:
    """The origin with the kind of its bug."""
    diagnosis = diagnosis_of(guilty)
    return replace(origin, kind=diagnosis.kind.value, kind_evidence=diagnosis.evidence)
