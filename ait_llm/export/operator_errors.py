"""What a report says of each operator, in one line: its largest error."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ait_llm.core.comparison import Comparison, Report, TensorRecord, Verdict
from ait_llm.dumps import Dump, Operation
from ait_llm.errors import UsageError

ERROR = "relative_euclidean_distance"


@dataclass(slots=True)
class OperatorError:
    """The largest numbers of the outputs of one operator; None where there are none.

    Attributes:
        relative: distance from golden, relative to golden's norm.
        introduced: relative error that the operator added itself.
        failed: an output has the verdict FAIL.
    """

    relative: float | None = None
    introduced: float | None = None
    failed: bool = False


Key = tuple[int, int, int, str, str, int]


def operator_errors(report: Report, dump: Dump) -> dict[Key, OperatorError]:
    """Errors by the key of the operation, of the side of the report that is this dump.

    Raises:
        UsageError: neither side is.
    """
    golden = _is_golden(report, dump)
    found: dict[Key, OperatorError] = {}
    for record, item in _outputs(report, golden=golden):
        key = (record.pid, record.device, record.step, record.graph, record.op, record.call)
        error = found.setdefault(key, OperatorError())
        error.relative = larger(error.relative, item.values.get(ERROR))
        error.introduced = larger(error.introduced, item.introduced)
        error.failed = error.failed or item.verdict is Verdict.FAIL
    return found


def key_of(operation: Operation) -> Key:
    """The key of an operation of that dump."""
    return (
        *(operation.pid, operation.device, operation.step),
        *(operation.graph_name, operation.name, operation.call),
    )


def larger(known: float | None, value: float | None) -> float | None:
    """The larger of two numbers as far as they are finite."""
    if value is None or not math.isfinite(value):
        return known
    return value if known is None else max(known, value)


def _outputs(report: Report, *, golden: bool) -> Iterator[tuple[TensorRecord, Comparison]]:
    for item in report.comparisons:
        record = item.golden if golden else item.mine
        if record is not None and record.role != "in" and item.verdict is not Verdict.SKIPPED:
            yield record, item


def _is_golden(report: Report, dump: Dump) -> bool:
    root = dump.root.resolve()
    for golden, side in ((False, report.mine), (True, report.golden)):
        path = Path(side.path).resolve()
        if path == root or path in root.parents or root in path.parents:
            return golden
    raise UsageError(
        f"{dump.root}: is neither side of the report, which compares {report.golden.path} with "
        f"{report.mine.path}"
    )
