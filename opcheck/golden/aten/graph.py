"""Several aten operators as one function: what a compiler fused into one kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ait_llm.opcheck.golden.aten.calls import TENSORS, build_call, find_operator
from ait_llm.opcheck.golden.aten.choices import other_choices
from ait_llm.opcheck.golden.aten.kinds import BY_STRIDES, why_unchecked
from ait_llm.opcheck.golden.aten.operators import run_call, tensors_of
from ait_llm.opcheck.golden.aten.written_out import arguments, written_out
from ait_llm.opcheck.golden.base import UnverifiableError

_VIEWS = frozenset({"view", "_unsafe_view"})
Made = tuple[str, int]
"""A node of a graph, and which of its results."""


@dataclass(frozen=True, slots=True)
class NodeCall:
    """A node of a graph before compilation.

    Attributes:
        type: ``aten.mul.Tensor``.
        plain: arguments that are no results of nodes, by place or name: ``1``, ``1_0``, ``dim``.
        tensors: the others, in the same way, with what each is.
    """

    type: str
    plain: Mapping[str, Any]
    tensors: Mapping[str, Made]


@dataclass(frozen=True)
class NodeGraph:
    """Nodes as one function of the tensors that come from outside of them.

    Attributes:
        nodes: by name.
        inputs: what it is given, in order.
        outputs: what it makes.
    """

    nodes: Mapping[str, NodeCall]
    inputs: Sequence[Made]
    outputs: Sequence[Made]

    def why_not(self) -> str:
        """Why it cannot be computed, as the end of a sentence about several; empty if it can."""
        for name in self.needed():
            node = self.nodes.get(name)
            if node is None:
                return "read values that no buffer of theirs holds"
            if find_operator(node.type) is None:
                return "fuse operators that have no golden operator"
            if reason := why_unchecked(node.type):
                return f"fuse operators that {reason}"
            if node.type.split(".")[1] in BY_STRIDES:
                return "look at memory by strides, which such dumps do not record"
            if other_choices(node.type) is not None:
                return "fuse operators of which several results are right"
        return ""

    def open_ends(self) -> Iterator[Made]:
        """What the nodes read that is neither given nor a result of one of them."""
        given = set(self.inputs)
        for name in self.needed():
            if name in self.nodes:
                for made in self.nodes[name].tensors.values():
                    if made not in given and made[0] not in self.nodes:
                        yield made

    def needed(self) -> Iterator[str]:
        """Nodes behind the outputs; what only they read, too."""
        given = set(self.inputs)
        waiting = [name for name in self.outputs if name not in given]
        seen: set[str] = set()
        while waiting:
            node = waiting.pop()[0]
            if node in seen:
                continue
            seen.add(node)
            yield node
            if node in self.nodes:
                read = self.nodes[node].tensors.values()
                waiting += [one for one in read if one not in given]

    def __call__(self, tensors: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        """Its outputs.

        Raises:
            UnverifiableError: the graph is not whole.
        """
        known = {
            made: tensor
            for made, tensor in zip(self.inputs, tensors, strict=True)
            if tensor is not None
        }
        return tuple(self._value(made, known) for made in self.outputs)

    def _value(self, made: Made, known: dict[Made, Tensor]) -> Tensor:
        waiting = [made]
        while waiting:
            current = waiting[-1]
            if current in known:
                waiting.pop()
                continue
            node = self.nodes.get(current[0])
            if node is None or len(waiting) > len(self.nodes) + 1:
                raise UnverifiableError(f"{current[0]}, which it reads, is in no buffer of it")
            missing = next((one for one in node.tensors.values() if one not in known), None)
            if missing is not None:
                waiting.append(missing)
                continue
            results = _results(node, {place: known[one] for place, one in node.tensors.items()})
            known.update({(current[0], index): each for index, each in enumerate(results)})
            if current not in known:
                raise UnverifiableError(f"{current[0]} has no result of that number")
        return known[made]


def _results(node: NodeCall, tensors: Mapping[str, Tensor]) -> list[Tensor]:
    func = find_operator(node.type)
    if func is None:
        raise UnverifiableError(f"there is no golden {node.type}")
    params: dict[str, Any] = {f"input_{name}": value for name, value in node.plain.items()}
    params[TENSORS] = [f"input_{name}" for name in tensors]
    if node.type.split(".")[1] in _VIEWS:  # strides of buffers are not recorded
        func = find_operator("aten.reshape.default") or func
    call = build_call(func, list(tensors.values()), params)
    define = written_out(node.type)
    return tensors_of(define(arguments(func, call))) if define else run_call(func, call)
