"""Where the error started: the first operation whose outputs fail while its inputs pass.

Not every operation has a golden counterpart: a dump of modules knows no rotary embedding, no cache
and no attention core. So the way back from the first failing tensor is followed to values that
agree, and every operation on it is a candidate. The candidates are told apart by computing each
once more from its own inputs: what is off then arose there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ait_llm.compare.origin_collected import Collected
from ait_llm.compare.origin_findings import Findings
from ait_llm.compare.origin_reasons import Reasons, reasons_of
from ait_llm.compare.origin_search import Search
from ait_llm.compare.pair import Settings
from ait_llm.core.comparison import Comparison
from ait_llm.dumps.model import Operation
from ait_llm.errors import AitError
from ait_llm.judge.definition_pairs import DefinitionsOfPass
from ait_llm.judge.evidence import Unknown
from ait_llm.match.model import Match
from ait_llm.opcheck.case import NoCase
from ait_llm.opcheck.cases import case_of
from ait_llm.program.one_pass import Pass

_REASONS = 3  # told per step


def find_origins(
    comparisons: Sequence[Comparison],
    runs: Sequence[Pass],
    matches: Mapping[int, Match] | None = None,
    *,
    deep: bool = False,
    definitions: Sequence[DefinitionsOfPass] = (),
    settings: Settings | None = None,
    reasons: Sequence[Reasons] | None = None,
) -> Findings:
    """Find where the error of each of my runs started.

    Only runs with a failed comparison, one whose error grows suddenly, or another weight or
    definition cost anything: their
    tensors are traced, and a handful of operations near that place are computed once more.

    Args:
        comparisons: of the whole report.
        runs: my runs that were compared, in any order.
        matches: by index of the comparison; needed for ``inherited`` alone.
        deep: recompute every operation of every run, also where nothing failed. It finds errors
            that stay within the tolerances, such as sums in 16 bits.
        definitions: of each of the runs, where they are known.
        settings: of the comparisons, for those that are made again of a part of the rows.
        reasons: to look, where they are known already.
    """
    if reasons is None:
        reasons = list(reasons_of(comparisons, runs, definitions, deep=deep))
    if reasons:
        comparisons = reasons[0].comparisons  # what runs learn of them on the way is seen by all
    collected = Collected(comparisons, matches or {}, settings)
    searches: dict[tuple[int, int], list[Search]] = {}
    for each in reasons:
        run = each.values.run
        earlier = searches.setdefault((run.device, run.pid), [])
        search = Search(
            each.values, comparisons, each.stated, deep=deep, earlier=earlier, matches=matches
        )
        failures = each.failures
        if failures:
            collected.excuse(each.values)
            failures = [index for index in failures if not collected.is_excused(index)]
        if failures or each.besides_failures:
            try:
                found = search.find(each.grown, each.looks)
                failed = any(index not in search.explained for index in failures)
                collected.add(search, found, failed=failed)
                if deep and (found is None or not failed):
                    collected.problems += _not_recomputed(search)
            except AitError as error:
                collected.problems.append(
                    f"step {run.step}: where the error started is unknown: {error}"
                )
        earlier.append(search)
    return collected.findings()


def _not_recomputed(search: Search) -> list[str]:
    """What of a run without failures was not recomputed although everything should have been.

    Operators that draw, hand out fresh memory or return no tensor leave nothing to recompute.
    """
    operations = search.values.run.operations
    leaves = [op for op in search.values.leaves() if not _leaves_nothing(operations[op])]
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


def _leaves_nothing(operation: Operation) -> bool:
    """True for an operation that is no computation, or one of chance."""
    case = case_of(operation)
    return isinstance(case, NoCase) and bool(case.reason)
