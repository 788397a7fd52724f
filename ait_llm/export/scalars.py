"""A report as scalars for TensorBoard: the largest error of each layer, by step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ait_llm.core.comparison import Report, Verdict
from ait_llm.core.layers import layer_names, layer_of
from ait_llm.core.optional import import_optional
from ait_llm.errors import FormatError
from ait_llm.export.operator_errors import ERROR, larger

Series = dict[tuple[str, int], float]


def export_scalars(report: Report, folder: Path) -> int:
    """Write a run of TensorBoard.

    The tags are ``relative_error/LAYER``, ``introduced_error/LAYER`` and ``failed/LAYER``, the
    number of outputs that failed; with ``rankN/`` before the layer where there are several ranks.

    Returns:
        How many scalars were written.

    Raises:
        FormatError: the folder cannot be written.
        MissingDependencyError: tensorboardX is not installed.
    """
    writers: Any = import_optional("tensorboardX", "writing scalars", "tensorboard")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        count = 0
        with writers.SummaryWriter(logdir=str(folder), write_to_disk=True) as writer:
            for tag, step, value in _scalars(report):
                writer.add_scalar(tag, value, step)
                count += 1
    except OSError as error:
        raise FormatError(folder, f"cannot be written: {error.strerror or error}") from None
    return count


def _scalars(report: Report) -> Iterator[tuple[str, int, float]]:
    """Tag, step and value, in the order of the report's layers."""
    records = [item.record for item in report.comparisons]
    names = layer_names(records)
    several = len({record.rank for record in records}) > 1
    found: dict[str, Series] = {"relative_error": {}, "introduced_error": {}, "failed": {}}
    for item in report.comparisons:
        record = item.record
        if record.role == "in" or item.verdict in (Verdict.SKIPPED, Verdict.ERROR):
            continue
        layer = layer_of(record, names).replace(" ", "_")
        key = (f"rank{record.rank}/{layer}" if several else layer, record.step)
        for name, value in (
            ("relative_error", item.values.get(ERROR)),
            ("introduced_error", item.introduced),
        ):
            most = larger(found[name].get(key), value)
            if most is not None:
                found[name][key] = most
        failed = found["failed"]
        failed[key] = failed.get(key, 0) + (item.verdict is Verdict.FAIL)
    for name, series in found.items():
        for (layer, step), value in series.items():
            yield f"{name}/{layer}", step, value
