"""Two programs of one library of operations: which operations and tensors answer each other.

Operations of one place in one topology are the same. Where the topologies differ (a float model
against its quantised form, other versions), the operations are aligned in order. Their tensors are
paired by what they are to the operation, with batches repeated, caches put in order and integers
made real. What stays alone on both sides may still be the same work cut in another way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ait_llm.dumps.model import Tensor
from ait_llm.match.addresses import Addresses
from ait_llm.match.masks import Masks
from ait_llm.match.model import SideName, record_of
from ait_llm.match.programs.anchors.places import pair_by_place
from ait_llm.match.programs.anchors.ports import Port, PortKey, Ports, key_of
from ait_llm.match.programs.anchors.rotary_order import REASON, RotaryOrder
from ait_llm.match.programs.anchors.sums_in_norms import added_up, one_adds, tensors_of_norm
from ait_llm.match.programs.anchors.trees import align_trees
from ait_llm.match.programs.shapes import Views
from ait_llm.match.quantised import Scales, is_integer, mixed, roles, scales_of, with_scale
from ait_llm.match.shapes import align, batch_ratio
from ait_llm.program.describe import shape_of
from ait_llm.program.flow import Use
from ait_llm.program.program import Program

_SAME, _CERTAIN, _AMBIGUOUS = 1.0, 0.9, 0.4
_AS_IT_IS = Views((), ())


@dataclass(frozen=True, slots=True)
class _OpPair:
    """Two operations that answer each other, and golden ones that fit as well."""

    left: int
    right: int
    confidence: float
    reason: str
    rivals: tuple[int, ...] = ()


class Library(Ports):
    """Pairs of the operations of two programs, and of their tensors.

    Args:
        left: the golden program.
        right: mine.
    """

    def __init__(self, left: Program, right: Program) -> None:
        super().__init__()
        self._left, self._right = left, right
        pairs = list(_paired(left, right))
        operations = [(left.operations[p.left], right.operations[p.right]) for p in pairs]
        self._ratio = batch_ratio(
            (shape_of(one.outputs[0]) or (), shape_of(other.outputs[0]) or ())
            for one, other in operations
            if one.outputs and other.outputs
        )
        self._addresses, self._masks = Addresses(operations, self._ratio), Masks(operations)
        self._scales: dict[SideName, Scales] = {"golden": Scales(left), "mine": Scales(right)}
        self._taken: set[PortKey] = set()  # tensors of the right side
        # By value of the right side: the left one, and how members pair the two.
        self._of_members: dict[int, list[tuple[int, Port]]] = {}
        self.places = {pair.left: pair.right for pair in pairs}
        self._order = RotaryOrder(left, right, self.places)
        # members first: they say which inputs of the graphs around them belong together
        for pair in sorted(pairs, key=lambda each: right.operations[each.right].is_graph):
            self._pair_tensors(pair)
        self._leave_alone(pairs)
        self._pair_known()

    def _pair_tensors(self, pair: _OpPair) -> None:
        ours, theirs = self._left.operations[pair.left], self._right.operations[pair.right]
        if one_adds(self._left, pair.left, self._right, pair.right):
            sides = (self._left, pair.left), (self._right, pair.right)
            self._pair_named(pair, *(tensors_of_norm(*side) for side in sides))
            return
        if not ours.is_graph and not theirs.is_graph:
            self._pair_named(pair, roles(ours), roles(theirs))
        elif len(ours.inputs) == len(theirs.inputs):
            if mixed(ours, theirs):
                self._pair_as_members(pair)
            self._pair_named(pair, _numbered(ours.inputs), _numbered(theirs.inputs))
        else:
            self._pair_as_members(pair)
            reason = "the two graphs take different inputs, see their members"
            for tensor in ours.inputs:
                self.left_reasons[key_of(pair.left, tensor)] = reason
            for tensor in theirs.inputs:
                self.right_reasons[key_of(pair.right, tensor)] = reason
        if ours.is_graph and theirs.is_graph:
            self._pair_handed_on(pair)
        else:
            self._pair_named(pair, _numbered(ours.outputs), _numbered(theirs.outputs))

    def _pair_named(
        self, pair: _OpPair, ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]
    ) -> None:
        """Pair tensors that are the same to two operations."""
        for name in dict.fromkeys([*ours, *theirs]):
            one, other = ours.get(name), theirs.get(name)
            if one is not None and other is not None:
                self._pair_two(pair, one, other)
            elif one is not None:
                reason = f"my {self._right.operations[pair.right].name} has no {name}"
                self.left_reasons[key_of(pair.left, one)] = reason
            elif other is not None:
                reason = f"the golden {self._left.operations[pair.left].name} has no {name}"
                self.right_reasons[key_of(pair.right, other)] = reason

    def _pair_two(self, pair: _OpPair, one: Tensor, other: Tensor) -> None:
        if key_of(pair.right, other) in self._taken:
            return
        top = self._right.operations[pair.right].op_id.parts[0]
        aligned = (
            self._addresses.align(top, one, other)
            or self._masks.align(top, one, other)
            or align(one, other, self._ratio)
        )
        if isinstance(aligned, str):
            self._refuse(pair, one, other, aligned)
            return
        reason = f"{pair.reason}; {aligned.note}" if aligned.note else pair.reason
        views, confidence = Views(aligned.golden, aligned.mine), pair.confidence
        turned = self._order.view(pair.right, other)
        if turned is not None:
            views = replace(views, right=(turned, *views.right))
            reason, confidence = f"{reason}; {REASON}", min(confidence, _CERTAIN)
        port = Port(pair.right, other, views, confidence, reason, self._names(pair.rivals))
        kinds = is_integer(one), is_integer(other)
        if None in kinds or kinds[0] == kinds[1]:
            self._add(pair.left, one, port)
        elif kinds[0]:
            self._add_real(pair, one, port, "golden")
        else:
            self._add_real(pair, one, port, "mine")

    def _add_real(self, pair: _OpPair, one: Tensor, port: Port, side: SideName) -> None:
        """Pair integers of one side with the real numbers that they stand for."""
        is_golden = side == "golden"
        program = self._left if is_golden else self._right
        op, tensor = (pair.left, one) if is_golden else (pair.right, port.tensor)
        operation = program.operations[op]
        scale = self._scales[side].view(op, tensor)
        if scale is None:
            reason = f"{operation.name} is quantised, its scale is not in the dump"
            self._refuse(pair, one, port.tensor, reason)
            return
        left, right = port.views.left, port.views.right
        if is_golden:
            left = with_scale(left, scale)
        else:
            right = with_scale(right, scale)
        uses = tuple(
            (side, record_of(operation, each, program.run.first_order + op))
            for each in scales_of(operation, tensor)
        )
        reason = f"{port.reason}, dequantised"
        self._add(pair.left, one, replace(port, views=Views(left, right), reason=reason, uses=uses))

    def _refuse(self, pair: _OpPair, one: Tensor, other: Tensor, reason: str) -> None:
        self.left_reasons[key_of(pair.left, one)] = reason
        self.right_reasons[key_of(pair.right, other)] = reason

    def _add(self, op: int, tensor: Tensor, port: Port) -> None:
        self.ports.setdefault(key_of(op, tensor), []).append(port)
        self._taken.add(key_of(port.op, port.tensor))
        values = self._left.value(op, tensor), self._right.value(port.op, port.tensor)
        is_graph = self._right.operations[port.op].is_graph
        if values[0] is not None and values[1] is not None and not is_graph:
            self._of_members.setdefault(values[1].number, []).append((values[0].number, port))

    def _pair_as_members(self, pair: _OpPair) -> None:
        """Pair inputs of two graphs that their members take as answering each other."""
        within = set(self._right.within(pair.right))
        by_value: dict[int, Tensor] = {}
        for tensor in self._left.operations[pair.left].inputs:
            value = self._left.value(pair.left, tensor)
            if value is not None:
                by_value.setdefault(value.number, tensor)
        for tensor in self._right.operations[pair.right].inputs:
            value = self._right.value(pair.right, tensor)
            known = self._of_members.get(value.number, ()) if value is not None else ()
            for number, port in known:
                if number in by_value and port.op in within:
                    reason = f"as {port.tensor.name} of {self._right.operations[port.op].name}"
                    others = self._names(pair.rivals)
                    found = Port(pair.right, tensor, port.views, pair.confidence, reason, others)
                    self._add(pair.left, by_value[number], found)
                    break

    def _pair_handed_on(self, pair: _OpPair) -> None:
        """Pair what two graphs give by position, but for what their members make differently.

        One may hand on a sum, the other its summands.
        """
        ours, theirs = self._left.operations[pair.left], self._right.operations[pair.right]
        made = [
            {name: _maker(side, op, tensor) for name, tensor in _numbered(tensors).items()}
            for side, op, tensors in (
                (self._left, pair.left, ours.outputs),
                (self._right, pair.right, theirs.outputs),
            )
        ]
        reason = "the two graphs hand on different values, see their members"
        kept: tuple[dict[str, Tensor], dict[str, Tensor]] = {}, {}
        for tensors, keep, reasons, op in (
            (ours.outputs, kept[0], self.left_reasons, pair.left),
            (theirs.outputs, kept[1], self.right_reasons, pair.right),
        ):
            for name, tensor in _numbered(tensors).items():
                first, second = (each.get(name) for each in made)
                if first is None or second is None or self._are_one(first, second):
                    keep[name] = tensor
                else:
                    reasons[key_of(op, tensor)] = reason
        self._pair_named(pair, *kept)

    def _are_one(self, left: PortKey, right: PortKey) -> bool:
        """True for the same result of operations that answer each other."""
        return left[1:] == right[1:] and self.places.get(left[0]) == right[0]

    def _pair_known(self) -> None:
        """Pair what is added up where nothing answers that, but others show what it is.

        A norm that adds a residual reads what an addition reads that only the other side has.
        """
        of_left: dict[int, list[tuple[int, Port]]] = {}
        for number, found in self._of_members.items():
            for left, port in found:
                of_left.setdefault(left, []).append((number, port))
        for use, value in list(added_up(self._right)):
            if key_of(use.op, use.tensor) not in self._taken:
                for left, port in self._of_members.get(value.number, ())[:1]:
                    self._add_known(self._left.flow.values[left].uses[0], port, use)
        for use, value in added_up(self._left):
            if key_of(use.op, use.tensor) not in self.ports:
                for number, port in of_left.get(value.number, ())[:1]:
                    self._add_known(use, port, self._right.flow.values[number].uses[0])

    def _add_known(self, left: Use, port: Port, right: Use) -> None:
        """Pair two uses of values of which others are paired, if all have the same shapes."""
        if shape_of(left.tensor) != shape_of(right.tensor) or port.views.left or port.views.right:
            return
        title = self._right.operations[port.op].name
        reason = f"as {port.tensor.name} of {title}"
        self._add(left.op, left.tensor, Port(right.op, right.tensor, _AS_IT_IS, _CERTAIN, reason))

    def _names(self, rivals: Sequence[int]) -> tuple[str, ...]:
        return tuple(self._left.operations[op].name for op in rivals)

    def _leave_alone(self, pairs: Sequence[_OpPair]) -> None:
        """Say of the other operations that nothing answers them."""
        paired = set(self.places.values())
        left = [op for op in range(len(self._left.operations)) if op not in self.places]
        right = [op for op in range(len(self._right.operations)) if op not in paired]
        for op in left:
            operation = self._left.operations[op]
            for tensor in operation.tensors:
                reason = f"my run has no operation that answers {operation.name}"
                self.left_reasons[key_of(op, tensor)] = reason
        for op in right:
            operation = self._right.operations[op]
            for tensor in operation.tensors:
                reason = f"the golden run has no operation that answers {operation.name}"
                self.right_reasons[key_of(op, tensor)] = reason
        doubtful = [pair for pair in pairs if pair.confidence < _CERTAIN]
        ours = {op for pair in doubtful for op in (pair.left, *pair.rivals)}
        theirs = {pair.right for pair in doubtful}
        self.alone = _outside(self._left, left, ours), _outside(self._right, right, theirs)


def _outside(side: Program, ops: Sequence[int], graphs: set[int]) -> frozenset[int]:
    """Operations that neither are among some others nor run within them."""
    return frozenset(
        op for op in ops if op not in graphs and graphs.isdisjoint(side.flow.ancestors(op))
    )


def _paired(left: Program, right: Program) -> Iterator[_OpPair]:
    """Operations that answer each other, a graph before its members."""
    same = pair_by_place(left.run, right.run)
    for op, other in same:
        yield _OpPair(op, other, _SAME, "same place in the same topology")
    for node in align_trees(left, right) if not same else ():
        ours, theirs = left.operations[node.left], right.operations[node.right]
        work = "same type" if ours.type == theirs.type else f"{theirs.type} does the same work"
        confidence, reason = _CERTAIN, f"{work} at the same place in order"
        if not node.certain:
            confidence, reason = _AMBIGUOUS, f"{work}, but others fit as well"
        yield _OpPair(node.left, node.right, confidence, reason, node.rivals)


def _maker(side: Program, graph: int, tensor: Tensor) -> PortKey | None:
    """The member, and its result, that a graph hands on; None if nothing shows it."""
    value = side.value(graph, tensor)
    writer = None if value is None else value.writer
    if writer is None or side.operations[writer.op].is_graph:
        return None
    return key_of(writer.op, writer.tensor)


def _numbered(tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    """Inputs or outputs by their positions."""
    return {f"{tensor.role}put {tensor.index}": tensor for tensor in tensors}
