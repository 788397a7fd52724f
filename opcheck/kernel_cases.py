"""From one launch of a kernel of a compiled graph to the golden operator of what it fused.

The capture wrote down the graph before compilation, which of its nodes each kernel fused and which
of its values each buffer holds. The nodes are computed from the kernel's own buffers; what another
kernel computed is never computed again here, so that its faults are not taken for this one's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ait_llm.dumps.fx_kernels import KernelBuffer, KernelLaunch
from ait_llm.dumps.fx_nodes import GraphNode
from ait_llm.dumps.model import GraphRun, Operation, Tensor
from ait_llm.opcheck.case import Case, NoCase
from ait_llm.opcheck.graph_values import Made, described, empty_value
from ait_llm.program.symbols import size_of, symbols_of

if TYPE_CHECKING:
    import torch

    from ait_llm.opcheck.golden.aten import NodeCall

_NO_WEIGHTS = NoCase(
    "are kernels that read weights or sizes that were not saved; dump with --weights"
)
_PRIVATE = NoCase("are kernels that store only what no operator of the program returns")


def kernel_case(operation: Operation, launch: KernelLaunch, run: GraphRun) -> Case | NoCase:
    """How a launch is computed again, through the nodes that it fused."""
    from ait_llm.opcheck.golden.aten import NodeGraph
    from ait_llm.opcheck.golden.functions import golden_function

    inputs: dict[Made, Tensor] = {}
    for tensor in operation.inputs:
        made = _made(_buffer(launch.inputs, tensor), run.nodes)
        if made is not None:
            inputs.setdefault(made, tensor)
    outputs: dict[Made, Tensor] = {}
    covered = set(launch.source)
    for tensor in operation.outputs:
        buffer = _buffer(launch.outputs, tensor)
        made = _made(buffer, run.nodes)
        if buffer is not None and made is not None and buffer.value is not None:
            covered |= {*buffer.covers, made[0]}
            if buffer.value.role == "out" and _has_dims(run, made, tensor):
                outputs.setdefault(made, tensor)
    if not outputs:
        return _PRIVATE
    symbols = symbols_of(_sizes(run, {**outputs, **inputs}))
    calls = {
        name: _call(run, node, symbols)
        for name in covered
        if (node := run.nodes.get(name)) is not None
    }
    given: dict[Made, Tensor | torch.Tensor] = {**_empty(run, calls), **inputs}
    graph = NodeGraph(calls, list(given), list(outputs))
    if any(made[0] in run.sources or made[0] not in run.nodes for made in graph.open_ends()):
        return _NO_WEIGHTS
    if reason := graph.why_not():
        return NoCase(f"are kernels that {reason}")
    return Case(
        golden_function(operation.type, graph),
        {"kernel": launch.kernel, "fused": list(launch.source)},
        lambda: [one.torch() if isinstance(one, Tensor) else one for one in given.values()],
        lambda: dict(enumerate(outputs.values())),
    )


def _buffer(buffers: tuple[KernelBuffer, ...], tensor: Tensor) -> KernelBuffer | None:
    return buffers[tensor.position] if tensor.position < len(buffers) else None


def _made(buffer: KernelBuffer | None, nodes: Mapping[str, GraphNode]) -> Made | None:
    """What a buffer holds: a result of a node, or the input of the graph that one reads."""
    value = None if buffer is None else buffer.value
    if value is None:
        return None
    if value.role == "out":
        return value.node, value.index
    node = nodes.get(value.node)
    if node is None or node.places.count(value.index) != 1:
        return None
    return node.reads[node.places.index(value.index)]


def _has_dims(run: GraphRun, made: Made, tensor: Tensor) -> bool:
    """False where a buffer has other dims than the value that it holds."""
    value = described(run, made)
    return value is None or (
        len(value.dims) == len(tensor.shape)
        and all(
            isinstance(dim, str) or dim == size
            for dim, size in zip(value.dims, tensor.shape, strict=True)
        )
    )


def _sizes(
    run: GraphRun, tensors: Mapping[Made, Tensor]
) -> Iterator[tuple[tuple[int | str, ...], tuple[int, ...]]]:
    for made, tensor in tensors.items():
        if (value := described(run, made)) is not None:
            yield value.dims, tuple(tensor.shape)


def _call(run: GraphRun, node: GraphNode, symbols: Mapping[str, int]) -> NodeCall:
    """A node with the sizes of this execution; what is no tensor is no result of a node."""
    from ait_llm.opcheck.golden.aten import NodeCall

    plain: dict[str, Any] = {**node.definition, **node.items}
    tensors = {}
    for label, made in zip(node.labels, node.reads, strict=True):
        value = described(run, made)
        size = size_of(value.text, symbols) if value is not None and value.text else None
        if size is None:
            tensors[label] = made
        else:
            plain[label] = size
    return NodeCall(node.target, plain, tensors)


def _empty(run: GraphRun, calls: Mapping[str, NodeCall]) -> dict[Made, torch.Tensor]:
    """Tensors without elements, which no capture needs to save."""
    found = {}
    for call in calls.values():
        for made in call.tensors.values():
            if (empty := empty_value(run, made)) is not None:
                found[made] = empty
    return found
