"""Which FX tensor a tensor of the graph engine is.

Tensors are compared by identity, never by the position of an argument: the converter from FX to the
graph engine reorders arguments, turns one node into several operators and names only the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.match.by_fusion.fusion import Fusion
from ait_llm.match.by_fusion.fx_tensors import (
    FxTensors,
    Located,
    elements,
    is_view,
    reorders,
    shape_of,
)
from ait_llm.match.by_fusion.graph import CONSTANTS, INPUTS, TensorId
from ait_llm.match.by_fusion.graph_inputs import (
    TRANSPOSES,
    GraphInput,
    shortened,
    transposition,
)
from ait_llm.match.by_fusion.topology import ALIASES
from ait_llm.match.operators import Placed
from ait_llm.match.views import Reorder, Reshape, View, shape_after
from ait_llm.topology.ge_graph import FxOrigin, GeOp

_SAME_VALUES = frozenset({"Cast", "Identity"})
_STEPS = 8  # operators without a name that are followed back to one with a name


@dataclass(frozen=True, slots=True)
class Found:
    """The FX tensor that answers a tensor.

    Attributes:
        located: the FX tensor.
        views: what brings it to the order of the tensor's elements.
        relation: ``exact``, ``via cast``, ``view input`` or ``graph input``.
        confidence: in [0, 1].
        why: in a few words.
        cast: the tensor that the graph names so, where that is a cast of the one looked for.
    """

    located: Located
    views: tuple[View, ...]
    relation: str
    confidence: float
    why: str
    cast: TensorId | None = None


class Identity:
    """Finds FX tensors for the tensors of one execution.

    Args:
        operations: of the graph engine.
        fusion: what they are.
        fx: the other side.
        inputs: of the graph, where they were found.
    """

    def __init__(
        self,
        operations: list[Placed],
        fusion: Fusion,
        fx: FxTensors,
        inputs: Mapping[TensorId, GraphInput],
    ) -> None:
        self._operations = operations
        self._fusion = fusion
        self._fx = fx
        self._inputs = inputs

    def find(self, tensor: TensorId, dumped: Tensor) -> Found | str:
        """The FX tensor that a dumped tensor is, or why there is none.

        Args:
            tensor: what it is in the graph.
            dumped: its file.
        """
        found = self._find(tensor, shape_of(dumped), 0)
        if isinstance(found, str):
            return found
        shape, of_fx = shape_of(dumped), shape_of(found.located[1])
        if shape is None or of_fx is None or shape == shape_after(of_fx, found.views):
            return found
        return replace(found, views=(*found.views, Reshape(shape)))

    def _find(self, tensor: TensorId, shape: tuple[int, ...] | None, depth: int) -> Found | str:
        graph = self._fusion.graph
        op = graph.op(tensor[0])
        if op is None:
            return f"the graph has no operator {tensor[0]}"
        if op.type in INPUTS:
            return self._graph_input(tensor)
        if op.type in CONSTANTS:
            return "is a constant of the graph"
        origin, relation = graph.origin(tensor), "exact"
        cast = self._cast_of(tensor) if origin is None else None
        if cast is not None:
            origin, relation = graph.origin(cast), "via cast"
        refusal = ""
        if origin is not None:
            found = self._named(op, origin, relation, shape)
            if isinstance(found, Found):
                return replace(found, cast=cast)
            refusal = found
        if depth < _STEPS and op.inputs:
            through = self._through(op, shape, depth + 1)
            if through is not None:
                return through
        return refusal or f"the graph names no FX tensor for this {op.type}"

    def _graph_input(self, tensor: TensorId) -> Found | str:
        known = self._inputs.get(tensor)
        if known is None:
            return f"graph input {tensor[0]}: no argument of an FX node has its values"
        name = known.located[0].operation.name
        if known.identical:
            why = f"graph input {tensor[0]}, argument of {name} with the same values"
            return Found(known.located, known.views, "graph input", 1.0, why)
        why = f"graph input {tensor[0]}, which {name} reads as this argument"
        return Found(known.located, known.views, "graph input", 0.9, why)

    def _cast_of(self, tensor: TensorId) -> TensorId | None:
        """The cast of a tensor to which the converter gave the name of both."""
        for reader in self._fusion.graph.consumers(tensor):
            cast = (reader.name, 0)
            if (
                reader.type in _SAME_VALUES
                and self._fusion.graph.origin(cast) is not None
                and self._keeps_kind(reader, tensor)
            ):
                return cast
        return None

    def _keeps_kind(self, cast: GeOp, before: TensorId) -> bool:
        """False for a cast between floats and integers, as far as the dump or graph tells."""
        kinds = [self._is_floating(each) for each in (before, (cast.name, 0))]
        return None in kinds or kinds[0] == kinds[1]

    def _is_floating(self, tensor: TensorId) -> bool | None:
        for place in self._fusion.writers(tensor):
            index = self._fusion.decoded[place].outputs.index(tensor)
            for dumped in self._operations[place].operation.outputs:
                if dumped.index == index:
                    try:
                        return dumped.dtype.is_floating
                    except AitError:
                        return None
        dtype = self._fusion.graph.dtype(tensor)
        return dtype.is_floating if dtype is not None else None

    def _named(
        self, op: GeOp, origin: FxOrigin, relation: str, shape: tuple[int, ...] | None
    ) -> Found | str:
        """The result that a name means, or the argument of a view that took the name over."""
        result = self._fx.result(origin.node, origin.path)
        path = ".".join(map(str, origin.path))
        if result is None:
            return f"FX node {origin.node} has no OUTPUT.{path} in the dump"
        target = result[0].operation.type
        count = None if shape is None else prod(shape)
        fits = count is None or elements(result[1]) in (count, None)
        why = f"OUTPUT.{path} of {origin.node}"
        confidence = 1.0 if relation == "exact" else 0.95
        before = self._fx.argument(origin.node) if is_view(target) else None
        if reorders(target) and op.type not in TRANSPOSES:  # dims alone do not tell a square
            if before is None or elements(before[1]) != count:
                return f"is what FX node {origin.node} looks at, which is not in the dump"
            return Found(before, (), "view input", 0.9, f"what {origin.node} looks at")
        if is_view(target) and not (fits and _same_dims(shape, shape_of(result[1]))):
            if before is not None and _same_dims(shape, shape_of(before[1])):
                return Found(before, (), "view input", 0.9, f"what {origin.node} looks at")
            if not fits and before is not None and elements(before[1]) == count:
                return Found(before, (), "view input", 0.8, f"what {origin.node} looks at")
        if not fits:
            return (
                f"{elements(result[1])} elements in OUTPUT.{path} of FX node {origin.node}, "
                f"{count} here"
            )
        return Found(result, (), relation, confidence, why)

    def _through(self, op: GeOp, shape: tuple[int, ...] | None, depth: int) -> Found | None:
        """What an operator without a name makes of a tensor that has one."""
        before = op.inputs[0]
        if op.type in ALIASES:
            return self._if_found(before, shape, depth)
        if op.type == "Cast" and self._keeps_kind(op, before):
            found = self._if_found(before, shape, depth)
            return None if found is None else replace(found, relation="via cast")
        if op.type in TRANSPOSES:
            return self._transposed(op, depth)
        return None

    def _if_found(
        self, tensor: TensorId, shape: tuple[int, ...] | None, depth: int
    ) -> Found | None:
        found = self._find(tensor, shape, depth)
        return found if isinstance(found, Found) else None

    def _transposed(self, op: GeOp, depth: int) -> Found | None:
        """What a transpose made of a tensor that has a name."""
        order = transposition(op, self._fusion, self._operations)
        found = None if order is None else self._if_found(op.inputs[0], order[0], depth)
        shape = None if found is None else shape_of(found.located[1])
        if order is None or found is None or shape is None:
            return None
        dims, axes = order
        views = shortened(shape, (*found.views, Reshape(dims), Reorder(axes)))
        return replace(found, views=views, why=f"{found.why}, transposed")


def _same_dims(first: tuple[int, ...] | None, second: tuple[int, ...] | None) -> bool:
    """True if two shapes differ by axes of length one at most, or one is not known."""
    if first is None or second is None:
        return first is second
    return [length for length in first if length != 1] == [
        length for length in second if length != 1
    ]
