"""Metrics of two tensors as msprobe's compare defines them, and why there are none.

n is mine (NPU), b golden (Bench), both without dims of length 1. Ratios are formed in float64. A
relative error is ``abs((n - b) / b)`` in float32, or float64 if a side has more than 32 bits; where
b is 0, the machine epsilon of that type is added to both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ait_llm.compare.api.item import NOT_AVAILABLE
from ait_llm.compare.api.statistics_rules import NAN, Cell
from ait_llm.compare.api.verdicts import Judged, judge_values
from ait_llm.compare.values import Values, open_file
from ait_llm.core.comparison import Verdict
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.judge import Tolerance
from ait_llm.metrics.custom import CustomMetric
from ait_llm.metrics.ratios import Ratios, measure_ratios

UNSUPPORTED = "unsupported"
SHAPE_UNMATCHED = "shape unmatched"
NO_NPU_FILE = "NPU does not have data file."
NO_BENCH_FILE = "Bench does not have data file."
UNMATCHED = "Bench api/module unmatched."
NOT_READ = "Dump file: {} not found or read failed."
EMPTY = "This is empty data, can not compare."
SHAPES_DIFFER = "Shape of NPU and bench Tensor do not match. Skipped."
SCALAR = (
    "This is type of 0-d tensor, can not calculate 'Cosine', 'EucDist', "
    "'One Thousandth Err Ratio' and 'Five Thousandths Err Ratio'."
)
NOT_FINITE = "The Position of inf or nan in NPU and bench Tensor do not match."
DTYPES_DIFFER = "Dtype of NPU and bench Tensor do not match."
ZERO_NPU = "Cannot compare by Cosine Similarity, All the data is Zero in npu dump data."
ZERO_BENCH = "Cannot compare by Cosine Similarity, All the data is Zero in Bench dump data."
ONE_ELEMENT = "This is a 1-d tensor of length 1."

_TINY = float(np.finfo(np.float64).eps)
_COUNT = 6


@dataclass(frozen=True, slots=True)
class RealData:
    """The metric cells of one row.

    Attributes:
        cells: Cosine, EucDist, MaxAbsErr, MaxRelativeErr and the two ratios.
        messages: what the user must know about them.
        custom: results of the user's own metrics.
        judged: what the values say by the limits of every comparison; None if nobody asked.
    """

    cells: tuple[Cell, ...]
    messages: tuple[str, ...] = ()
    custom: tuple[Cell, ...] = ()
    judged: Judged | None = None


def without_metrics(cell: str, message: str) -> RealData:
    """A row whose metrics have no values."""
    return RealData((cell,) * _COUNT, (message,), judged=Judged(Verdict.SKIPPED, message))


def compare_files(
    mine: Path,
    golden: Path,
    custom: Sequence[CustomMetric] = (),
    tolerance: Tolerance | None = None,
) -> RealData:
    """Metrics of the tensors in two files; what cannot be read becomes a message."""
    try:
        with open_file(mine) as my_values:
            try:
                with open_file(golden) as golden_values:
                    return compare_values(my_values, golden_values, custom, tolerance)
            except AitError:
                return without_metrics(UNSUPPORTED, NOT_READ.format(golden.name))
    except AitError:
        return without_metrics(UNSUPPORTED, NOT_READ.format(mine.name))


def compare_values(
    mine: Values,
    golden: Values,
    custom: Sequence[CustomMetric] = (),
    tolerance: Tolerance | None = None,
) -> RealData:
    """Metrics and verdict of two opened tensors; what was looked at of a mapped file leaves memory.

    Metrics of the user's own get the whole tensors at once.
    """

    def release(golden_piece: Array, my_piece: Array) -> None:
        golden.release(golden_piece)
        mine.release(my_piece)

    found, totals = _measured(mine.array, golden.array, release)
    found = replace(found, judged=judge_values(mine, golden, totals, tolerance))
    return with_custom(found, mine.array, golden.array, custom) if custom else found


def with_custom(
    found: RealData, mine: Array, golden: Array, custom: Sequence[CustomMetric]
) -> RealData:
    """Add the user's own metrics where the built-in ones have values; an exception is told."""
    if found.cells[2] in (UNSUPPORTED, SHAPE_UNMATCHED, NOT_AVAILABLE):
        return replace(found, custom=(UNSUPPORTED,) * len(custom))
    cells: list[Cell] = []
    messages = list(found.messages)
    for metric in custom:
        try:
            value, message = metric(golden, mine)
        except Exception as error:  # noqa: BLE001  code of the user; its failure is a result
            value, message = UNSUPPORTED, f"{metric.name}: {type(error).__name__}: {error}"
        cells.append(value)
        if message:
            messages.append(message)
    return replace(found, messages=tuple(messages), custom=tuple(cells))


def compare_arrays(
    mine: Array, golden: Array, release: Callable[[Array, Array], None] | None = None
) -> RealData:
    """Metrics of two arrays of any types."""
    return _measured(mine, golden, release)[0]


def _measured(
    mine: Array, golden: Array, release: Callable[[Array, Array], None] | None
) -> tuple[RealData, Ratios | None]:
    if not mine.size or not golden.size:
        return without_metrics(UNSUPPORTED, EMPTY), None
    if np.squeeze(mine).shape != np.squeeze(golden).shape:
        return without_metrics(SHAPE_UNMATCHED, SHAPES_DIFFER), None
    messages = [DTYPES_DIFFER] if mine.dtype != golden.dtype else []
    sums = measure_ratios(golden, mine, release=release)
    if sums.misplaced:
        return without_metrics(NOT_AVAILABLE, NOT_FINITE), sums
    largest = round(sums.max_absolute, 12)
    relative = round(sums.max_relative, 12)
    if np.squeeze(mine).ndim == 0:
        found: tuple[Cell, ...] = (UNSUPPORTED, UNSUPPORTED, largest, relative)
        return RealData((*found, UNSUPPORTED, UNSUPPORTED), (SCALAR, *messages)), sums
    cells, reason = metric_cells(sums)
    if reason:
        messages.insert(0, reason)
    return RealData(cells, tuple(messages)), sums


def metric_cells(sums: Ratios) -> tuple[tuple[Cell, ...], str]:
    """The six metric cells of totals, and why one of them has no value."""
    cosine, reason = _cosine(sums)
    found = (
        cosine,
        math.sqrt(sums.squares),
        round(sums.max_absolute, 12),
        round(sums.max_relative, 12),
        round(sums.thousandth / sums.count, 12),
        round(sums.five_thousandths / sums.count, 12),
    )
    return found, reason


def _cosine(sums: Ratios) -> tuple[Cell, str]:
    n, b = math.sqrt(sums.my_squares), math.sqrt(sums.golden_squares)
    if n <= _TINY and b <= _TINY:
        return 1.0, ""
    if n <= _TINY:
        return NAN, ZERO_NPU
    if b <= _TINY:
        return NAN, ZERO_BENCH
    cosine = max(-1.0, min(1.0, sums.dot / (n * b)))
    return round(cosine, 6 if cosine > 0.9999 else 12), ""
