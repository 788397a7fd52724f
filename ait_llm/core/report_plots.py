"""Pictures of a report, drawn by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ait_llm.core.layers import layer_names, layer_of
from ait_llm.core.optional import import_optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ait_llm.core.comparison import Comparison, Report

_ERROR = "relative_euclidean_distance"
_Place = TypeVar("_Place")
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
        items = self._report.comparisons
        names = layer_names(item.record for item in items)

        def layer(item: Comparison) -> str | None:
            record = item.record
            where = layer_of(record, names)
            is_module = not record.graph and ("." in record.op or record.op in names)
            return where if not is_module or where.rpartition(".")[2].isdecimal() else None

        found = _largest(items, layer)
        if not found:
            raise ValueError("no name of an operation tells a layer; see error_by_step")
        starts = {each.rpartition(".")[0] for each in found}
        if len(starts) == 1:  # of one list of modules the numbers tell all
            found = {each.rpartition(".")[2]: item for each, item in found.items()}
        return self._bars(axes, found, "layer")

    def error_by_step(self, axes: Axes | None = None) -> Axes:
        """The largest relative Euclidean distance at each step; as :meth:`error_by_layer`."""
        found = _largest(self._report.comparisons, lambda item: item.record.step)
        return self._bars(axes, {str(step): found[step] for step in sorted(found)}, "step")

    def _bars(self, axes: Axes | None, found: Mapping[str, Comparison], name: str) -> Axes:
        if axes is None:
            pyplot: Any = import_optional("matplotlib.pyplot", "a plot of a report", "plot")
            axes = pyplot.subplots(layout="constrained")[1]
        places, items = range(len(found)), list(found.values())
        colours = ["tab:red" if item.verdict.value == "FAIL" else "tab:blue" for item in items]
        axes.bar(places, [max(item.values[_ERROR], _LEAST) for item in items], color=colours)
        limits = [item.tolerance.get(_ERROR, math.nan) for item in items]
        axes.plot(places, limits, color="black", marker="_", linestyle="none", label="limit")
        axes.set_yscale("log")
        axes.set_xlabel(name)
        axes.set_ylabel("largest relative Euclidean distance")
        apart = max(1, len(found) // 16)
        turned = 90 if max(map(len, found)) > 4 else 0
        axes.set_xticks(places[::apart], list(found)[::apart], rotation=turned)
        axes.legend()
        return axes


def _largest(
    items: Iterable[Comparison], place: Callable[[Comparison], _Place | None]
) -> dict[_Place, Comparison]:
    """The comparison with the largest error in each place, failures before others."""
    found: dict[_Place, Comparison] = {}
    for item in items:
        where, error = place(item), item.values.get(_ERROR)
        if where is None or error is None or not math.isfinite(error):
            continue
        if where not in found or _rank(item) > _rank(found[where]):
            found[where] = item
    return found


def _rank(item: Comparison) -> tuple[bool, float]:
    return item.verdict.value == "FAIL", item.values[_ERROR]
