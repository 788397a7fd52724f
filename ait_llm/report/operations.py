"""A report's comparisons gathered by operation and by layer."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ait_llm.core.comparison import Comparison, Report, TensorRecord, Verdict
from ait_llm.core.layers import layer_names, layer_of
from ait_llm.report.wording import why_not

WORST_FIRST = (Verdict.FAIL, Verdict.ERROR, Verdict.SKIPPED, Verdict.PASS)
# Of an operation: an output without a partner does not hide that another one passed.
_LOUDEST_FIRST = (Verdict.FAIL, Verdict.ERROR, Verdict.PASS, Verdict.SKIPPED)


@dataclass(frozen=True, slots=True)
class CalledOperation:
    """One call of one operation, with the comparisons of its tensors.

    Attributes:
        record: of its first tensor: names, ids, step and process.
        mine: False if the operation is of the golden side and has no counterpart.
        layer: the layer it belongs to, see :func:`ait_llm.core.layers.layer_of`.
        indices: of its comparisons in the report.
        verdict: what its outputs say, or all its tensors where no output was looked at.
    """

    record: TensorRecord
    mine: bool
    layer: str
    indices: tuple[int, ...]
    verdict: Verdict


def called_operations(report: Report) -> list[CalledOperation]:
    """The operations in the order of their first comparison."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, item in enumerate(report.comparisons):
        groups.setdefault(_call(item), []).append(index)
    names = layer_names(item.record for item in report.comparisons)
    result = []
    for indices in groups.values():
        first = report.comparisons[indices[0]]
        result.append(
            CalledOperation(
                record=first.record,
                mine=first.mine is not None,
                layer=layer_of(first.record, names),
                indices=tuple(indices),
                verdict=verdict_of([report.comparisons[index] for index in indices]),
            )
        )
    return result


def verdict_of(items: Sequence[Comparison]) -> Verdict:
    """The verdict on an operation: that of its outputs, or of all where it has none."""
    outputs = [item for item in items if item.record.role != "in"] or items
    found = {item.verdict for item in outputs}
    return next(verdict for verdict in _LOUDEST_FIRST if verdict in found)


def has_operations(report: Report) -> bool:
    """True if what was compared came from operations, not from files of tensors or weights."""
    return any(item.record.role in ("in", "out") for item in report.comparisons)


def error_of(item: Comparison, metric: str) -> float | None:
    """The error by a metric; where it was not asked for, what the judge measured of it."""
    return item.values.get(metric, item.needed.get(metric))


def severity(item: Comparison, metric: str) -> float:
    """How bad a comparison is: the error by ``metric``, infinite where numbers are no numbers.

    Metrics leave out what is not finite, so that a tensor of NaNs may have the smallest error.
    """
    if item.verdict is Verdict.FAIL and item.first_bad is not None:
        return math.inf
    value = error_of(item, metric)
    if value is None:
        # One side is not finite where the other is: no metric can be worse.
        return math.inf if item.verdict is Verdict.FAIL else -1.0
    return math.inf if math.isnan(value) else value


def not_compared(report: Report) -> list[tuple[str, int, Comparison]]:
    """Reasons for what is missing and for ERROR, with their number and one example.

    The most frequent come first.

    Errors come before what was skipped.
    """
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], Comparison] = {}
    for item in report.comparisons:
        if item.verdict in (Verdict.SKIPPED, Verdict.ERROR) and item.comparable:
            key = (item.verdict.value, _general(why_not(item), item))
            counts[key] += 1
            examples.setdefault(key, item)
    ordered = sorted(counts.items(), key=lambda entry: (entry[0][0], -entry[1]))
    return [(key[1], count, examples[key]) for key, count in ordered]


def _general(reason: str, item: Comparison) -> str:
    """A reason without the names of its tensors, so that equal reasons count together."""
    records = [record for record in (item.mine, item.golden) if record is not None]
    names = (  # paths of both sides first: a name may be a part of the other side's path
        *((record.path, "the file") for record in records),
        *((record.title, "the tensor") for record in records),
        *((f"no operator {record.op}", "no such operator") for record in records),
        *((f"my {record.op}", "my operation") for record in records),
        *((record.op, "the operation") for record in records),
    )
    for text, placeholder in names:
        if len(text) > 3:  # whole: the name of a model begins those of its modules
            reason = re.sub(rf"(?<![\w./]){re.escape(text)}(?![\w@]|\.\w)", placeholder, reason)
    return reason


def _call(item: Comparison) -> tuple[object, ...]:
    record = item.record
    return (
        item.mine is not None,
        record.device,
        record.pid,
        record.step,
        record.op_id,
        record.op,
        record.call,
    )
