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
from ait_llm.core.comparison import ONLY_STATISTICS, OTHERS_FIT, Comparison, Verdict
from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError, FormatError
from ait_llm.faults import told, trace_of
from ait_llm.formats import Statistics
from ait_llm.judge import WEIGHTS, Tolerance, behind_steps, judge_pair, tolerance_for
from ait_llm.match.masks import hidden_scores, may_hide
from ait_llm.match.model import Match, Source, Unmatched
from ait_llm.match.value_views import Dequantise
from ait_llm.match.views import Part, Repeat, Rows, View, apply, describe
from ait_llm.metrics import CustomMetric
from ait_llm.metrics.precision import coarser

_DOUBTFUL = 0.5  # confidence of pairs that are one of several
_BEYOND_ROUNDING = 2.0  # how much more than rounding to the nearest a quantised weight may be off
_SAME_GRID = 0.8  # weights whose steps cost about the same are the same numbers stored twice

# of weights that are nothing without a scale
_STEPS = frozenset({DType.INT8, DType.UINT8, DType.FLOAT8_E4M3FN, DType.FLOAT8_E5M2})

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

    What was not to be foreseen is a fault of ours, see :mod:`ait_llm.faults`.

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
    except (OSError, ValueError) as error:
        reason = f"cannot be compared: {error}"
    except Exception as error:  # noqa: BLE001  it costs this pair, not the run
        reason = f"cannot be compared: {told(error)}"
        return comparison_of(match, Verdict.ERROR, reason, fault=trace_of(error))
    return comparison_of(match, Verdict.ERROR, reason)


def without_partner(item: Unmatched) -> Comparison:
    """The comparison that stands for a tensor that was not compared."""
    return Comparison(
        golden=item.record if item.side == "golden" else None,
        mine=item.record if item.side == "mine" else None,
        verdict=Verdict.SKIPPED,
        reason=item.reason,
        lost=item.lost,
        comparable=not item.by_nature,
    )


def _compare(match: Match, settings: Settings) -> Comparison:
    """The verdict of a pair; none that accuses where others fit as well as this one.

    Where two of a kind are not told apart, a healthy one differs from the other's counterpart.
    What is really wrong differs also in what reads it.
    """
    found = _judged(match, settings)
    if found.verdict is not Verdict.FAIL or match.confidence > _DOUBTFUL or not match.alternatives:
        return found
    reason = f"{', '.join(match.alternatives)} {OTHERS_FIT}"
    return replace(found, verdict=Verdict.SKIPPED, reason=reason, comparable=False)


def _judged(match: Match, settings: Settings) -> Comparison:
    unscaled = _unscaled(match)
    if unscaled:
        return comparison_of(match, Verdict.SKIPPED, unscaled, comparable=False)
    if match.steps and settings.tolerance is None:
        settings = replace(settings, tolerance=behind_steps(match.steps))
    elif match.rounded_to is not None:
        settings = _rounded(match, match.rounded_to, settings)
    golden, mine = match.golden.tensor, match.mine.tensor
    settings = settings if match.in_same_steps else _quantised(golden, mine, settings)
    if golden.has_data and mine.has_data:
        if settings.tolerance is None and match.golden.parameter and match.mine.parameter:
            settings = replace(settings, tolerance=WEIGHTS)
        found = _compare_values(match, settings)
        masked = _masked(match) if found.verdict is Verdict.FAIL or _hides(found) else None
        return found if masked is None else _compare_values(masked, settings)
    recorded = _statistics(golden), _statistics(mine)
    if recorded[0] is None or recorded[1] is None:
        return _compare_descriptions(match, recorded)
    return _compare_statistics(match, recorded[0], recorded[1], settings)


def _unscaled(match: Match) -> str:
    """Why a weight is no number yet: it is stored in steps whose size nothing tells; else empty."""
    sides = ("golden", match.golden), ("mine", match.mine)
    coarse = [name for name, each in sides if each.tensor.dtype in _STEPS]
    is_weight = bool(match.golden.parameter and match.mine.parameter)
    views = (*match.golden.views, *match.mine.views)
    if not is_weight or len(coarse) != 1 or any(isinstance(view, Dequantise) for view in views):
        return ""
    own = (match.golden if coarse[0] == "golden" else match.mine).tensor.dtype
    return f"{coarse[0]} keeps it as {own.label}, with a scale of a name that is not known"


def _hides(found: Comparison) -> bool:
    """True if both sides may have places that a mask hides, beside which errors look small."""
    sides = found.golden_summary, found.my_summary
    lowest = [each.min for each in sides if each is not None and each.min is not None]
    return len(lowest) == 2 and may_hide(max(lowest))


def _masked(match: Match) -> Match | None:
    """The match of two masks that hide the same places, each in its way; None for anything else."""
    sources = match.golden, match.mine
    if not all(each.tensor.dtype.is_floating for each in sources):
        return None
    first, second = (apply(each.tensor.nd(), each.views) for each in sources)
    if first.shape != second.shape:  # but for axes of length one
        second = second.reshape(first.shape)
    hidden = hidden_scores(first, second)
    if hidden is None:
        return None
    one, other = (
        replace(each, views=(*each.views, view)) for each, view in zip(sources, hidden, strict=True)
    )
    return replace(match, golden=one, mine=other)


def _compare_values(match: Match, settings: Settings) -> Comparison:
    golden, mine = match.golden, match.mine
    with open_values(golden.tensor) as first, open_values(mine.tensor) as second:
        return compare_opened(
            first, second, settings, golden.views, mine.views, names=naming(match)
        )


def _quantised(golden: Tensor, mine: Tensor, settings: Settings) -> Settings:
    """The limits of a weight that one side has quantised, or more coarsely than the other.

    Weights are seldom rounded to the nearest step alone: the error of one column is made up for in
    the next ones, or the range is chosen so that the products are right. That costs less than as
    much again.
    """
    fine, coarse = sorted((golden.rounding, mine.rounding))
    if settings.tolerance is not None or coarse == 0 or fine > _SAME_GRID * coarse:
        return settings
    limits = tolerance_for(golden.dtype, mine.dtype)
    distance = max(limits.relative_euclidean, _BEYOND_ROUNDING * coarse)
    return replace(settings, tolerance=Tolerance(distance))


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
    judgement = judge_pair(measurement, golden.dtype, mine.dtype, settings.tolerance)
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
    if 0 in golden.tensor.shape and not golden.views and not mine.views:
        return comparison_of(match, Verdict.PASS, "")  # there is nothing in it
    return comparison_of(match, Verdict.SKIPPED, f"{which}; type and shape were compared")


def _compare_statistics(
    match: Match, golden: Statistics, mine: Statistics, settings: Settings
) -> Comparison:
    first, second = match.golden, match.mine
    for source in (first, second):
        if len(source.tensors) > 1:
            text = f"{ONLY_STATISTICS}, and a sum of two tensors answers the other"
            return comparison_of(match, Verdict.SKIPPED, text, comparable=False)
        if _changes_elements(source):
            text = f"{ONLY_STATISTICS}, and only a part of the tensor answers the other"
            # rows are left out of whole tensors, which other captures of the two programs have
            by_nature = not any(isinstance(view, Rows) for view in source.views)
            return comparison_of(match, Verdict.SKIPPED, text, comparable=not by_nature)
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
    if match.steps:
        why = f"{why}; behind quantised products"
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
