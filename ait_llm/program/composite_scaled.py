"""A product with a weight of whole numbers, and the scale of each of its columns, as one.

``(x Q) s`` is what one product with the weight ``Q s`` makes, where ``Q`` are whole numbers that a
weight in few bits is kept as, and ``s`` has a number for each output.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from ait_llm.program.calls import CallGraph
from ait_llm.program.composite_units import linears, with_bias
from ait_llm.program.composites import Composite


def scaled(graph: CallGraph) -> Iterator[Composite]:
    """Such products, without a weight: what is stored is not what other programs multiply with."""
    for product in linears(graph) if graph.whole else ():
        if product.operands["weight"] not in graph.whole:
            continue
        shape = graph.shapes.get(product.result)
        scale = partial(_scale, graph, shape[-1] if shape else 0)
        places = [place for place, read in graph.after(product.result) if scale(place, read)]
        if len(places) != 1:
            continue
        members = [*product.members, *places]
        operands: dict[str, int] = {}
        result = with_bias(graph, graph.calls[places[0]].outputs[0], operands, members)
        yield replace(
            product,
            members=tuple(members),
            result=result,
            operands=operands,
            definition={},
            bare=None,
        )


def _scale(graph: CallGraph, columns: int, place: int, read: int) -> bool:
    """True for a call that multiplies each column of what it reads by a number from outside."""
    call = graph.calls[place]
    others = [each for each in call.inputs if each != read]
    if call.kind != "mul" or len(others) != 1 or not graph.is_outside(others[0], order=True):
        return False
    # as it was stored: a view that makes a row of a column is the same value
    return math.prod(graph.shapes.get(others[0], ())) == columns
