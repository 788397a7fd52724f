"""Modules that both sides call by the same path: two runs of one library.

A name is a hint and no reason: class, what the module takes and gives, and the shapes must agree
too. Operators have no names of their own, only numbers, and are never paired by them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from ait_llm.dumps.model import Role, Tensor
from ait_llm.errors import AitError
from ait_llm.match.names import NamePair, pair_names
from ait_llm.match.programs.layout import is_joined
from ait_llm.match.programs.links import SURE, Links
from ait_llm.match.programs.shapes import Views, make_views, shares
from ait_llm.match.programs.tokens import Tokens
from ait_llm.match.shapes import align_shapes, batch_ratio
from ait_llm.program.describe import is_float, shape_of
from ait_llm.program.program import Program
from ait_llm.program.roles import Role as Meaning

PortKey = tuple[int, Role, int]  # operation, input or output, index
_LOOSE = 0.8
# Of the parts of a module on one side; engines that join some of them share about half.
_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class Port:
    """The tensor that answers one of a left operation.

    Attributes:
        op: right operation.
        tensor: its tensor.
        views: under which both are the same.
        confidence, reason: of the pair.
    """

    op: int
    tensor: Tensor
    views: Views
    confidence: float
    reason: str


class Namesakes:
    """Pairs of modules by path, class and call number, and of what they take and give.

    Attributes:
        places: right operation by left operation.
        ports: by tensor of the left side.
        left_reasons, right_reasons: why a tensor of a paired module has no partner.
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
        self._left = left
        self._right = right
        self._tokens = tokens
        self._links = links
        self._left_is_golden = left_is_golden
        self._is_sharded = left.run.share != right.run.share
        self.places: dict[int, int] = {}
        self.ports: dict[PortKey, Port] = {}
        self.left_reasons: dict[PortKey, str] = {}
        self.right_reasons: dict[PortKey, str] = {}
        if left.run.kind == right.run.kind and left.has_modules:
            self._pair()

    def _pair(self) -> None:
        ours, theirs = _calls(self._left), _calls(self._right)
        names = pair_names(
            {name: self._left.operations[calls[0]].type for name, calls in ours.items()},
            {name: self._right.operations[calls[0]].type for name, calls in theirs.items()},
        )
        found: list[tuple[NamePair, int, int]] = []
        alike = self._alike({pair.golden: pair.mine for pair in names}, ours, theirs)
        for pair in names:
            if pair.golden not in alike:
                continue
            first, second = ours[pair.golden], theirs[pair.mine]
            found += [(pair, *each) for each in zip(first, second, strict=False)]
            self._surplus(self._left, first, len(second), self.left_reasons)
            self._surplus(self._right, second, len(first), self.right_reasons)
        shapes = (
            (shape_of(mine) or (), shape_of(other) or ())
            for _, op, partner in found
            for mine, other in zip(
                self._left.operations[op].outputs,
                self._right.operations[partner].outputs,
                strict=False,
            )
        )
        ratio = batch_ratio(shapes)
        for pair, op, partner in found:
            self.places[op] = partner
            self._links.units.setdefault(op, set()).add(partner)
            self._pair_ports(op, partner, pair, ratio)

    def _alike(
        self,
        names: Mapping[str, str],
        ours: Mapping[str, list[int]],
        theirs: Mapping[str, list[int]],
    ) -> set[str]:
        """Names of left modules that are of one class on both sides, and made of the same parts.

        Two libraries may call an attention alike, and its class, and mean another one.
        """
        back = {other: name for name, other in names.items()}
        known: dict[str, bool] = {}  # of left names: whether they have the role of their namesake
        found = set()
        for name, other in names.items():
            op, partner = ours[name][0], theirs[other][0]
            known[name] = self._left.roles[op] is self._right.roles[partner]
            whole = not self._parts(self._left, op) and not self._parts(self._right, partner)
            # a module that computes a share of another has a class of its own
            same = _same_class(self._left, op, self._right, partner)
            if whole and (same or (self._is_sharded and known[name])):
                found.add(name)
        for name, other in names.items():
            op, partner = ours[name][0], theirs[other][0]
            if not self._parts(self._left, op) and not self._parts(self._right, partner):
                continue
            if not _same_class(self._left, op, self._right, partner):
                continue
            first = [known.get(leaf, False) for leaf in self._leaves(self._left, op)]
            second = [
                known.get(back.get(leaf, ""), False) for leaf in self._leaves(self._right, partner)
            ]
            if any(leaves and sum(leaves) >= _SHARE * len(leaves) for leaves in (first, second)):
                found.add(name)
        return found

    def _leaves(self, side: Program, op: int) -> list[str]:
        """Paths of the modules without parts that ran within one."""
        return [
            side.operations[member].name
            for member in side.within(op)
            if side.roles[member] is not Meaning.OPERATOR and not self._parts(side, member)
        ]

    @staticmethod
    def _parts(side: Program, op: int) -> bool:
        """True if a module runs others."""
        return any(side.roles[member] is not Meaning.OPERATOR for member in side.members(op))

    @staticmethod
    def _surplus(side: Program, calls: list[int], others: int, reasons: dict[PortKey, str]) -> None:
        """Calls that only one side has."""
        for number, op in list(enumerate(calls))[others:]:
            operation = side.operations[op]
            for tensor in (*operation.inputs, *operation.outputs):
                reasons[op, tensor.role, tensor.index] = (
                    f"call {number} is one of {len(calls)}, the other side has {others}"
                )

    def _pair_ports(self, op: int, partner: int, pair: NamePair, ratio: int) -> None:
        ours, theirs = self._left.operations[op], self._right.operations[partner]
        for first, second in ((ours.inputs, theirs.inputs), (ours.outputs, theirs.outputs)):
            others = {argument(tensor): tensor for tensor in second}
            alone = []
            for tensor in first:
                other = others.pop(argument(tensor), None)
                if other is None:
                    alone.append(tensor)
                else:
                    confidence = min(pair.confidence, 1.0)
                    self._port(op, tensor, partner, other, ratio, confidence, pair.reason)
            rest = list(others.values())
            if len(alone) == len(rest) == 1 and self._views(alone[0], rest[0], ratio) is not None:
                names = self._in_order(argument(alone[0]), argument(rest[0]))
                reason = f"{pair.reason}, the one value left ({names[0]} for {names[1]})"
                limit = min(pair.confidence, _LOOSE)
                self._port(op, alone[0], partner, rest[0], ratio, limit, reason)
                continue
            for tensor in alone:
                reason = f"{theirs.name} of the other side has no {argument(tensor)}"
                self.left_reasons[op, tensor.role, tensor.index] = reason
            for tensor in rest:
                reason = f"{ours.name} of the other side has no {argument(tensor)}"
                self.right_reasons[partner, tensor.role, tensor.index] = reason

    def _port(
        self,
        op: int,
        tensor: Tensor,
        partner: int,
        other: Tensor,
        ratio: int,
        confidence: float,
        reason: str,
    ) -> None:
        if is_float(tensor) != is_float(other):  # masks that hide by minus infinity, or by False
            self.left_reasons[op, tensor.role, tensor.index] = _form(other)
            self.right_reasons[partner, other.role, other.index] = _form(tensor)
            return
        views = self._views(tensor, other, ratio)
        if self._is_sharded and views is not None and views != Views((), ()):
            # each rank holds its share of every part of a joined projection, not a stretch of all
            name = self._left.operations[op].name
            views = None if is_joined(name) or "gate_up" in name else views
        if views is None:
            shapes = self._in_order(
                str(list(shape_of(tensor) or ())), str(list(shape_of(other) or ()))
            )
            refusal = f"shapes {shapes[0]} and {shapes[1]} differ"
            self.left_reasons[op, tensor.role, tensor.index] = refusal
            self.right_reasons[partner, other.role, other.index] = refusal
            return
        key = (op, tensor.role, tensor.index)
        self.ports[key] = Port(partner, other, views, confidence, reason)
        if not self._is_sharded:
            left, right = self._left.value(op, tensor), self._right.value(partner, other)
            self._links.add(left, right, min(confidence, SURE), reason)

    def _in_order(self, left: str, right: str) -> tuple[str, str]:
        """Golden first, as reasons have it."""
        return (left, right) if self._left_is_golden else (right, left)

    def _views(self, tensor: Tensor, other: Tensor, ratio: int) -> Views | None:
        shapes = shape_of(tensor), shape_of(other)
        if shapes[0] is None or shapes[1] is None:
            return Views((), ())  # whoever reads it says what is wrong with it
        if self._is_sharded and shapes[0] != shapes[1]:
            return shares(shapes[0], shapes[1], self._left.run.share, self._right.run.share)
        views = make_views(shapes[0], shapes[1], self._tokens)
        if views is not None or self._tokens is not None:
            return views
        aligned = align_shapes(shapes[0], shapes[1], ratio)
        return None if isinstance(aligned, str) else Views(aligned.golden, aligned.mine)


def _same_class(left: Program, op: int, right: Program, other: int) -> bool:
    return left.operations[op].type == right.operations[other].type


def _calls(side: Program) -> dict[str, list[int]]:
    """Calls of each module, in their order."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for op, operation in enumerate(side.operations):
        if side.roles[op] is not Meaning.OPERATOR:
            found[operation.name].append((operation.call, op))
    return {name: [op for _, op in sorted(calls)] for name, calls in found.items()}


def argument(tensor: Tensor) -> str:
    """``input_0``, ``input_attention_mask``, ``output``; the position where nothing names it."""
    word = "input" if tensor.role == "in" else "output"
    return tensor.stem or f"{word}_{tensor.ir_name or tensor.index}"


def _form(other: Tensor) -> str:
    """Why a tensor cannot be compared with one that means the same in another form."""
    try:
        return f"the other side has it as {other.dtype.label}"
    except AitError:
        return "the other side has it in another type"
