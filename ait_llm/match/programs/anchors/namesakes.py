"""Modules that both sides call by the same path: two runs of one library.

A name is a hint and no reason: class, what the module takes and gives, and the shapes must agree
too. Operators have no names of their own, only numbers, and are never paired by them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from ait_llm.match.names import NamePair, pair_names
from ait_llm.match.programs.anchors.arguments import Arguments
from ait_llm.match.programs.anchors.ports import PortKey
from ait_llm.match.programs.shards import portion_of
from ait_llm.program.program import Program
from ait_llm.program.roles import Role as Meaning
from ait_llm.program.roles import scales_rows

# Of the parts of a module on one side; engines that join some of them share about half.
_SHARE = 0.75
# Modules of ranks that do a share of the work have classes of their own.
_SHARED = frozenset({Meaning.LINEAR, Meaning.EMBEDDING})


class Namesakes:
    """Pairs of modules by path, class and call number.

    Args:
        left, right: the programs.
        ports: gets the pairs, and what the modules take and give.
    """

    def __init__(self, left: Program, right: Program, ports: Arguments) -> None:
        self._left = left
        self._right = right
        self._ports = ports
        self._portion = portion_of(left.run, right.run)
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
            self._surplus(self._left, first, len(second), self._ports.left_reasons)
            self._surplus(self._right, second, len(first), self._ports.right_reasons)
        self._ports.learn((op, partner) for _, op, partner in found)
        # who computes a value says which one it is; modules around hand it on, rightly or not
        for pair, op, partner in sorted(found, key=lambda each: self._parts(self._left, each[1])):
            self._ports.pair(op, partner, pair.confidence, pair.reason)

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
            same = _same_class(self._left, op, self._right, partner)
            shared = self._portion is not None and self._left.roles[op] in _SHARED
            if whole and (same or (shared and known[name] and self._scale_alike(op, partner))):
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

    def _scale_alike(self, op: int, partner: int) -> bool:
        """False for embeddings of which one multiplies its rows by a number."""
        types = self._left.operations[op].type, self._right.operations[partner].type
        return scales_rows(types[0]) == scales_rows(types[1])

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


def _same_class(left: Program, op: int, right: Program, other: int) -> bool:
    return left.operations[op].type == right.operations[other].type


def _calls(side: Program) -> dict[str, list[int]]:
    """Calls of each module, in their order."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for op, operation in enumerate(side.operations):
        if side.roles[op] is not Meaning.OPERATOR:
            found[operation.name].append((operation.call, op))
    return {name: [op for _, op in sorted(calls)] for name, calls in found.items()}
