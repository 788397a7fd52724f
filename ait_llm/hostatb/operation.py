"""``torch_atb.Operation``: one operator or a whole graph, run on CPU tensors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from ait_llm.core import OpId, TensorDesc
from ait_llm.errors import OperationError, UnknownNameError
from ait_llm.hostatb.context import current_context
from ait_llm.hostatb.injection import active_faults
from ait_llm.hostatb.leaf import OperatorLeaf
from ait_llm.hostatb.native import NativeGraph, NativeLeaf, NativeOperation, NativeStatusError
from ait_llm.hostatb.operators import operator_specs
from ait_llm.hostatb.params import Param
from ait_llm.hostatb.profile import Prof
from ait_llm.hostatb.site import LAYER_WORD, Clock, Site, top_level
from ait_llm.hostatb.tensors import empty_tensor, native_tensor


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of a graph under construction.

    Attributes:
        operation: what it runs.
        inputs, outputs: tensor ids: graph inputs, then outputs, then internals.
        reshapes: shape functions by index of the node's input.
    """

    operation: Operation
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    reshapes: dict[int, Callable[[list[int]], Sequence[int]]]


class Operation:
    """An operation of the acceleration library.

    Args:
        param: the parameters; they are read once, later changes to the object have no effect.

    Raises:
        UnknownNameError: hostatb does not compute this type of operation.
        OperationError: the parameters have values that the library refuses.

    Example:
        >>> param = LinearParam(has_bias=False)                             # doctest: +SKIP
        >>> outputs = Operation(param).forward([x, weight])                 # doctest: +SKIP
    """

    def __init__(self, param: Param) -> None:
        if not isinstance(param, Param):
            raise OperationError(
                f"an Operation is made from a parameter object such as LinearParam, "
                f"not from {type(param).__name__}"
            )
        spec_name = type(param).__name__.removesuffix("Param") + "Operation"
        if spec_name not in operator_specs:
            raise UnknownNameError(
                f"hostatb does not compute {spec_name}; known: {', '.join(operator_specs)}"
            )
        active_faults()  # an unknown fault is told before anything runs
        spec = operator_specs.get(spec_name)
        entries = param.entries(printed_only=False)
        inputs, outputs = spec.tensor_names(entries)
        self._leaf: OperatorLeaf | None = OperatorLeaf(spec, entries)
        native = NativeLeaf(
            param.operation,
            self._leaf,
            len(inputs),
            len(outputs),
            param_json=param.to_json() if spec.has_param_json else None,
            input_names=inputs,
            output_names=outputs,
        )
        aliases = spec.output_aliases(entries) or (None,) * len(outputs)
        updated = {*spec.updated_inputs(entries), *(i for i in aliases if i is not None)}
        self._start(native, (), aliases, frozenset(updated))

    @classmethod
    def from_nodes(
        cls, name: str, input_count: int, output_count: int, nodes: Sequence[GraphNode]
    ) -> Operation:
        """A graph operation; it takes the nodes' operations over.

        Raises:
            OperationError: an operation belongs to another graph, or tensor ids do not fit.
        """
        self = cls.__new__(cls)
        self._leaf = None
        ids = [index for node in nodes for index in (*node.inputs, *node.outputs)]
        internal_count = max([0, *(index + 1 for index in ids)]) - input_count - output_count
        native = NativeGraph(name, input_count, output_count, max(0, internal_count))
        aliases: dict[int, int | None] = {}
        updated: set[int] = set()
        for node in nodes:
            node.operation._give_to(native, node)
            for output, alias in zip(node.outputs, node.operation._aliases, strict=True):
                source = None if alias is None else node.inputs[alias]
                aliases[output] = None if source is None else (aliases.get(source) or source)
            updated.update(node.inputs[index] for index in node.operation._updated)
        outputs = range(input_count, input_count + output_count)
        resolved = [aliases.get(index) for index in outputs]
        self._start(
            native,
            tuple(node.operation for node in nodes),
            tuple(i if i is not None and i < input_count else None for i in resolved),
            frozenset(index for index in updated if index < input_count),
        )
        return self

    def _start(
        self,
        native: NativeOperation,
        children: tuple[Operation, ...],
        aliases: tuple[int | None, ...],
        updated: frozenset[int],
    ) -> None:
        self._native = native
        self._children = children
        self._aliases = aliases
        self._updated = updated
        self._clock = Clock()
        self._running = threading.Lock()
        self._op_id: OpId | None = None
        self._in_graph: str | None = None
        self._shapes: dict[tuple[TensorDesc, ...], list[TensorDesc]] = {}

    def _give_to(self, graph: NativeGraph, node: GraphNode) -> None:
        reshapes = node.reshapes

        def reshape(index: int, desc: TensorDesc) -> TensorDesc:
            change = reshapes.get(index)
            if change is None:
                return desc
            return TensorDesc(desc.dtype, tuple(change(list(desc.shape))), desc.format)

        graph.add_node(self._native, node.inputs, node.outputs, reshape if reshapes else None)
        self._in_graph = graph.type_name

    @property
    def name(self) -> str:
        """The operation type, or the graph's name."""
        return self._native.type_name

    @property
    def input_num(self) -> int:
        """Number of input tensors."""
        return self._native.input_count

    @property
    def output_num(self) -> int:
        """Number of output tensors."""
        return self._native.output_count

    @property
    def output_aliases(self) -> tuple[int | None, ...]:
        """For each output the input whose memory it is; None for one with memory of its own."""
        return self._aliases

    @property
    def op_id(self) -> OpId | None:
        """Id of the operation, as in dumps; None before its first run."""
        return self._op_id

    def __repr__(self) -> str:
        return f"op name: {self.name}, input_num: {self.input_num}, output_num: {self.output_num}"

    def forward(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Set up and execute the operation once.

        Args:
            inputs: CPU tensors in the order of the operation; ``torch.empty(0)`` stands for an
                absent optional one. In-place operators change them.

        Returns:
            New tensors of the inferred shapes; where an operator works in place, the changed
            input itself.

        Raises:
            OperationError: the tensors do not fit, or a kernel failed; the message names the
                operation, its id and the tensors.
        """
        begin = time.perf_counter_ns()
        if self._in_graph is not None:
            raise OperationError(
                f"{self.name} is a node of graph {self._in_graph!r} and cannot run on its own; "
                "create another Operation"
            )
        given = list(inputs)
        tensors = [self._usable(index, tensor) for index, tensor in enumerate(given)]
        natives = [native_tensor(tensor) for tensor in tensors]
        descs = tuple(native.desc for native in natives)
        try:
            outputs = self._outputs(descs, tensors)
            native_outputs = [native_tensor(tensor) for tensor in outputs]
            context = current_context()
            with self._running:  # what it executes is what it was set up for
                if self._op_id is None:
                    with top_level.lock:  # our numbers and the runtime's are taken in one order
                        self._place()
                        self._native.setup(context, natives, native_outputs)
                else:
                    self._native.setup(context, natives, native_outputs)
                self._clock.step += 1
                self._native.execute(context, natives, native_outputs)
        except OperationError as error:
            raise self._explained(error, descs) from error
        for index in self._updated:
            if tensors[index] is not given[index]:
                given[index].copy_(tensors[index])
        Prof.get_prof_stats().add_run_time(self.name, (time.perf_counter_ns() - begin) // 1000)
        return outputs

    def _usable(self, index: int, tensor: Tensor) -> Tensor:
        if not isinstance(tensor, Tensor) or tensor.device.type != "cpu":
            kind = tensor.device if isinstance(tensor, Tensor) else type(tensor).__name__
            raise OperationError(
                f"{self.name}: input {index} is {kind}; hostatb computes on CPU tensors"
            )
        return tensor if tensor.is_contiguous() else tensor.contiguous()

    def _outputs(self, descs: tuple[TensorDesc, ...], tensors: list[Tensor]) -> list[Tensor]:
        found = self._shapes.get(descs)
        if found is None:
            found = self._shapes[descs] = self._native.infer_shape(descs)
        return [
            empty_tensor(desc) if alias is None else tensors[alias]
            for desc, alias in zip(found, self._aliases, strict=True)
        ]

    def _place(self) -> None:
        """Number the operation and tell its leaves where they are, at its first Setup."""
        number, ordinal = top_level.number(self.name)
        layer = ordinal if LAYER_WORD in self.name.lower() and self._children else None
        self._settle((number,), layer, self._clock)

    def _settle(self, ids: tuple[int, ...], layer: int | None, clock: Clock) -> None:
        self._op_id = OpId(ids)
        if self._leaf is not None:
            self._leaf.site = Site(self._leaf.spec.name, self._op_id, layer, clock)
        seen: dict[str, int] = {}
        for index, child in enumerate(self._children):
            inner = layer
            if inner is None and child._children and LAYER_WORD in child.name.lower():
                inner = seen.get(child.name, 0)
                seen[child.name] = inner + 1
            child._settle((*ids, index), inner, clock)

    def _explained(self, error: OperationError, descs: Sequence[TensorDesc]) -> OperationError:
        shapes = ", ".join(f"{desc.dtype.label}{list(desc.shape)}" for desc in descs)
        place = "" if self._op_id is None else f" (operation {self._op_id})"
        reason = str(error)
        cause = error.__cause__
        if isinstance(error, NativeStatusError) and isinstance(cause, OperationError):
            reason = str(cause)
        return OperationError(f"{self.name}{place} failed on inputs {shapes}: {reason}")
