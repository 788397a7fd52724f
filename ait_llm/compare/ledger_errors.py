"""The three errors of one operator: introduced, inherited, total.

All are taken where the comparison takes them: after the views of the match, over the norm of
golden's output.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ait_llm.compare.introduced import MOST_BYTES
from ait_llm.core.comparison import Verdict
from ait_llm.core.error_ledger import LedgerRow
from ait_llm.dumps.model import Operation
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.match.model import Match
from ait_llm.match.views import apply
from ait_llm.opcheck.cases import (
    REFUSALS,
    evaluate,
    first_line,
    golden_of,
    inputs_of,
    needs_state_before,
    outputs_of,
)
from ait_llm.opcheck.judging import Judged, Produced, judge
from ait_llm.opcheck.outcome import Checked
from ait_llm.opcheck.standards import standards

_STANDARD = "contract"
_RANDOM = frozenset({"MultinomialOperation", "ToppsampleOperation", "TopkToppSamplingOperation"})


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
    try:
        found = _judged(operation, row)
    except AitError as error:
        return [replace(row, reason=str(error))]
    except REFUSALS as error:
        reason = f"the golden {operation.type} refuses its inputs ({first_line(error)})"
        return [replace(row, reason=reason)]
    if isinstance(found, str):
        return [replace(row, reason=found)]
    rows = []
    for item in found:
        if item.output is not None and item.output.is_input:
            continue
        name = item.checked.output
        index = int(name.removeprefix("outtensor")) if name.startswith("outtensor") else -1
        place, match = matches.get(index, (None, None))
        rows.append(_measured(replace(row, output=name, index=place), item, match))
    return rows or [replace(row, reason="it has no outputs that were saved")]


def _judged(operation: Operation, row: LedgerRow) -> list[Judged] | str:
    """Its outputs judged by its arithmetic contract, or why they are not."""
    from ait_llm.opcheck.golden.products import shared_products

    golden = golden_of(operation.type)
    assert golden is not None
    if operation.type in _RANDOM:
        return f"{operation.type} draws its result"
    inputs, params = inputs_of(operation), operation.params
    if sum(each.nbytes for each in inputs if each is not None) > MOST_BYTES:
        return f"its inputs take more than the {MOST_BYTES >> 20} MiB that are recomputed"
    produced = Produced(outputs_of(operation), {})
    listed = [produced.outputs.get(index) for index in range(max(produced.outputs, default=-1) + 1)]
    base = Checked(row.op_id, row.op_type, Verdict.SKIPPED, standard=_STANDARD)
    with shared_products(inputs):
        updated = evaluate(golden, inputs, golden.recover(inputs, listed, params)).updated_inputs
        if needs_state_before(operation, bool(updated)):
            return (
                f"{operation.type} works in place and its inputs were only saved after it ran; "
                "dump with -time 2"
            )
        return judge(golden, inputs, params, produced, standards.get(_STANDARD), base)


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
        excess=_excess(checked),
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


def _excess(checked: Checked) -> float | None:
    """How many times what the contract allows; None where it has no limit for this output."""
    if checked.verdict not in (Verdict.PASS, Verdict.FAIL):
        return None
    values = checked.values
    factors = [values.get("worst", 0.0)]
    for name in ("rms", "scale", "shift", "share"):
        if name in values and f"permitted_{name}" in values:
            factors.append(_ratio(abs(values[name]), values[f"permitted_{name}"]))
    if "largest" in values:  # quantised numbers may be off by one
        factors.append(values["largest"])
    factor = max(factors)
    if checked.verdict is Verdict.PASS:
        return min(factor, 1.0)
    # Bits that are moved may not change at all, and what is not finite has no size.
    return factor if 1 < factor < math.inf else math.inf
