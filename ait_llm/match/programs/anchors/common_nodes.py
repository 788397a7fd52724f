"""Two passes of one graph: what both say of its nodes.

The capture of a compiled graph calls nodes by their names, and says of each buffer of a kernel
which node's value it holds; a capture of API calls numbers them. Names that :mod:`agreement`
believes pair tensors at once. A node whose value no kernel stores lies inside of one: it was
computed on the way to a buffer, and is looked at through that buffer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from ait_llm.dumps.fx_kernels import KernelBuffer, NodeValue
from ait_llm.match.programs.anchors.agreement import Agreement
from ait_llm.match.programs.anchors.arguments import Arguments
from ait_llm.match.programs.anchors.ports import key_of
from ait_llm.program.adapt_kernels import is_compiled
from ait_llm.program.common_nodes import buffer_of, graphs_of, is_filtered, value_of
from ait_llm.program.counted_places import is_function
from ait_llm.program.flow import Use
from ait_llm.program.program import Program

_SHOWN = 6  # nodes that a reason names


class CommonNodes:
    """Pairs what two passes have of one graph.

    Args:
        left, right: the programs.
        ports: gets the pairs. They settle all if nothing contradicts that both are of one graph, or
            if a filter left nodes out, so that the order of the others says nothing.
        titles: how reasons call the dumps of the left and of the right side.
    """

    def __init__(
        self, left: Program, right: Program, ports: Arguments, titles: tuple[str, str]
    ) -> None:
        self._sides = left, right
        self._ports = ports
        self._titles = titles
        self._places = _places_of_calls(left), _places_of_calls(right)
        self._agreement = self._agreed(left, right)
        pairs = list(self._operations())
        together = [each for each in pairs if not self._are_apart(*each[:2])]
        is_one = self._agreement.is_one and len(together) == len(pairs)
        ports.settles = not _are_fused_unlike(left, right) and (
            is_one
            or (
                bool(left.nodes and right.nodes)
                and any(
                    is_filtered(side.nodes) and not is_compiled(side.run) for side in self._sides
                )
            )
        )
        names = {name: pair.mine for name, pair in self._agreement.pairs.items()}
        self._exchange = names, {other: name for name, other in names.items()}
        for each in together:
            ports.pair(*each)
        if any(is_compiled(side.run) for side in self._sides):
            self._kept = _Kept(left), _Kept(right)
            self._pair_buffers()

    def _agreed(self, left: Program, right: Program) -> Agreement:
        """What the names of both sides mean, once it is known how their batches differ."""
        same = left.nodes.keys() & right.nodes.keys()
        ops = ((left.nodes[name].op, right.nodes[name].op) for name in same)
        self._ports.learn((op, other) for op, other in ops if op is not None and other is not None)
        return Agreement(left.nodes, right.nodes, self._ports.fit, self._is_of_one_module)

    def _operations(self) -> Iterator[tuple[int, int, float, str]]:
        """Operations that are one node by their names, how sure that is, and why."""
        left, right = self._sides
        for name, pair in self._agreement.pairs.items():
            op, partner = left.nodes[name].op, right.nodes[pair.mine].op
            if op is not None and partner is not None:
                yield op, partner, self._agreement.confidence(name), pair.reason

    def _are_apart(self, op: int, partner: int) -> bool:
        """True for calls whose numbers are alike by chance.

        They lie within two modules of both sides, or are another one of as many within one.
        """
        left, right = (side.modules for side in self._sides)
        if left.are_others(op, right, partner):
            return True
        ours, theirs = self._places[0].get(op), self._places[1].get(partner)
        if ours is None or theirs is None or left.paths[op] != right.paths[partner]:
            return False
        return ours[0] != theirs[0] and ours[1] == theirs[1]

    def _is_of_one_module(self, name: str, other: str) -> bool:
        """True for calls at one place of a module that both sides call by one path, or of it.

        Where a conversion was not captured, as of ``type_as``, no argument tells what made it.
        """
        left, right = self._sides
        op, partner = left.nodes[name].op, right.nodes[other].op
        if op is None or partner is None:
            return False
        path = left.modules.paths[op]
        places = self._places[0].get(op), self._places[1].get(partner)
        return bool(path) and path == right.modules.paths[partner] and places[0] == places[1]

    def _pair_buffers(self) -> None:
        """Pair tensors that are one value of the graph, where one of them is a buffer."""
        partners: dict[Use, Use] = {}
        pairs: list[tuple[NodeValue, Use, Use]] = []
        for value, use in self._kept[0].first.items():
            name = self._exchange[0].get(value.node)
            if name is not None:
                partner = self._kept[1].first.get(replace(value, node=name))
                if partner is not None:
                    pairs.append((value, use, partner))
        for value, use, partner in pairs:
            buffers = [self._buffer(side, each) for side, each in ((0, use), (1, partner))]
            reason = _reason(value, buffers[1] or buffers[0])
            confidence = self._agreement.confidence(value.node)
            if self._ports.add(use.op, use.tensor, partner.op, partner.tensor, confidence, reason):
                partners[use] = partner
                self._look_through(value, (use, partner))
        for side in (0, 1):
            ends = partners if side == 0 else {other: use for use, other in partners.items()}
            for use, others in self._kept[side].looked_at(set(ends)):
                end = use if side == 0 else ends[use]
                self._ports.look_through(
                    key_of(end.op, end.tensor), ((side, each) for each in others), only=True
                )
            self._give_reasons(side, set(ends))

    def _look_through(self, value: NodeValue, pair: tuple[Use, Use]) -> None:
        """Say what is looked at with two tensors that are one value.

        The nodes that were computed on the way to it, what the other side's operation reads and
        returns besides, and where the value is seen again.
        """
        key = key_of(pair[0].op, pair[0].tensor)
        values = value, replace(value, node=self._exchange[0][value.node])
        for side, use in enumerate(pair):
            again = self._kept[side].again.get(values[side], ())
            self._ports.look_through(key, ((side, each) for each in again), only=False)
            buffer = self._buffer(side, use)
            if buffer is not None:
                other, kept = 1 - side, self._kept[1 - side]
                found = [*kept.besides(pair[other])]
                for covered in buffer.covers:
                    found += kept.of_node.get(self._exchange[side].get(covered, ""), ())
                self._ports.look_through(key, ((other, each) for each in found), only=True)

    def _give_reasons(self, side: int, paired: set[Use]) -> None:
        """Say of buffers without a partner which value the other side does not have."""
        reasons = (self._ports.left_reasons, self._ports.right_reasons)[side]
        other = self._kept[1 - side]
        title = self._titles[1 - side]
        for value, use in self._kept[side].first.items():
            if use in paired or self._buffer(side, use) is None:
                continue
            word = "output" if value.role == "out" else "input"
            reason = f"{title} has no {word} {value.index} of node {value.node}"
            if value.role == "out" and value.node in other.covered:
                reason = f"node {value.node} lies inside of a kernel in {title}"
            reasons.setdefault(key_of(use.op, use.tensor), reason)

    def _buffer(self, side: int, use: Use) -> KernelBuffer | None:
        return buffer_of(self._sides[side].operations[use.op], use.tensor)


def _places_of_calls(side: Program) -> dict[int, tuple[int, int]]:
    """Of each call of a function: which of those of its module it is, and how many there are."""
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for op, operation in enumerate(side.operations):
        if is_function(operation):
            found[side.modules.paths[op], f"{operation.direction} {operation.api_name}"].append(op)
    return {op: (place, len(ops)) for ops in found.values() for place, op in enumerate(ops)}


class _Kept:
    """Which values of the graph a pass holds.

    Attributes:
        first: where a value is, or is seen first.
        again: where it is seen again.
        of_node: all tensors of a node, or buffers that hold its results.
        covered: nodes that lie inside of kernels.
    """

    def __init__(self, side: Program) -> None:
        self._side = side
        self.first: dict[NodeValue, Use] = {}
        self.again: dict[NodeValue, list[Use]] = defaultdict(list)
        self.of_node: dict[str, list[Use]] = defaultdict(list)
        self.covered: set[str] = set()
        for use in self._uses():
            operation = side.operations[use.op]
            value, buffer = value_of(operation, use.tensor), buffer_of(operation, use.tensor)
            if value is None:
                continue
            if self.first.setdefault(value, use) is not use:
                self.again[value].append(use)
            if buffer is None or value.role == "out":
                self.of_node[value.node].append(use)
            self.covered.update(() if buffer is None else buffer.covers)

    def _uses(self) -> Iterator[Use]:
        for op, operation in enumerate(self._side.operations):
            for tensor in (*operation.inputs, *operation.outputs):
                yield Use(op, tensor)

    def besides(self, use: Use) -> Iterator[Use]:
        """Other tensors of the operation of one; of a kernel those that only kernels know."""
        operation = self._side.operations[use.op]
        for tensor in (*operation.inputs, *operation.outputs):
            if tensor is not use.tensor and (
                operation.launch is None or value_of(operation, tensor) is None
            ):
                yield Use(use.op, tensor)

    def looked_at(self, paired: set[Use]) -> Iterator[tuple[Use, list[Use]]]:
        """What only kernels know, and what was looked at where it was stored.

        It is looked at through the first result of its kernel that has a partner; without one,
        through the kernels that read what it stores.
        """
        waiting: dict[str, list[Use]] = defaultdict(list)
        for op, operation in enumerate(self._side.operations):
            launch = operation.launch
            if launch is None:
                continue
            found = [use for read in launch.inputs for use in waiting.pop(read.buffer, ())]
            found += [
                Use(op, tensor)
                for tensor in (*operation.inputs, *operation.outputs)
                if value_of(operation, tensor) is None
            ]
            results = (Use(op, tensor) for tensor in operation.outputs)
            through = next((use for use in results if use in paired), None)
            if through is not None:
                yield through, found
            else:
                for stored in launch.outputs:
                    waiting[stored.buffer] += found


def _are_fused_unlike(left: Program, right: Program) -> bool:
    """True for whole graphs that name their results, each with nodes that the other has not.

    A runtime fuses nodes and calls what it makes of them anew: their names do not say all.
    """
    for side in (left, right):
        graphs = graphs_of(side.run)
        if not graphs or not all(graph.results for graph in graphs):
            return False
        if any(node.op is None for node in side.nodes.values()):
            return False
    return bool(left.nodes.keys() - right.nodes.keys() and right.nodes.keys() - left.nodes.keys())


def _reason(value: NodeValue, buffer: KernelBuffer | None) -> str:
    name = value.node if buffer is None else buffer.buffer
    if value.role == "in":
        return f"{name} is what {value.node} reads"
    what = f"{name} holds {value.node}"
    inside = () if buffer is None else buffer.covers
    if not inside:
        return what
    names = ", ".join(inside[:_SHOWN])
    more = f" and {len(inside) - _SHOWN} more" if len(inside) > _SHOWN else ""
    return f"{what}; looked at through it: {names}{more}"
