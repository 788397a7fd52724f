"""Where the error started: the first operation whose outputs fail while its inputs pass.

Not every operation has a golden counterpart: a dump of modules knows no rotary embedding, no cache
and no attention core. So the way back from the first failing tensor is followed to values that
agree, and every operation on it is a candidate. The candidates are told apart by computing each
once more from its own inputs: what is off then arose there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ait_llm.compare.introduced import Introduced
from ait_llm.compare.origin_growth import sudden_growth
from ait_llm.compare.origin_inherited import inherited_error
from ait_llm.compare.origin_search import Finding, Search
from ait_llm.compare.origin_values import RunValues, record_key
from ait_llm.core.comparison import Comparison, Origin, Verdict
from ait_llm.errors import MissingDependencyError
from ait_llm.match.model import Match, Run


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
        problem: why nothing could be recomputed, empty if it could.
    """

    origins: tuple[Origin, ...] = ()
    shares: Mapping[int, Shares] = field(default_factory=dict)
    failures: Mapping[int, str] = field(default_factory=dict)
    problem: str = ""


def find_origins(
    comparisons: Sequence[Comparison],
    runs: Sequence[Run],
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
    by_run = _by_run(comparisons, runs)
    origins: list[Origin] = []
    shares: dict[int, Shares] = {}
    failures: dict[int, str] = {}
    searches: dict[tuple[int, int], list[Search]] = {}
    started: dict[tuple[int, int], set[tuple[str, int]]] = {}
    for place in sorted(by_run, key=lambda at: (runs[at].device, runs[at].pid, runs[at].step)):
        run, indices = runs[place], by_run[place]
        earlier = searches.setdefault((run.device, run.pid), [])
        values = RunValues(run, comparisons, indices)
        search = Search(values, comparisons, deep=deep, earlier=earlier)
        grown = list(sudden_growth(run, comparisons, indices))
        failed = any(comparisons[index].verdict is Verdict.FAIL for index in indices)
        if deep or failed or grown:
            try:
                found = search.find(grown)
            except MissingDependencyError as error:
                return Findings(tuple(origins), shares, failures, str(error))
            shares |= _shares(search, comparisons, matches or {})
            known = started.setdefault((run.device, run.pid), set())
            if found is not None and (not known or found.own):
                # Else a consequence of what an earlier step left in the caches, or of its tokens.
                key = (found.origin.op, found.origin.step)
                if key not in known:
                    origins.append(_with_shares(found, shares))
                    if not failed and found.origin.index is not None:
                        failures[found.origin.index] = found.origin.evidence
                known.add(key)
        earlier.append(search)
    return Findings(tuple(origins), shares, failures)


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


def _by_run(comparisons: Sequence[Comparison], runs: Sequence[Run]) -> dict[int, list[int]]:
    """Indices of the comparisons of each run, by position of the run."""
    places = {
        (run.device, run.pid, operation.name, operation.step, getattr(operation, "call", 0)): place
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


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _with_shares(found: Finding, shares: Mapping[int, Shares]) -> Origin:
    origin = replace(found.origin, introduced=_finite(found.origin.introduced))
    share = shares.get(origin.index) if origin.index is not None else None
    if share is None:
        return origin
    return replace(origin, inherited=share.inherited, introduced=share.introduced)
