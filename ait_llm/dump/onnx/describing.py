"""The nodes of an ONNX graph as ``graph.json`` has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ait_llm.dump.onnx.graph import Laid, Placed, fit_for_file
from ait_llm.dump.onnx.node import Named, Operator

_OUTPUT = "output"
_Made = Mapping[str, tuple[str, int, bool]]
"""Node by the value that it makes, which of its results that is, and whether it has several."""


def describe(
    laid: Laid,
    shapes: Mapping[str, Sequence[int]],
    types: Mapping[str, str],
    rounded: Mapping[str, float] = MappingProxyType({}),
) -> list[Any]:
    """The nodes as ``graph.json`` has them, with what the first run knew of their results.

    Args:
        laid: the graph.
        shapes, types: of each value by name, the type as torch calls it.
        rounded: what rounding has cost the weights of a few bits.
    """

    def output(name: str) -> dict[str, Any] | None:
        if name not in types:
            return None
        return {"dtype": types[name], "shape": list(shapes[name]), "device": "cpu"}

    made_by: dict[str, tuple[str, int, bool]] = {}
    lines: list[Any] = []
    read = {name for each in laid.nodes for name in _read(each.operator)}
    weights = (each for each in (*laid.weights, *laid.quantised) if each in read)
    for name in (*laid.inputs, *weights):
        fit = fit_for_file(name)
        made_by[name] = (fit, 0, False)
        line: dict[str, Any] = {"name": fit, "op": "placeholder", "target": name}
        line["outputs"] = [output(name)]
        if name in rounded:
            words = laid.quantised[name].words
            line["quantised"] = {"stored_as": words, "rounding": rounded[name]}
        lines.append(line)
    for each in laid.nodes:
        several = len(each.outputs) > 1
        for place, name in enumerate(each.outputs):
            if name:
                made_by[name] = (each.name, place, several)
    for each in laid.nodes:
        lines += _lines(each, made_by, output)
    results = {name: {"node": _written(name, made_by)} for name in laid.results if name in made_by}
    if results:
        lines.append(
            {"name": _OUTPUT, "op": "output", "target": _OUTPUT, "args": [], "kwargs": results,
             "inputs": sorted({made_by[name][0] for name in results})}
        )  # fmt: skip
    return lines


def _written(name: str, made_by: _Made) -> str:
    """The node that makes a value, or selects it from the results of one with several."""
    node, place, several = made_by.get(name, (name, 0, False))
    return f"{node}_{place}" if several else node


def _lines(
    placed: Placed, made_by: _Made, output: Callable[[str], Any]
) -> Iterator[dict[str, Any]]:
    """A node, behind those that select what it reads of nodes with several results."""

    def written(value: Any) -> Any:
        if isinstance(value, list):
            return [written(each) for each in value]
        if not isinstance(value, Named):
            return value
        return {"node": _written(value.name, made_by)}

    line: dict[str, Any] = {
        "name": placed.name,
        "op": "call_function",
        "target": placed.operator.target,
        "args": [written(each) for each in placed.operator.args],
        "outputs": [output(name) for name in placed.outputs],
    }
    line["inputs"] = sorted(
        {made_by[name][0] for name in _read(placed.operator) if name in made_by}
    )
    if placed.operator.options:
        line["kwargs"] = dict(placed.operator.options)
    if placed.module:
        line["modules"] = [{"path": placed.module, "type": ""}]
    yield line
    if len(placed.outputs) > 1:
        for place, name in enumerate(placed.outputs):
            if name:
                yield {
                    "name": f"{placed.name}_{place}",
                    "op": "call_function",
                    "target": "<built-in function getitem>",
                    "inputs": [placed.name],
                    "args": [{"node": placed.name}, place],
                    "outputs": [output(name)],
                }


def _read(operator: Operator) -> Iterator[str]:
    for each in operator.args:
        for value in each if isinstance(each, list) else [each]:
            if isinstance(value, Named):
                yield value.name
