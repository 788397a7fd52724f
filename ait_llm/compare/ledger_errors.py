"""The three errors of one operator: introduced, inherited, total.

All are taken where the comparison takes them: after the views of the match, over the norm of
golden's output.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ait_llm.core.comparison import Verdict
from ait_llm.core.error_ledger import LedgerRow
from ait_llm.dumps.model import Operation
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.judge.evidence import Unknown, excess_of
from ait_llm.judge.outputs import Judged
from ait_llm.judge.recomputed import recomputed
from ait_llm.match.model import Match
from ait_llm.match.views import apply
from ait_llm.opcheck.cases import first_line


def ledger_rows(
    operation: Operation, matches: Mapping[int, tuple[int, Match]], row: LedgerRow
) -> list[LedgerRow]:
    """Compute an operator of mine from its own inputs, and measure the errors of its outputs.

    Args:
        operation: the operator; inputs and outputs were saved.
        matches: golden's counterparts of its outputs, by their index, with their place in the
            report.
        row: names of the operator.
    """
    found = recomputed(operation)
    if isinstance(found, Unknown):
        return [replace(row, reason=found.reason)]
    rows = []
    for item in found:
        name = item.checked.output
        index = int(name.removeprefix("outtensor")) if name.startswith("outtensor") else -1
        place, match = matches.get(index, (None, None))
        rows.append(_measured(replace(row, output=name, index=place), item, match))
    return rows or [replace(row, reason="it has no outputs that were saved")]


def _measured(row: LedgerRow, item: Judged, match: Match | None) -> LedgerRow:
    checked = item.checked
    if item.output is None:
        if checked.verdict is Verdict.FAIL:  # another shape or type
            return replace(row, introduced=math.inf, excess=math.inf, reason=checked.reason)
        if checked.verdict is Verdict.PASS:  # empty, as it should be
            return replace(row, introduced=0.0, excess=0.0)
        return replace(row, reason=checked.reason)
    row = replace(
        row,
        excess=excess_of(checked),
        reason=checked.reason if checked.verdict is not Verdict.PASS else "",
    )
    right, mine = (
        each.detach().double().numpy() for each in (item.output.golden, item.output.mine)
    )
    if item.output.defined is not None:  # what the operator leaves as it was is not its error
        mine = np.where(item.output.defined.numpy(), mine, right)
    if match is not None:
        try:
            return _with_golden(row, right, mine, match)
        except (AitError, ValueError) as error:
            note = f"golden's side could not be taken: {first_line(error)}"
            row = replace(row, reason="; ".join(filter(None, (row.reason, note))))
    return replace(row, introduced=_ratio(_distance(right, mine), _norm(right)))


def _with_golden(row: LedgerRow, right: Array, mine: Array, match: Match) -> LedgerRow:
    shape = match.mine.tensor.shape
    views = match.mine.views
    golden = apply(match.golden.tensor.nd().astype(np.float64), match.golden.views)
    seen_right = apply(right.reshape(shape), views).reshape(golden.shape)
    seen_mine = apply(mine.reshape(shape), views).reshape(golden.shape)
    size = _norm(golden)
    return replace(
        row,
        introduced=_ratio(_distance(seen_right, seen_mine), size),
        inherited=_ratio(_distance(golden, seen_right), size),
        total=_ratio(_distance(golden, seen_mine), size),
    )


def _distance(right: Array, other: Array) -> float:
    """Euclidean; infinite where one side alone is not finite, or both are and differ."""
    finite = np.isfinite(right) & np.isfinite(other)
    same = (right == other) | (np.isnan(right) & np.isnan(other))
    if not bool((finite | same).all()):
        return math.inf
    apart = np.where(finite, other, 0.0) - np.where(finite, right, 0.0)
    return float(np.linalg.norm(apart.reshape(-1)))


def _norm(values: Array) -> float:
    return float(np.linalg.norm(np.where(np.isfinite(values), values, 0.0).reshape(-1)))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0 if part == 0 else math.inf
