"""``torch_atb.GraphBuilder`` and ``torch_atb.Builder``: graphs over named tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ait_llm.errors import OperationError
from ait_llm.hostatb.operation import GraphNode, Operation
from ait_llm.hostatb.params import Param

MAX_TENSORS = 256

ReshapeHandler = Callable[[list[int]], Sequence[int]]


class _Names:
    """Tensor names of a graph and the shapes under which other names see them."""

    def __init__(self, graph: str) -> None:
        self.graph = graph
        self.ids: dict[str, int] = {}
        self.views: dict[str, tuple[str, ReshapeHandler]] = {}

    def number(self, names: Iterable[str], kind: str) -> int:
        """Give the next ids to names; returns how many.

        Raises:
            OperationError: a name is taken, or there are too many.
        """
        added = list(names)
        if len(added) > MAX_TENSORS:
            raise OperationError(
                f"graph {self.graph!r} has {len(added)} {kind} tensors; at most {MAX_TENSORS} fit"
            )
        for name in added:
            if name in self.ids:
                raise OperationError(f"graph {self.graph!r} has two tensors named {name!r}")
            self.ids[name] = len(self.ids)
        return len(added)

    def source(self, name: str) -> str:
        """The tensor behind a name that a reshape introduced."""
        while name in self.views:
            name = self.views[name][0]
        return name

    def reshape(self, name: str) -> ReshapeHandler | None:
        """How ``name`` sees its tensor; None for its own shape."""
        chain = []
        while name in self.views:
            name, handler = self.views[name]
            chain.append(handler)
        if not chain:
            return None

        def combined(shape: list[int]) -> Sequence[int]:
            for handler in reversed(chain):
                shape = list(handler(shape))
            return shape

        return combined

    def reshapes(self, names: Sequence[str]) -> dict[int, ReshapeHandler]:
        """Shape functions of a node's inputs, by index."""
        found = ((index, self.reshape(name)) for index, name in enumerate(names))
        return {index: handler for index, handler in found if handler is not None}


class GraphBuilder:
    """Builds a graph of operations that exist already; every method returns the builder.

    Args:
        name: name of the graph, which becomes its operation type.

    Example:
        >>> graph = (GraphBuilder("Graph")                                  # doctest: +SKIP
        ...     .set_input_output(["x", "y"], ["out"])
        ...     .add_operation(add, ["x", "y"], ["sum"])
        ...     .reshape("sum", lambda shape: [1, shape[0] * shape[1]], "flat")
        ...     .add_operation(mul, ["flat", "flat"], ["out"])
        ...     .build())
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._names = _Names(name)
        self._inputs = 0
        self._outputs = 0
        self._nodes: list[tuple[Operation, list[str], list[str]]] = []

    def set_input_output(self, inputs: Sequence[str], outputs: Sequence[str]) -> GraphBuilder:
        """Name the tensors that the graph takes and gives.

        Raises:
            OperationError: names repeat, or there are too many.
        """
        self._inputs = self._names.number(inputs, "input")
        self._outputs = self._names.number(outputs, "output")
        return self

    def reshape(self, source: str, handler: ReshapeHandler, name: str) -> GraphBuilder:
        """Let ``name`` be ``source`` with the shape ``handler(shape)``."""
        self._names.views[name] = (source, handler)
        return self

    def add_operation(
        self, operation: Operation, inputs: Sequence[str], outputs: Sequence[str]
    ) -> GraphBuilder:
        """Append a node; names that are neither inputs nor outputs are internal tensors.

        Raises:
            OperationError: the numbers of tensors do not fit, or the operation is in use.
        """
        _check_counts(self._name, operation, inputs, outputs)
        if any(operation is known for known, *_ in self._nodes):
            raise OperationError(f"{operation.name} is in graph {self._name!r} already")
        self._nodes.append((operation, list(inputs), list(outputs)))
        return self

    def build(self) -> Operation:
        """The graph as one operation; the operations in it cannot be used elsewhere.

        Raises:
            OperationError: a node reads a tensor that nothing makes, or an operation is in use.
        """
        names = self._names
        known = {name for name, index in names.ids.items() if index < self._inputs}
        internal: dict[str, None] = {}
        for operation, inputs, outputs in self._nodes:
            _check_known(self._name, operation, [names.source(name) for name in inputs], known)
            made = [names.source(name) for name in outputs]
            internal.update(dict.fromkeys(name for name in made if name not in names.ids))
            known.update(made)
        names.number(internal, "internal")
        nodes = [
            GraphNode(
                operation,
                tuple(names.ids[names.source(name)] for name in inputs),
                tuple(names.ids[names.source(name)] for name in outputs),
                names.reshapes(inputs),
            )
            for operation, inputs, outputs in self._nodes
        ]
        return Operation.from_nodes(self._name, self._inputs, self._outputs, nodes)


class Node:
    """A node that :meth:`Builder.add_node` made.

    Attributes:
        operation: what it runs.
        inTensorIds, outTensorIds: names of its tensors.
    """

    def __init__(self, operation: Operation, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self.operation = operation
        self.inTensorIds = list(inputs)
        self.outTensorIds = list(outputs)
        self._stream = 0

    def set_op(self, operation: Operation) -> None:
        """Run another operation."""
        self.operation = operation

    def get_output(self, index: int) -> str:
        """Name of an output tensor.

        Raises:
            IndexError: the operation has no such output.
        """
        if not 0 <= index < len(self.outTensorIds):
            raise IndexError(
                f"{self.operation.name} has {len(self.outTensorIds)} outputs, not number {index}"
            )
        return self.outTensorIds[index]

    def set_stream_id(self, stream: int) -> None:
        """Choose a stream; nodes run in their order whatever it is."""
        self._stream = stream

    def get_stream_id(self) -> int:
        """The stream chosen, 0 by default."""
        return self._stream


class Builder:
    """Builds a graph whose outputs are marked among its nodes' outputs.

    Args:
        name: name of the graph, which becomes its operation type.

    Example:
        >>> builder = Builder("Graph")                                      # doctest: +SKIP
        >>> x, y = builder.add_input("x"), builder.add_input("y")           # doctest: +SKIP
        >>> node = builder.add_node([x, y], ElewiseParam(...))              # doctest: +SKIP
        >>> builder.mark_output(node.get_output(0))                         # doctest: +SKIP
        >>> graph = builder.build()                                         # doctest: +SKIP
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._names = _Names(name)
        self._inputs: list[str] = []
        self._marked: list[str] = []
        self._nodes: list[Node] = []

    def add_input(self, name: str) -> str:
        """Append an input tensor; returns its name.

        Raises:
            OperationError: the name is taken.
        """
        if name in self._inputs:
            raise OperationError(f"graph {self._name!r} has two inputs named {name!r}")
        self._inputs.append(name)
        return name

    def add_node(self, inputs: Sequence[str], operation: Operation | Param) -> Node:
        """Append a node that runs an operation, or a new one with these parameters.

        Raises:
            OperationError: the number of inputs does not fit, or the operation is in use.
        """
        if isinstance(operation, Param):
            operation = Operation(operation)
        if any(operation is node.operation for node in self._nodes):
            raise OperationError(f"{operation.name} is in graph {self._name!r} already")
        outputs = [
            f"node{len(self._nodes)}_outTensor{index}_{operation.name}"
            for index in range(operation.output_num)
        ]
        _check_counts(self._name, operation, inputs, outputs)
        node = Node(operation, inputs, outputs)
        self._nodes.append(node)
        return node

    def reshape(self, source: str, handler: ReshapeHandler, name: str) -> Builder:
        """Let ``name`` be ``source`` with the shape ``handler(shape)``."""
        self._names.views[name] = (source, handler)
        return self

    def mark_output(self, name: str) -> None:
        """Make a node's output an output of the graph.

        Raises:
            OperationError: no node makes it, or it is marked already.
        """
        if not any(name in node.outTensorIds for node in self._nodes):
            raise OperationError(
                f"{name!r} is no output of a node of graph {self._name!r}; mark what "
                "get_output() of a node returned"
            )
        if name in self._marked:
            raise OperationError(f"{name!r} is an output of graph {self._name!r} already")
        self._marked.append(name)

    def set_execute_streams(self, streams: Sequence[int]) -> None:
        """Accepted for compatibility: nodes run in their order whatever their streams are.

        Raises:
            OperationError: a stream is null, as ``torch_atb`` refuses it.
        """
        if not all(streams):
            raise OperationError("execute streams must not be null")

    def build(self) -> Operation:
        """The graph as one operation; the operations in it cannot be used elsewhere.

        Outputs that a node makes in the memory of one of its inputs (caches) stay there, unless
        they are marked.

        Raises:
            OperationError: a node reads a tensor that nothing makes, or an operation is in use.
        """
        builder = GraphBuilder(self._name).set_input_output(self._inputs, self._marked)
        for name, (source, handler) in self._names.views.items():
            builder.reshape(source, handler, name)
        places: dict[str, str] = {}
        for node in self._nodes:
            operation = node.operation
            inputs = [places.get(name, name) for name in node.inTensorIds]
            for name, alias in zip(node.outTensorIds, operation.output_aliases, strict=True):
                if alias is not None and name not in self._marked:
                    places[name] = self._names.source(inputs[alias])
            outputs = [places.get(name, name) for name in node.outTensorIds]
            builder.add_operation(operation, inputs, outputs)
        return builder.build()


def _check_counts(
    graph: str, operation: Operation, inputs: Sequence[str], outputs: Sequence[str]
) -> None:
    for kind, names, count in (
        ("inputs", inputs, operation.input_num),
        ("outputs", outputs, operation.output_num),
    ):
        if len(names) != count:
            raise OperationError(
                f"graph {graph!r}: {operation.name} has {count} {kind}, {len(names)} are given"
            )


def _check_known(graph: str, operation: Operation, names: Iterable[str], known: set[str]) -> None:
    for name in names:
        if name not in known:
            raise OperationError(
                f"graph {graph!r}: {operation.name} reads {name!r}, which is neither an input nor "
                "an output of an earlier node"
            )
