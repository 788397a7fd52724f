"""A product with a matrix, and the adapters of low rank (LoRA) that are added to it, as one.

``x W + s (x A) B`` is what one product with ``W + s A B`` makes: a program into whose weights
adapters were merged computes that. Source: "LoRA: Low-Rank Adaptation of Large Language Models".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ait_llm.program.calls import CallGraph
from ait_llm.program.composite_units import is_number, linears
from ait_llm.program.composites import Composite


def adapted(graph: CallGraph) -> Iterator[Composite]:
    """Products that adapters are added to, without a weight: no matrix is that of all."""
    products = {each.result: each for each in linears(graph)}
    found: dict[int, Composite] = {}  # by result; one with another adapter stands for the inner one
    for place, call in enumerate(graph.calls):
        if call.kind != "add" or len(call.inputs) != 2:
            continue
        for base, other in (call.inputs, call.inputs[::-1]):
            first = found.get(graph.before(base)) or products.get(graph.before(base))
            branch = None if first is None else _branch(graph, other, products)
            if first is None or branch is None:
                continue
            source, members, rank = branch
            if source != _read(graph, first) or rank >= _narrower(graph, first):
                continue
            found.pop(first.result, None)
            found[call.outputs[0]] = replace(
                first,
                members=(*sorted({*first.members, *members}), place),
                result=call.outputs[0],
                operands={},
                definition={},
                bare=None,
            )
            break
    yield from found.values()


def _branch(
    graph: CallGraph, value: int, products: dict[int, Composite]
) -> tuple[int, tuple[int, ...], int] | None:
    """What an adapter reads, its calls, and its rank; None for what is no adapter's result."""
    scaled: tuple[int, ...] = ()
    value = graph.before(value)
    writer = graph.writer(value)
    if writer is not None and graph.kind(writer) == "mul":
        inputs = graph.calls[writer].inputs
        factors = [each for each in inputs[1:] if not is_number(graph, each)]
        if not inputs or factors:
            return None
        scaled, value = (writer,), graph.before(inputs[0])
    up = products.get(value)
    down = None if up is None else products.get(_read(graph, up))
    if up is None or down is None:
        return None
    shape = graph.shapes.get(down.result, ())
    members = (*down.members, *up.members, *scaled)
    return (_read(graph, down), members, shape[-1]) if shape else None


def _read(graph: CallGraph, product: Composite) -> int:
    """What a product reads, before casts and changes of shape."""
    return -1 if product.source is None else graph.before(product.source)


def _narrower(graph: CallGraph, product: Composite) -> int:
    """The smaller of the columns that a product reads and makes."""
    values = [product.result] if product.source is None else [product.source, product.result]
    return min((shape[-1] for each in values if (shape := graph.shapes.get(each))), default=0)
