"""What operations of one name take and give, argument by argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ait_llm.core import DType
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.match.model import SideName, record_of
from ait_llm.match.programs.anchors.ports import Port, PortKey, Ports, key_of
from ait_llm.match.programs.links import SURE, Links
from ait_llm.match.programs.row_spaces import Shape
from ait_llm.match.programs.shapes import Views, make_views
from ait_llm.match.programs.shards import computes_several, portion_of
from ait_llm.match.programs.tokens import Tokens
from ait_llm.match.shapes import align_shapes, batch_ratio
from ait_llm.program.checks import is_check
from ait_llm.program.counted_places import PLACES, are_places, is_function
from ait_llm.program.describe import dtype_of, shape_of
from ait_llm.program.flow import Use
from ait_llm.program.program import Program
from ait_llm.program.roles import Role

_LOOSE = 0.8
# Calls that take rows out, and whose results are rows of known tokens.
_PICKING = frozenset({"__getitem__", "gather", "index_select", "narrow", "select"})
_CHECKED = "no call that was captured computes with it"
_OVER_OTHERS = "the other side computes it over other tokens"
_MEANINGS = "mask", "position"  # of arguments: what has one in its name is nothing else


class Arguments(Ports):
    """Pairs of tensors that operations of one name have in one place.

    Args:
        left, right: the programs.
        tokens: alignment of their rows.
        links: what is linked already; extended.
        left_is_golden: whose names come first in reasons.
    """

    def __init__(
        self,
        left: Program,
        right: Program,
        tokens: Tokens | None,
        links: Links,
        *,
        left_is_golden: bool,
    ) -> None:
        super().__init__()
        self._left = left
        self._right = right
        self._tokens = tokens
        self._links = links
        self._left_is_golden = left_is_golden
        self._portion = portion_of(left.run, right.run)
        self._ratio = 1
        self._settled: tuple[frozenset[int], frozenset[int]] = frozenset(), frozenset()
        # modules that share positions among requests look as if they added something up
        others = tokens is not None and tokens.are_others
        self._has_others = others and left.run.traits.finished
        self._over_others: set[int] = set()  # left values

    def settle(self, places: Mapping[int, int]) -> None:
        """Pair these operations, right by left one, with nothing else."""
        self._settled = frozenset(places), frozenset(places.values())
        self.places.update(places)

    def learn(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Find how many times larger the batch of one side is, from operations of both sides."""
        self._ratio = batch_ratio(
            (shape_of(mine) or (), shape_of(other) or ())
            for op, partner in pairs
            for mine, other in zip(
                self._left.operations[op].outputs,
                self._right.operations[partner].outputs,
                strict=False,
            )
        )

    def pair(self, op: int, partner: int, confidence: float, reason: str) -> None:
        """Pair two operations, and their tensors of equal arguments.

        A sole one left on each side belongs together if it fits: a value may be passed by position
        on one side and by name on the other.
        """
        if self.places.get(op) != partner and (
            op in self._settled[0] or partner in self._settled[1]
        ):
            return
        if is_check(self._left.flow, op) and is_check(self._right.flow, partner):
            for number, side, at in ((0, self._left, op), (1, self._right, partner)):
                reasons = (self.left_reasons, self.right_reasons)[number]
                for tensor in side.operations[at].tensors:
                    reasons[key_of(at, tensor)] = _CHECKED
                    self.without.add((number, key_of(at, tensor)))
            return
        self.places[op] = partner
        self._links.add_unit(op, partner)
        ours, theirs = self._left.operations[op], self._right.operations[partner]
        if self._has_others and not ours.is_graph:
            self._find_over_others(op, ours, theirs)
        for first, second in ((ours.inputs, theirs.inputs), (ours.outputs, theirs.outputs)):
            others = {argument(tensor): tensor for tensor in second}
            if _is_onnx(ours) is not _is_onnx(theirs):  # places are those of another schema
                pairs = zip(_tensors(ours, first), _tensors(theirs, second), strict=False)
                others = {argument(tensor): other for tensor, other in pairs}
            alone = []
            for tensor in first:
                other = others.pop(argument(tensor), None)
                if other is None:
                    alone.append(tensor)
                else:
                    self.add(op, tensor, partner, other, confidence, reason)
            rest = list(others.values())
            if len(alone) == len(rest) == 1 and self._may_be_one(alone[0], rest[0]):
                names = self._in_order(argument(alone[0]), argument(rest[0]))
                why = f"{reason}, the one value left ({names[0]} for {names[1]})"
                self.add(op, alone[0], partner, rest[0], min(confidence, _LOOSE), why)
                continue
            for tensor in alone:
                why = f"{theirs.name} of the other side has no {argument(tensor)}"
                self.left_reasons[key_of(op, tensor)] = why
            for tensor in rest:
                why = f"{ours.name} of the other side has no {argument(tensor)}"
                self.right_reasons[key_of(partner, tensor)] = why

    def _find_over_others(self, op: int, ours: Operation, theirs: Operation) -> None:
        """Note results that count or add up tokens, of which the other side has others.

        They have no axis of tokens, and what they are computed of has, or is such a result.
        """
        if ours.type in _PICKING:
            return
        given = {argument(tensor): shape_of(tensor) for tensor in theirs.inputs}
        made = {argument(tensor): shape_of(tensor) for tensor in theirs.outputs}
        for tensor in ours.inputs:
            value, other = self._left.value(op, tensor), given.get(argument(tensor))
            is_over = value is not None and value.number in self._over_others
            if not is_over and (other is None or other == shape_of(tensor)):
                continue
            for result in ours.outputs:
                written = self._left.value(op, result)
                if written is not None and made.get(argument(result)) == shape_of(result):
                    self._over_others.add(written.number)

    def _may_be_one(self, tensor: Tensor, other: Tensor) -> bool:
        """True if what one side calls otherwise, or does not name, may be what the other calls."""
        one, two = argument(tensor), argument(other)
        if any((word in one) is not (word in two) for word in _MEANINGS):
            named = not (one.rpartition("_")[2].isdigit() or two.rpartition("_")[2].isdigit())
            if named:
                return False
        return self._views(tensor, other) is not None

    def add(
        self, op: int, tensor: Tensor, partner: int, other: Tensor, confidence: float, reason: str
    ) -> bool:
        """Pair two tensors; if they do not go together, the reasons say why."""
        value = self._left.value(op, tensor)
        why = _OVER_OTHERS if value is not None and value.number in self._over_others else ""
        if self._has_others and is_function(self._left.operations[op]):
            why = PLACES if are_places(tensor) and are_places(other) else why
        if why:
            self.left_reasons[key_of(op, tensor)] = why
            self.right_reasons[key_of(partner, other)] = why
            self.without |= {(0, key_of(op, tensor)), (1, key_of(partner, other))}
            return False
        refusals = self._refusals(op, tensor, other)
        if refusals is not None:
            self.left_reasons[key_of(op, tensor)] = refusals[0]
            self.right_reasons[key_of(partner, other)] = refusals[1]
            return False
        views = self._views(tensor, other)
        assert views is not None
        self.ports[key_of(op, tensor)] = [Port(partner, other, views, confidence, reason)]
        left, right = self._left.value(op, tensor), self._right.value(partner, other)
        self._links.add(left, right, min(confidence, SURE), reason)
        return True

    def look_through(self, key: PortKey, uses: Iterable[tuple[int, Use]], *, only: bool) -> None:
        """Say what is looked at with a tensor of the left side that has a partner.

        Args:
            key: the tensor.
            uses: side (0 or 1) and place of the others.
            only: True if they have no partners of their own.
        """
        sides = self._left, self._right
        names: tuple[SideName, SideName] = (
            ("golden", "mine") if self._left_is_golden else ("mine", "golden")
        )
        records = []
        for side, use in uses:
            run = sides[side].run
            record = record_of(run.operations[use.op], use.tensor, run.first_order + use.op)
            records.append((names[side], record))
            if only:
                self.looked_at.add((side, key_of(use.op, use.tensor)))
        [port] = self.ports[key]
        found = tuple(dict.fromkeys((*port.uses, *records)))
        self.ports[key] = [replace(port, uses=found)]

    def _refusals(self, op: int, tensor: Tensor, other: Tensor) -> tuple[str, str] | None:
        """Why two tensors cannot be compared, for each side; None if they can."""
        types = dtype_of(tensor), dtype_of(other)
        if types[0] and types[1] and types[0].is_floating != types[1].is_floating:
            # masks that hide by -inf, or by False
            return _form(types[1]), _form(types[0])
        views = self._views(tensor, other)
        if self._portion is not None and views is not None and views != Views((), ()):
            # each rank holds its share of every part of a joined projection, not a stretch of all
            views = None if self._is_of_several(op, tensor) else views
        if views is not None:
            return None
        shapes = self._in_order(str(list(shape_of(tensor) or ())), str(list(shape_of(other) or ())))
        refusal = f"shapes {shapes[0]} and {shapes[1]} differ"
        if shapes[0] == shapes[1]:
            refusal = f"which axis of {shapes[0]} is that of the tokens is not known"
        return refusal, refusal

    def _is_of_several(self, op: int, tensor: Tensor) -> bool:
        """True for what a joined projection makes, also where others read it."""
        value = self._left.value(op, tensor)
        makers = [op]
        if value is not None and value.writer is not None:
            makers.append(value.writer.op)
        reads = () if value is None else value.reads
        return any(computes_several(self._left.operations[each].name) for each in makers) or any(
            self._left.roles[use.op] is Role.GATED for use in reads
        )

    def _in_order(self, left: str, right: str) -> tuple[str, str]:
        """Golden first, as reasons have it."""
        return (left, right) if self._left_is_golden else (right, left)

    def _views(self, tensor: Tensor, other: Tensor) -> Views | None:
        shapes = shape_of(tensor), shape_of(other)
        if shapes[0] is None or shapes[1] is None:
            return Views((), ())  # whoever reads it says what is wrong with it
        return self._views_of(shapes[0], shapes[1])

    def _views_of(self, left: Shape, right: Shape) -> Views | None:
        views = make_views(left, right, self._tokens, portion=self._portion)
        if views is not None or self._tokens is not None or self._portion is not None:
            return views
        aligned = align_shapes(left, right, self._ratio)
        return None if isinstance(aligned, str) else Views(aligned.golden, aligned.mine)

    def fit(self, left: Shape, right: Shape) -> bool:
        """True if tensors of two shapes can be compared."""
        return self._views_of(left, right) is not None


def _is_onnx(operation: Operation) -> bool:
    """True for a node of ONNX that has no form of torch."""
    return operation.type.startswith("onnx.")


def _tensors(operation: Operation, given: Sequence[Tensor]) -> list[Tensor]:
    """What an operation is given or makes, without the numbers among its arguments."""
    return [
        tensor
        for tensor in given
        if tensor.role == "out" or str(tensor.index) not in operation.params
    ]


def argument(tensor: Tensor) -> str:
    """``input_0``, ``input_attention_mask``, ``output``; the position where nothing names it."""
    word = "input" if tensor.role == "in" else "output"
    if tensor.stem:
        return tensor.stem
    if tensor.ir_name and tensor.ir_name.startswith(f"{word}."):
        return tensor.ir_name  # API dumps name the part of the call themselves
    return f"{word}_{tensor.ir_name or tensor.index}"


def _form(other: DType) -> str:
    """Why a tensor cannot be compared with one that means the same in another form."""
    return f"the other side has it as {other.label}"
