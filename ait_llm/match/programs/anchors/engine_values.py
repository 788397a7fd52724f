"""Which FX value a tensor of the engine's graph is: the first claim that the FX dump bears out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from ait_llm.dumps.model import Tensor
from ait_llm.match.programs.anchors.engine_constants import number_of
from ait_llm.match.programs.anchors.engine_inputs import GraphInput, find_graph_inputs, views_of
from ait_llm.match.programs.anchors.node_tensors import Located, NodeTensors, elements, shape_of
from ait_llm.match.programs.anchors.ports import Without
from ait_llm.match.views import Reorder, Reshape, View, shape_after
from ait_llm.program.ge.claims import Claim, Shape, claims
from ait_llm.program.ge.fusion import Fusion
from ait_llm.program.ge.graph import CONSTANTS, TensorId
from ait_llm.program.roles_fx import is_view, reorders
from ait_llm.topology.ge_graph import FxOrigin

_CONSTANT = 0.9  # of a constant: an operator and its node may have other numbers besides


@dataclass(frozen=True, slots=True)
class Found:
    """The FX tensor that answers a tensor.

    Attributes:
        located: the FX tensor.
        relation: ``exact``, ``via cast``, ``view input``, ``graph input`` or ``constant``.
        confidence: in [0, 1].
        why: in a few words.
        views: what brings it to the order and shape of the tensor.
        cast: the tensor that the graph names so, where that is a cast of the one looked for.
    """

    located: Located
    relation: str
    confidence: float
    why: str
    views: tuple[View, ...] = ()
    cast: TensorId | None = None


class EngineValues:
    """The FX values of one execution of the graph engine.

    Args:
        fusion: what its operators are.
        nodes: the FX execution that answers it.
    """

    def __init__(self, fusion: Fusion, nodes: NodeTensors) -> None:
        self._fusion = fusion
        self._nodes = nodes

    def find(self, place: int, tensor: Tensor, meaning: TensorId) -> Found | Without:
        """The FX tensor that a dumped one is, or why there is none.

        Args:
            place: of its operation.
            tensor: the dumped one.
            meaning: what it is in the graph.
        """
        shape = shape_of(tensor)
        is_constant = self._fusion.graph.type_of(meaning) in CONSTANTS
        found = self._constant(place, tensor) if is_constant else self._claimed(meaning, shape)
        if isinstance(found, str):
            # the converter computes sizes with operators of its own
            is_size = not tensor.dtype.is_floating and not any(claims(self._fusion, meaning, shape))
            return Without(found, by_nature=is_constant or is_size)
        of_fx = shape_of(found.located[1])
        if of_fx is None:
            return replace(found, views=())
        views = found.views if shape is None else (*found.views, Reshape(shape))
        return replace(found, views=_shortened(of_fx, views))

    def is_identical(self, tensor: TensorId) -> bool:
        """True for an input of the graph that has the same values on both sides."""
        known = self._inputs.get(tensor)
        return known is not None and known.identical

    @cached_property
    def _inputs(self) -> Mapping[TensorId, GraphInput]:
        return find_graph_inputs(self._fusion, self._nodes)

    def _claimed(self, tensor: TensorId, shape: Shape | None) -> Found | str:
        kind = self._fusion.graph.type_of(tensor)
        if not kind:
            return f"the graph has no operator {tensor[0]}"
        refusal = f"the graph names no FX tensor for this {kind}"
        for claim in claims(self._fusion, tensor, shape):
            if claim.origin is None:
                found = self._graph_input(claim.tensor)
            else:
                found = self._named(claim, claim.origin)
            if not isinstance(found, str):
                return replace(
                    found,
                    relation="via cast" if claim.through_cast else found.relation,
                    views=(*found.views, *views_of(claim.turns)),
                    why=found.why + ", transposed" * len(claim.turns),
                )
            refusal = found if claim.tensor == tensor else refusal
        return refusal

    def _graph_input(self, tensor: TensorId) -> Found | str:
        known = self._inputs.get(tensor)
        title = f"graph input {tensor[0]}"
        if known is None:
            return f"{title}: no argument of an FX node has its values"
        name = known.located[0].operation.name
        why = f"{title}, which {name} reads as this argument"
        if known.identical:
            why = f"{title}, argument of {name} with the same values"
        confidence = 1.0 if known.identical else 0.9
        return Found(known.located, "graph input", confidence, why, known.views)

    def _named(self, claim: Claim, origin: FxOrigin) -> Found | str:
        """The result that a name means, or the argument of a view that took the name over."""
        node, path = origin.node, ".".join(map(str, origin.path))
        result = self._nodes.result(node, origin.path)
        if result is None:
            return f"FX node {node} has no OUTPUT.{path} in the dump"
        target, shape = result[0].operation.type, claim.shape
        count = None if shape is None else prod(shape)
        fits = count is None or elements(result[1]) in (count, None)
        before = self._nodes.argument(node) if is_view(target) else None
        looked_at = f"what {node} looks at"
        if reorders(target) and not claim.transposes:  # dims alone do not tell a square
            if before is None or elements(before[1]) != count:
                return f"is what FX node {node} looks at, which is not in the dump"
            return Found(before, "view input", 0.9, looked_at)
        if before is not None and not (fits and _same_dims(shape, shape_of(result[1]))):
            if _same_dims(shape, shape_of(before[1])):
                return Found(before, "view input", 0.9, looked_at)
            if not fits and elements(before[1]) == count:
                return Found(before, "view input", 0.8, looked_at)
        if not fits:
            found = elements(result[1])
            return f"{found} elements in OUTPUT.{path} of FX node {node}, {count} here"
        why = f"OUTPUT.{path} of {node}"
        if claim.named == claim.tensor:
            return Found(result, "exact", 1.0, why)
        return Found(result, "via cast", 0.95, why, cast=claim.named)

    def _constant(self, place: int, tensor: Tensor) -> Found | str:
        """A constant with the number that the FX node was given for it."""
        located = number_of(self._fusion, self._nodes, place, tensor)
        if located is None:
            return "is a constant of the graph"
        why = f"constant that {located[0].operation.name} was given"
        return Found(located, "constant", _CONSTANT, why)


def _shortened(shape: Shape, views: Iterable[View]) -> tuple[View, ...]:
    """Views without those that leave a tensor of this shape as it is."""
    found: list[View] = []
    for view in views:
        before = found[-1] if found else None
        if isinstance(view, Reorder):
            if isinstance(before, Reorder):
                view = Reorder(tuple(before.axes[axis] for axis in view.axes))
                found.pop()
            if view.axes != tuple(range(len(view.axes))):
                found.append(view)
        elif not isinstance(view, Reshape) or shape_after(shape, found) != view.shape:
            found.append(view)
    return tuple(found)


def _same_dims(first: Shape | None, second: Shape | None) -> bool:
    """True if two shapes differ by axes of length one at most, or one is not known."""
    if first is None or second is None:
        return first is second
    return [length for length in first if length != 1] == [
        length for length in second if length != 1
    ]
