"""Kernels of a compiled graph against the nodes that they fused.

The compiled side says of each buffer which node of the graph it equals (``kernels.json``), so
nothing is guessed here. A node whose value no kernel stores lies inside of a kernel: it was
computed on the way to a buffer, and is looked at through that buffer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ait_llm.core.comparison import TensorRecord
from ait_llm.dumps.fx_kernels import KernelBuffer, KernelLaunch, NodeValue
from ait_llm.dumps.model import Tensor
from ait_llm.match.model import Match, MatchOptions, SideName, Unmatched, matchers
from ait_llm.match.operators import Finding, Placed, placed
from ait_llm.program.one_pass import Pass

_RULE = "by_kernel"
_SHOWN = 6  # nodes that a reason names


def is_compiled(run: Pass) -> bool:
    """True for a run of kernels."""
    return any(operation.launch is not None for operation in run.operations)


@matchers.register(_RULE)
def by_kernel(golden: Pass, mine: Pass, options: MatchOptions) -> Iterator[Match | Unmatched]:
    """Buffers of kernels and the values they equal; one side, or both, are compiled."""
    if is_compiled(mine):
        yield from _Kernels("mine", mine, golden).matches()
    else:
        yield from _Kernels("golden", golden, mine).matches()


@dataclass(frozen=True, slots=True)
class _Place:
    """A tensor and its operation."""

    placed: Placed
    tensor: Tensor


class _Kernels:
    """A compiled run and another one.

    Args:
        side: which of the two is ``compiled``.
        compiled: the run of kernels.
        other: nodes that were run one by one, or the kernels of another compilation.
    """

    def __init__(self, side: SideName, compiled: Pass, other: Pass) -> None:
        self._side: SideName = side
        self._other_side: SideName = "golden" if side == "mine" else "mine"
        self._compiled = placed(compiled)
        self._nodes: dict[str, list[Placed]] = defaultdict(list)
        self._values: dict[NodeValue, _Place] = {}
        # Where the other side is compiled as well: what several kernels have, what it stores, and
        # what it keeps inside.
        self._again: dict[NodeValue, list[_Place]] = defaultdict(list)
        self._stored: dict[str, list[_Place]] = defaultdict(list)
        self._inside_kernels: set[str] = set()
        self._waiting: dict[str, list[tuple[SideName, TensorRecord]]] = defaultdict(list)
        for each in placed(other):
            self._note(each)

    def matches(self) -> Iterator[Match | Unmatched]:
        """Each buffer with the value it equals."""
        for each in self._compiled:
            launch = each.operation.launch
            if launch is not None:
                yield from self._of_launch(each, launch)

    def _note(self, each: Placed) -> None:
        launch = each.operation.launch
        if launch is None:
            self._nodes[each.operation.name].append(each)
            for tensor in each.tensors:
                place = NodeValue(each.operation.name, tensor.role, tensor.position)
                self._values.setdefault(place, _Place(each, tensor))
            return
        for tensor in each.tensors:
            buffer = _buffer(launch, tensor)
            if buffer is not None and (value := _own_value(buffer, tensor)) is not None:
                first = self._values.setdefault(value, _Place(each, tensor))
                if first.tensor is not tensor:
                    self._again[value].append(_Place(each, tensor))
                self._inside_kernels.update(buffer.covers)
                if value.role == "out":
                    self._stored[value.node].append(_Place(each, tensor))

    def _of_launch(self, each: Placed, launch: KernelLaunch) -> Iterator[Match | Unmatched]:
        # What only kernels know, and what was looked at where it was stored.
        unpaired: list[tuple[SideName, TensorRecord]] = []
        for read in launch.inputs:
            unpaired += self._waiting.pop(read.buffer, [])
        matches: list[Match] = []
        for tensor in each.tensors:
            buffer = _buffer(launch, tensor)
            value = _own_value(buffer, tensor) if buffer is not None else None
            if buffer is None or value is None:
                unpaired.append((self._side, each.source(tensor).record))
                continue
            partner = self._values.get(value)
            if partner is None:
                yield each.unmatched(self._side, tensor, self._absent(value))
                continue
            for found in self._pair(each, tensor, partner, _reason(launch, value, buffer)):
                if isinstance(found, Match):
                    matches.append(replace(found, uses=self._inside(value, buffer, partner)))
                else:
                    yield found
        through = next((one for one in matches if self._of_compiled(one).role == "out"), None)
        if through is None:
            for stored in launch.outputs:  # looked at through the kernels that read them
                self._waiting[stored.buffer] += unpaired
        for one in matches:
            yield replace(one, uses=(*one.uses, *unpaired)) if one is through else one

    def _pair(
        self, each: Placed, tensor: Tensor, partner: _Place, reason: str
    ) -> Iterator[Match | Unmatched]:
        here, there = (each, tensor), (partner.placed, partner.tensor)
        finding = Finding(_RULE, 1.0, reason)
        yield from finding.match(*((there, here) if self._side == "mine" else (here, there)))

    def _inside(
        self, value: NodeValue, buffer: KernelBuffer, partner: _Place
    ) -> tuple[tuple[SideName, TensorRecord], ...]:
        """Tensors of the other side that are looked at through a buffer.

        What the node itself read, what else it returned, and all of the nodes that were computed
        on the way to it.
        """
        found: list[_Place] = []
        for each in (partner.placed, *(one for name in buffer.covers for one in self._nodes[name])):
            launch = each.operation.launch
            for tensor in each.tensors:
                if launch is not None:
                    stored = _buffer(launch, tensor)
                    if stored is not None and _own_value(stored, tensor) is not None:
                        continue  # has a partner of its own, or none
                if each is not partner.placed or tensor is not partner.tensor:
                    found.append(_Place(each, tensor))
        found += [one for name in buffer.covers for one in self._stored[name]]
        found += self._again[value]
        return tuple((self._other_side, one.placed.source(one.tensor).record) for one in found)

    def _of_compiled(self, match: Match) -> TensorRecord:
        return (match.mine if self._side == "mine" else match.golden).record

    def _absent(self, value: NodeValue) -> str:
        word = "output" if value.role == "out" else "input"
        whose = "the golden dump" if self._side == "mine" else "my dump"
        if value.role == "out" and value.node in self._inside_kernels:
            return f"node {value.node} lies inside of a kernel in {whose}"
        return f"{whose} has no {word} {value.index} of node {value.node}"


def _reason(launch: KernelLaunch, value: NodeValue, buffer: KernelBuffer) -> str:
    what = f"{buffer.buffer} holds {value.node}"
    if value.role == "in":
        return f"{buffer.buffer} is what {value.node} reads"
    inside = buffer.covers
    if not inside:
        return what
    names = ", ".join(inside[:_SHOWN])
    more = f" and {len(inside) - _SHOWN} more" if len(inside) > _SHOWN else ""
    return f"{what}; looked at through it: {names}{more}"


def _own_value(buffer: KernelBuffer, tensor: Tensor) -> NodeValue | None:
    """The value that a tensor is compared as.

    None for what only kernels know, and for what was looked at where it was stored.
    """
    value = buffer.value
    return None if value is not None and tensor.role == "in" and value.role == "out" else value


def _buffer(launch: KernelLaunch, tensor: Tensor) -> KernelBuffer | None:
    buffers = launch.inputs if tensor.role == "in" else launch.outputs
    place = tensor.position
    return buffers[place] if place < len(buffers) else None
