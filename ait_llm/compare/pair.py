"""One match to one comparison. Whatever is wrong with a pair becomes its verdict."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from ait_llm.compare.alignment import Aligned, ShapeMismatchError, align, mismatch, same_dims
from ait_llm.compare.histogram import error_histogram
from ait_llm.compare.measuring import measure_aligned
from ait_llm.compare.progress import Stopped
from ait_llm.compare.statistics import StatisticsResult, compare_statistics, summary
from ait_llm.compare.values import Values, open_values
from ait_llm.core import DType
from ait_llm.core.comparison import Comparison, Verdict
from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError, FormatError
from ait_llm.formats import Statistics
from ait_llm.match.model import Match, Source, Unmatched
from ait_llm.match.views import Part, Repeat, Rows, View, describe
from ait_llm.metrics import QUANTISED, CustomMetric, Tolerance, judge, tolerance_for
from ait_llm.metrics.precision import coarser

_Value = TypeVar("_Value", str, float)


@dataclass(frozen=True)
class Settings:
    """What all pairs of a comparison have in common.

    Attributes:
        metrics: names of metrics to compute.
        custom: the user's own.
        tolerance: the user's limits.
        stop: asks the work to end early.
    """

    metrics: Sequence[str]
    custom: Sequence[CustomMetric] = ()
    tolerance: Tolerance | None = None
    stop: threading.Event = field(default_factory=threading.Event)


def compare_match(match: Match, settings: Settings) -> Comparison:
    """Measure and judge a pair; every failure becomes an ERROR with its reason.

    Raises:
        Stopped: ``settings.stop`` was set.
    """
    try:
        return _compare(match, settings)
    except Stopped:
        raise
    except (AitError, ShapeMismatchError) as error:
        reason = str(error)
    except MemoryError:
        reason = "the pair does not fit into the free memory"
    except (OSError, ValueError, TypeError) as error:
        reason = f"cannot be compared: {error}"
    except Exception as error:  # noqa: BLE001  a plug-in or a bug costs this pair, not the run
        reason = f"cannot be compared: {type(error).__name__}: {error}"
    return comparison_of(match, Verdict.ERROR, reason)


def without_partner(item: Unmatched) -> Comparison:
    """The comparison that stands for a tensor that was not compared."""
    return Comparison(
        golden=item.record if item.side == "golden" else None,
        mine=item.record if item.side == "mine" else None,
        verdict=Verdict.SKIPPED,
        reason=item.reason,
    )


def _compare(match: Match, settings: Settings) -> Comparison:
    if match.quantised and settings.tolerance is None:
        settings = replace(settings, tolerance=QUANTISED)
    elif match.rounded_to is not None:
        settings = _rounded(match, match.rounded_to, settings)
    golden, mine = match.golden.tensor, match.mine.tensor
    if golden.has_data and mine.has_data:
        with open_values(golden) as first, open_values(mine) as second:
            return compare_opened(
                first,
                second,
                settings,
                match.golden.views,
                match.mine.views,
                names=naming(match),
            )
    recorded = _statistics(golden), _statistics(mine)
    if recorded[0] is None or recorded[1] is None:
        return _compare_descriptions(match, recorded)
    return _compare_statistics(match, recorded[0], recorded[1], settings)


def _rounded(match: Match, dtype: DType, settings: Settings) -> Settings:
    """The limits of a type that the values went through, where neither side is as coarse now."""
    types = match.golden.record.dtype, match.mine.record.dtype
    if types[0] is None or types[1] is None:
        return settings
    own = coarser(*types)
    if own is None or coarser(own, dtype) is own:
        return settings
    limits = tolerance_for(dtype, dtype, settings.tolerance)
    tolerance = Tolerance(limits.relative_euclidean, limits.max_element)
    return replace(settings, tolerance=tolerance)


def compare_opened(
    first: Values,
    second: Values,
    settings: Settings,
    golden_views: Sequence[View] = (),
    my_views: Sequence[View] = (),
    *,
    names: Mapping[str, Any],
) -> Comparison:
    """Measure and judge two opened tensors.

    Args:
        first, second: golden and mine.
        settings: of all pairs.
        golden_views, my_views: from the match.
        names: the fields of the comparison that say what was compared, see :func:`naming`.

    Raises:
        ShapeMismatchError: the shapes differ after the views.
        ValueError: a view does not fit, or the elements are no numbers.
        FormatError: a file became shorter meanwhile.
        Stopped: ``settings.stop`` was set.
    """
    golden = Aligned(first, golden_views, settings.stop)
    mine = Aligned(second, my_views, settings.stop)
    shape = align(golden, mine)
    measurement = measure_aligned(golden, mine, settings)
    judgement = judge(measurement, golden.dtype, mine.dtype, settings.tolerance)
    histogram = None
    if judgement.verdict is Verdict.FAIL:
        bad = measurement.first_bad is not None
        histogram = error_histogram(golden, mine, measurement.worst_values, bad)
    return Comparison(
        **names,
        verdict=judgement.verdict,
        reason=judgement.reason,
        golden_summary=measurement.golden,
        my_summary=measurement.mine,
        values=measurement.values,
        missing=shared(measurement.missing),
        tolerance=shared(judgement.tolerance),
        needed=judgement.needed,
        worst=_unravel(measurement.worst, shape),
        worst_values=measurement.worst_values,
        first_bad=_unravel(measurement.first_bad, shape),
        histogram=histogram,
        stamp=None if first.stamp is None or second.stamp is None else first.stamp + second.stamp,
    )


def shared(mapping: Mapping[str, _Value]) -> Mapping[str, _Value]:
    """The same object for equal contents: a large report says the same thing many times."""
    return _mapping(tuple(mapping.items()))


@functools.lru_cache(maxsize=4096)
def _mapping(items: tuple[tuple[str, Any], ...]) -> Mapping[str, Any]:
    return dict(items)


def _compare_descriptions(
    match: Match, recorded: tuple[Statistics | None, Statistics | None]
) -> Comparison:
    """Types and shapes of a pair of which one side has neither values nor statistics."""
    golden, mine = match.golden, match.mine
    if golden.tensor.has_data or mine.tensor.has_data:
        side = "golden" if not golden.tensor.has_data else "mine"
        which = f"{side} is a description without values"
    elif recorded[0] is not None or recorded[1] is not None:
        side = "golden" if recorded[0] is None else "mine"
        which = f"{side} is a description without values or statistics"
    else:
        which = "both are descriptions without values"
    if not golden.views and not mine.views and not _same_shape(golden.tensor, mine.tensor):
        text = f"{mismatch(golden.tensor.shape, mine.tensor.shape)}; {which}"
        return comparison_of(match, Verdict.FAIL, text)
    types = golden.tensor.dtype, mine.tensor.dtype
    if types[0].is_floating != types[1].is_floating:
        text = f"types differ: golden {types[0].label}, mine {types[1].label}; {which}"
        return comparison_of(match, Verdict.FAIL, text)
    return comparison_of(match, Verdict.SKIPPED, f"{which}; type and shape were compared")


def _compare_statistics(
    match: Match, golden: Statistics, mine: Statistics, settings: Settings
) -> Comparison:
    first, second = match.golden, match.mine
    for source in (first, second):
        if len(source.tensors) > 1:
            text = "only statistics were captured, and a sum of two tensors answers the other"
            return comparison_of(match, Verdict.SKIPPED, text)
        if _changes_elements(source):
            text = "only statistics were captured, and only a part of the tensor answers the other"
            return comparison_of(match, Verdict.SKIPPED, text)
    if not first.views and not second.views and not _same_shape(first.tensor, second.tensor):
        raise ShapeMismatchError(mismatch(first.tensor.shape, second.tensor.shape))
    limits = tolerance_for(first.tensor.dtype, second.tensor.dtype, settings.tolerance)
    elements = int(np.prod(first.tensor.shape, dtype=np.float64))
    result: StatisticsResult = compare_statistics(golden, mine, elements, limits.relative_euclidean)
    return comparison_of(
        match,
        result.verdict,
        result.reason,
        golden_summary=summary(golden),
        my_summary=summary(mine),
        values=result.values,
        missing=result.missing,
        tolerance=result.tolerance,
        needed=result.needed,
    )


def _statistics(tensor: Tensor) -> Statistics | None:
    """Recorded or computed statistics; None if the tensor has neither them nor values."""
    try:
        return tensor.statistics
    except FormatError:
        if tensor.has_data:
            raise
        return None


def _changes_elements(source: Source) -> bool:
    """True if the views leave elements out or repeat them, which statistics cannot follow."""
    return any(isinstance(view, Part | Rows | Repeat) for view in source.views)


def _same_shape(golden: Tensor, mine: Tensor) -> bool:
    return same_dims(golden.shape, mine.shape)


def _unravel(index: int | None, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    if index is None:
        return None
    places = []
    for length in reversed(shape):
        index, place = divmod(index, length)
        places.append(place)
    return tuple(reversed(places))


def comparison_of(match: Match, verdict: Verdict, reason: str, **fields: Any) -> Comparison:
    """The comparison of a match with what was found out, or why nothing was."""
    return Comparison(verdict=verdict, reason=reason, **naming(match), **fields)


def naming(match: Match) -> dict[str, Any]:
    """The fields of a comparison that say what was compared and why."""
    why = match.reason
    if match.quantised:
        why = f"{why}; behind an int8 product"
    if match.alternatives:
        why = f"{why}; as likely: {', '.join(match.alternatives)}"
    return {
        "golden": match.golden.record,
        "mine": match.mine.record,
        "rule": match.rule,
        "confidence": match.confidence,
        "why": why,
        "relation": match.relation,
        "golden_view": describe(match.golden.views),
        "my_view": describe(match.mine.views),
    }
