"""One pair of arrays to all its numbers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import numpy as np

from ait_llm.core import DType, SideSummary
from ait_llm.formats.elements import Array
from ait_llm.formats.loaded import dtype_of
from ait_llm.metrics import wide
from ait_llm.metrics.blocks import pieces, real_views
from ait_llm.metrics.custom import CustomMetric
from ait_llm.metrics.native import CHUNK, NativeMetrics, native_metrics
from ait_llm.metrics.numpy_pass import Settings, block_totals
from ait_llm.metrics.precision import coarser, element_limit
from ait_llm.metrics.registry import METRIC_NAMES, ULP_METRICS, Metric, Undefined
from ait_llm.metrics.registry import metrics as registered
from ait_llm.metrics.totals import SideTotals, Totals, empty_totals, merge

Blocks = Callable[[], Iterable[tuple[Array, Array]]]

_DISTANCE = "relative_euclidean_distance"
_BLOCK = 1 << 16  # elements of a NumPy block; its float64 copies fit into the second-level cache


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one pass says about a pair.

    Attributes:
        count: elements of each side.
        golden, mine: statistics of the finite elements of each side.
        values: metric results by name, those of custom metrics under their function's name.
        missing: metric name to the reason why it has no value.
        worst: flat index of the largest absolute error; None if no place is finite on both sides.
        worst_values: golden and my value there.
        first_bad: flat index of the first place where the sides differ and one is not finite.
        bad: how many such places there are.
        unequal: how many places differ at all, those included.
        finite: how many places are finite on both sides.
        element_error: largest ``abs(m - g) / (abs(g) + rms(g))``, rms over the finite places of
            golden; None without such a place, infinite for a golden of zeros that mine is not.
        element_error_exact: False if ``element_error`` is only a bound, ``max abs(m - g) /
            rms(g)``, that lies already within ``max_element``.
    """

    count: int
    golden: SideSummary
    mine: SideSummary
    values: Mapping[str, float]
    missing: Mapping[str, str]
    worst: int | None
    worst_values: tuple[float, float] | None
    first_bad: int | None
    bad: int
    unequal: int
    finite: int
    max_absolute_error: float | None
    relative_euclidean: float | None
    element_error: float | None
    element_error_exact: bool


def measure_pair(
    golden: Array,
    mine: Array,
    *,
    golden_dtype: DType | None = None,
    my_dtype: DType | None = None,
    metrics: Sequence[str] | None = None,
    custom: Sequence[CustomMetric] = (),
    max_element: float = 0.0,
    ulp_limit: int = 1,
    jobs: int = 1,
    blocks: Blocks | None = None,
) -> Measurement:
    """Compare two arrays in one pass, and a second one over part of a suspicious pair.

    Memory stays constant, also for memory-mapped and strided arrays; only custom metrics get
    whole copies. The result does not depend on ``jobs``.

    Args:
        golden, mine: arrays of the same shape, of any types.
        golden_dtype, my_dtype: logical types where the arrays were widened, such as HiFloat8 in
            float32; by default those of the arrays.
        metrics: names from the registry, all by default.
        custom: further metrics, see :func:`ait_llm.metrics.load_custom`.
        max_element: where it is certain that no ``element_error`` is larger, it may stay inexact.
        ulp_limit: representable numbers up to which a place is not counted in ulp_error_rate.
        jobs: threads.
        blocks: called for the same elements in row-major order as 1-D contiguous pieces of both
            sides, golden first, once for each pass; by default pieces of the arrays. A caller
            that prepares elements as they are needed, or gives back memory behind them, passes
            its own; ``jobs`` does not count then.

    Raises:
        ValueError: the shapes differ.
        UnknownNameError: no metric of that name.
    """
    if golden.shape != mine.shape:
        raise ValueError(f"shapes {list(golden.shape)} and {list(mine.shape)} differ")
    golden_dtype = golden_dtype or dtype_of(golden)
    my_dtype = my_dtype or dtype_of(mine)
    names = tuple(METRIC_NAMES if metrics is None else metrics)
    functions = _functions(names)
    limit = element_limit(golden_dtype, my_dtype)
    ulp, no_ulp = _ulp_type(golden_dtype, my_dtype)
    if not ULP_METRICS & set(names):
        ulp = None
    settings = Settings(ulp, ulp_limit, limit.rtol, limit.atol)
    native = native_metrics()
    if blocks is None:
        totals = _totals(golden, mine, settings, jobs, native)
    else:
        totals = _totals_of_blocks(blocks, settings, native)
    exponent = wide.exponent_out_of_range(golden, mine, totals)
    if exponent:
        wide.replace_sums(totals, golden, mine, exponent)

    values: dict[str, float] = {}
    missing: dict[str, str] = {}
    for name, function in functions:
        if no_ulp and name in ULP_METRICS:
            missing[name] = no_ulp
        else:
            _evaluate(name, function, totals, values, missing)
    for metric in custom:
        metric.add(golden, mine, values, missing)

    element_error, exact = _element_error(totals, golden, mine, max_element, exponent, blocks)
    part = 2 if "c" in (golden.dtype.kind, mine.dtype.kind) else 1
    some = totals.finite > 0
    relative = values
    if _DISTANCE not in values:
        relative = {}
        _evaluate(_DISTANCE, registered.get(_DISTANCE), totals, relative, {})
    return Measurement(
        count=golden.size,
        golden=_summary(totals.golden, exponent),
        mine=_summary(totals.mine, exponent),
        values=values,
        missing=missing,
        worst=totals.worst // part if some else None,
        worst_values=(totals.worst_golden, totals.worst_mine) if some else None,
        first_bad=totals.first_bad // part if totals.bad else None,
        bad=totals.bad,
        unequal=totals.unequal,
        finite=totals.finite,
        max_absolute_error=totals.max_absolute if some else None,
        relative_euclidean=relative.get(_DISTANCE),
        element_error=element_error,
        element_error_exact=exact,
    )


@functools.lru_cache(maxsize=64)
def _functions(names: tuple[str, ...]) -> tuple[tuple[str, Metric], ...]:
    return tuple((name, registered.get(name)) for name in dict.fromkeys(names))


def _evaluate(
    name: str,
    function: Metric,
    totals: Totals,
    values: dict[str, float],
    missing: dict[str, str],
) -> None:
    if not totals.count:
        missing[name] = "the tensors are empty"
    elif not totals.finite:
        missing[name] = "no place is finite on both sides"
    else:
        try:
            value = function(totals)
        except Undefined as reason:
            missing[name] = str(reason)
            return
        if math.isfinite(value):
            values[name] = value
        else:
            missing[name] = "the result exceeds the range of float64"


@functools.cache
def _ulp_type(golden: DType, mine: DType) -> tuple[DType | None, str]:
    """The type in which ULPs are counted, or why they are not."""
    if not (golden.is_floating and mine.is_floating):
        return None, "a ULP distance needs a floating-point type on both sides"
    dtype = coarser(golden, mine)
    if dtype is None or dtype.numpy_type is None:
        return None, "the element type has no ordered encoding in NumPy"
    return dtype, ""


def _summary(side: SideTotals, exponent: int) -> SideSummary:
    if not side.finite:
        return SideSummary(None, None, None, None, side.nan, side.inf)
    return SideSummary(
        side.high,
        side.low,
        wide.scaled(side.sum / side.finite, exponent),
        wide.scaled(math.sqrt(side.squares), exponent),
        side.nan,
        side.inf,
    )


def _totals(
    golden: Array, mine: Array, settings: Settings, jobs: int, native: NativeMetrics | None
) -> Totals:
    if native is not None and native.knows(golden.dtype, mine.dtype, settings.ulp):
        starts = range(0, golden.size, CHUNK)

        def measure(start: int) -> Totals:
            assert native is not None
            return native.totals(golden, mine, start, min(start + CHUNK, golden.size), settings)

        if jobs <= 1 or len(starts) <= 1:
            return native.totals(golden, mine, 0, golden.size, settings)
        totals = empty_totals()
        with ThreadPoolExecutor(jobs) as pool:
            for part in _ahead(pool, measure, starts, 2 * jobs):
                native.merge(totals, part)
        return totals
    totals = empty_totals()
    for g, m in pieces(golden, mine, 0, golden.size, _BLOCK):
        merge(totals, block_totals(*real_views(g, m), settings))
    return totals


def _totals_of_blocks(blocks: Blocks, settings: Settings, native: NativeMetrics | None) -> Totals:
    totals = empty_totals()
    for golden, mine in blocks():
        if native is not None and native.knows(golden.dtype, mine.dtype, None):
            native.merge(totals, native.totals(golden, mine, 0, golden.size, settings))
        else:
            for pair in pieces(golden, mine, 0, golden.size, _BLOCK):
                merge(totals, block_totals(*real_views(*pair), settings))
    return totals


def _ahead(
    pool: ThreadPoolExecutor, function: Callable[[int], Totals], starts: range, ahead: int
) -> Iterator[Totals]:
    """Results in order, with a bounded number of them in work."""
    waiting = iter(starts)
    futures = [pool.submit(function, start) for start in islice(waiting, ahead)]
    while futures:
        yield futures.pop(0).result()
        futures.extend(pool.submit(function, start) for start in islice(waiting, 1))


def _element_error(
    totals: Totals,
    golden: Array,
    mine: Array,
    limit: float,
    exponent: int,
    blocks: Blocks | None,
) -> tuple[float | None, bool]:
    if not totals.finite:
        return None, True
    if totals.max_absolute == 0:
        return 0.0, True
    rms = wide.scaled(math.sqrt(totals.golden_squares / totals.finite), exponent)
    if rms == 0:
        return math.inf, True
    if totals.max_absolute <= limit * rms:
        return totals.max_absolute / rms, False
    if blocks is None:
        return _largest_element_error(golden, mine, rms), True
    return max((_largest_element_error(*pair, rms) for pair in blocks()), default=0.0), True


def _largest_element_error(golden: Array, mine: Array, rms: float) -> float:
    native = native_metrics()
    if native is not None and native.knows(golden.dtype, mine.dtype, None):
        return native.element_error(golden, mine, rms)
    largest = 0.0
    with np.errstate(all="ignore"):
        for pair in pieces(golden, mine, 0, golden.size, _BLOCK):
            g, m = (side.astype(np.float64) for side in real_views(*pair))
            # Halved, because the difference of two large float64 may overflow.
            error = np.abs(m / 2 - g / 2) / (np.abs(g) / 2 + rms / 2)
            finite = np.isfinite(g) & np.isfinite(m)
            largest = max(largest, float(np.max(error, where=finite, initial=0.0)))
    return largest
