"""Names that a graph has for what it is given and for what it gives back."""

from __future__ import annotations

from collections.abc import Iterator

from ait_llm.dumps.model import Operation, Tensor


def names_of_node(operation: Operation) -> Iterator[tuple[str, Tensor]]:
    """What a node reads of the inputs of its graph, and what of its results the graph gives.

    Nothing for graphs without names for their results: names of inputs are numbers there.
    """
    run = operation.run
    node = run.nodes.get(operation.name) if run is not None else None
    if run is None or node is None or not run.results:
        return
    by_place = {
        f"{tensor.position}" + ("" if tensor.element is None else f"_{tensor.element}"): tensor
        for tensor in operation.inputs
    }
    for (source, _), label in zip(node.reads, node.labels, strict=True):
        if source in run.sources and label in by_place:
            yield source, by_place[label]
    made = {place: name for name, place in run.results.items()}
    for tensor in operation.outputs:
        if name := made.get((operation.name, tensor.index)):
            yield name, tensor
