"""Where the error started: the first operation whose outputs fail while its inputs pass.

Not every operation has a golden counterpart: a dump of modules knows no rotary embedding, no cache
and no attention core. So the way back from the first failing tensor is followed to values that
agree, and every operation on it is a candidate. The candidates are told apart by computing each
once more from its own inputs: what is off then arose there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ait_llm.compare.introduced import Introduced, Unknown
from ait_llm.compare.origin_growth import sudden_growth
from ait_llm.compare.origin_inherited import inherited_error
from ait_llm.compare.origin_kind import diagnosis_of
from ait_llm.compare.origin_search import Finding, Search
from ait_llm.compare.origin_values import RunValues, operation_key, record_key
from ait_llm.core.comparison import Comparison, Origin, Verdict
from ait_llm.dumps.model import Operation
from ait_llm.errors import AitError
from ait_llm.match.model import Match
from ait_llm.program.one_pass import Pass

_REASONS = 3  # told per step
_DIAGNOSED = 8  # origins whose kind of bug is looked for; more repeat one of them
_COMMUNICATION = "Distributed."  # as API-level dumps name it


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
        failures: by index of a comparison that passed, why it fails nevertheless: recomputation
            shows that an operation is wrong within the tolerance.
        problems: what could not be found out, a sentence per step. A wrong operation may hide
            there, so the comparison is incomplete.
    """

    origins: tuple[Origin, ...] = ()
    shares: Mapping[int, Shares] = field(default_factory=dict)
    failures: Mapping[int, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def find_origins(
    comparisons: Sequence[Comparison],
    runs: Sequence[Pass],
    matches: Mapping[int, Match] | None = None,
    *,
    deep: bool = False,
) -> Findings:
    """Find where the error of each of my runs started.

    Only runs with a failed comparison, or one whose error grows suddenly, cost anything: their
    tensors are traced, and a handful of operations near that place are computed once more.

    Args:
        comparisons: of the whole report.
        runs: my runs that were compared, in any order.
        matches: by index of the comparison; needed for ``inherited`` alone.
        deep: recompute every operation of every run, also where nothing failed. It finds errors
            that stay within the tolerances, such as sums in 16 bits.
    """
    by_run = comparisons_by_run(comparisons, runs)
    collected = _Collected(comparisons, matches or {})
    searches: dict[tuple[int, int], list[Search]] = {}
    for place in sorted(by_run, key=lambda at: (runs[at].device, runs[at].pid, runs[at].step)):
        run, indices = runs[place], by_run[place]
        earlier = searches.setdefault((run.device, run.pid), [])
        values = RunValues(run, comparisons, indices)
        search = Search(values, comparisons, deep=deep, earlier=earlier)
        grown = list(sudden_growth(run, comparisons, indices))
        failed = any(comparisons[index].verdict is Verdict.FAIL for index in indices)
        if deep or failed or grown:
            try:
                collected.add(search, search.find(grown), failed=failed)
                if deep and not failed:
                    collected.problems += _not_recomputed(search)
            except AitError as error:
                collected.problems.append(
                    f"step {run.step}: where the error started is unknown: {error}"
                )
        earlier.append(search)
    return collected.findings()


class _Collected:
    """Findings of the runs, the earliest first."""

    def __init__(self, comparisons: Sequence[Comparison], matches: Mapping[int, Match]) -> None:
        self.problems: list[str] = []
        self._comparisons = comparisons
        self._matches = matches
        self._origins: list[tuple[tuple[int, int, int, int], Origin]] = []
        self._shares: dict[int, Shares] = {}
        self._failures: dict[int, str] = {}
        self._known: dict[tuple[int, int], set[tuple[str, str, int]]] = {}

    def add(self, search: Search, found: Finding | None, *, failed: bool) -> None:
        """Take over what a search found, unless it follows from what an earlier one found."""
        shares = _shares(search, self._comparisons, self._matches)
        if found is not None and found.defined_otherwise and found.origin.index is not None:
            shares.pop(found.origin.index, None)  # nothing was inherited, nothing added
        self._shares |= shares
        if found is None:
            return
        origin = found.origin
        known = self._known.setdefault((origin.device, origin.pid), set())
        key = (origin.op, origin.op_id, origin.step)
        # A later step may suffer from what an earlier one left in the caches, or from its tokens.
        if (known and not found.own) or key in known:
            return
        known.add(key)
        place = (origin.device, origin.pid, found.step, found.op)
        origin = _with_shares(found, self._shares)
        if found.guilty is not None and len(self._origins) < _DIAGNOSED:
            origin = _with_kind(origin, found.guilty)
        self._origins.append((place, origin))
        if not failed and origin.index is not None:
            self._failures[origin.index] = f"{origin.op}: {origin.evidence}"

    def findings(self) -> Findings:
        """All of it."""
        ordered = [origin for _, origin in sorted(self._origins, key=lambda each: each[0])]
        origins = tuple(_communication_last(ordered))
        return Findings(origins, self._shares, self._failures, tuple(self.problems))


def _communication_last(origins: Sequence[Origin]) -> list[Origin]:
    """What a collective returns may be wrong because of what another rank brought to it."""
    computed = [each for each in origins if not each.op.startswith(_COMMUNICATION)]
    if not computed:
        return list(origins)
    found = [*computed]
    for each in origins:
        others = [other for other in computed if other.step == each.step]
        if each in computed:
            continue
        if others:
            name = f"{others[0].op} of process {others[0].device}_{others[0].pid}"
            evidence = f"{each.evidence}; what {name} brought may be the cause"
            each = replace(each, certain=False, evidence=evidence)
        found.append(each)
    return found


def apply_findings(comparisons: Sequence[Comparison], findings: Findings) -> list[Comparison]:
    """The comparisons with what is known of inherited and introduced error.

    Where an operation was caught within the tolerances, the comparison that shows it fails.
    """
    applied = list(comparisons)
    for index, share in findings.shares.items():
        applied[index] = replace(
            applied[index], inherited=share.inherited, introduced=share.introduced
        )
    for index, reason in findings.failures.items():
        applied[index] = replace(applied[index], verdict=Verdict.FAIL, reason=reason)
    return applied


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


def _not_recomputed(search: Search) -> list[str]:
    """What of a run without failures was not recomputed although everything should have been."""
    leaves = list(search.values.leaves())
    reasons = Counter(
        each.reason for op in leaves if isinstance(each := search.examined.get(op), Unknown)
    )
    if not reasons:
        return []
    told = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(_REASONS))
    if len(reasons) > _REASONS:
        told += f"; and {len(reasons) - _REASONS} other reasons"
    share = f"{reasons.total()} of {len(leaves)} operations"
    return [f"step {search.values.run.step}: {share} could not be recomputed: {told}"]


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
