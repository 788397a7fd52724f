"""Pictures of a report, drawn by matplotlib."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ait_llm.core.optional import import_optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ait_llm.core.comparison import Comparison, Report

_ERROR = "relative_euclidean_distance"
_LAYER = re.compile(r"(?:^|[._])(?:layers?|h|blocks?)[._](\d+)(?=[._]|$)")
_LEAST = 1e-9  # drawn instead of 0, which has no place on an axis of powers


class ReportPlots:
    """Pictures of a report.

    Args:
        report: the report.
    """

    def __init__(self, report: Report) -> None:
        self._report = report

    def error_by_layer(self, axes: Axes | None = None) -> Axes:
        """The largest relative Euclidean distance in each layer, as far as names tell layers.

        Layers with a failure are red; dashes are the limits. No error is drawn as 1e-9.

        Args:
            axes: where to draw; a new figure by default.

        Returns:
            What was drawn on.

        Raises:
            ValueError: no name of an operation has the number of a layer.
            MissingDependencyError: matplotlib is not installed.
        """
        found = _largest(self._report.comparisons, _layer)
        if not found:
            raise ValueError("no name of an operation tells a layer; see error_by_step")
        return self._bars(axes, found, "layer")

    def error_by_step(self, axes: Axes | None = None) -> Axes:
        """The largest relative Euclidean distance at each step; as :meth:`error_by_layer`."""
        return self._bars(axes, _largest(self._report.comparisons, _step), "step")

    def _bars(self, axes: Axes | None, found: Mapping[int, Comparison], name: str) -> Axes:
        if axes is None:
            pyplot: Any = import_optional("matplotlib.pyplot", "a plot of a report", "plot")
            axes = pyplot.subplots(layout="constrained")[1]
        heights = [max(found[each].values[_ERROR], _LEAST) for each in found]
        failed = [found[each].verdict.value == "FAIL" for each in found]
        axes.bar(list(found), heights, color=["tab:red" if each else "tab:blue" for each in failed])
        limits = [found[each].tolerance.get(_ERROR, math.nan) for each in found]
        axes.plot(list(found), limits, color="black", marker="_", linestyle="none", label="limit")
        axes.set_yscale("log")
        axes.set_xlabel(name)
        axes.set_ylabel("largest relative Euclidean distance")
        axes.set_xticks(list(found)[:: max(1, len(found) // 16)])
        axes.legend()
        return axes


def _largest(items: Iterable[Comparison], place: Any) -> dict[int, Comparison]:
    """The comparison with the largest error in each place, failures before others."""
    found: dict[int, Comparison] = {}
    for item in items:
        number, error = place(item), item.values.get(_ERROR)
        if number is None or error is None or not math.isfinite(error):
            continue
        if number not in found or _rank(item) > _rank(found[number]):
            found[number] = item
    return dict(sorted(found.items()))


def _rank(item: Comparison) -> tuple[bool, float]:
    return item.verdict.value == "FAIL", item.values[_ERROR]


def _layer(item: Comparison) -> int | None:
    names = [side.op for side in (item.mine, item.golden) if side is not None]
    found = next((match for name in names if (match := _LAYER.search(name))), None)
    return None if found is None else int(found[1])


def _step(item: Comparison) -> int:
    return item.record.step
