"""Two trees of library operations, aligned in order: graph by graph, and in them member by member.

It is for two runs of one library whose graphs are not the same: a float model against its quantised
form, other versions. Operations that only one side has stay alone; those that could belong to
several are told as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ait_llm.dumps.model import Operation
from ait_llm.match.align import align_sequences
from ait_llm.match.quantised import SAME_WORK
from ait_llm.program.describe import params_of, shape_of
from ait_llm.program.program import Program

# Parameter that decides what an operation of a general type computes.
_SUBTYPES = {
    "ElewiseOperation": "elewiseType",
    "ActivationOperation": "activationType",
    "ReduceOperation": "reduceType",
    "KvCacheOperation": "kvCacheType",
    "SetValueOperation": "setValueType",
}
_LEAF = 2  # worth of two operations; two graphs of one type add half of it

Signature = tuple[object, ...]


@dataclass(slots=True)
class TreeNode:
    """An operation and its members; ``op`` is None where only members were captured."""

    kind: str = ""
    op: int | None = None
    details: tuple[object, object] = (None, None)
    members: dict[int, TreeNode] = field(default_factory=dict)
    children: list[TreeNode] = field(default_factory=list)
    signature: int = -1


@dataclass(frozen=True, slots=True)
class NodePair:
    """Two operations that answer each other, and left ones that would as well."""

    left: int
    right: int
    certain: bool
    rivals: tuple[int, ...] = ()


def build_tree(operations: Sequence[Operation]) -> list[TreeNode]:
    """Top-level operations with everything below them."""
    top = TreeNode()
    for op, operation in enumerate(operations):
        node = top
        for part in operation.op_id.parts:
            node = node.members.setdefault(part, TreeNode())
        node.kind, node.op = SAME_WORK.get(operation.type, operation.type), op
    pending = [top]
    while pending:
        node = pending.pop()
        node.children = [node.members[place] for place in sorted(node.members)]
        pending += node.children
        if not node.children and node.op is not None:
            node.details = _details(operations[node.op])
    return top.children


def align_trees(left: Program, right: Program) -> Iterator[NodePair]:
    """Pairs of operations by type, order and width, never by name or value; a graph comes first."""
    return _TreeAligner(build_tree(left.operations), build_tree(right.operations)).pairs()


class _TreeAligner:
    """Subtrees that look alike are aligned once: a model costs as much as one of its layers."""

    def __init__(self, left: Sequence[TreeNode], right: Sequence[TreeNode]) -> None:
        self._tops = left, right
        self._numbers: dict[Signature, int] = {}
        self._known: dict[tuple[int, int], _Alignment] = {}

    def pairs(self) -> Iterator[NodePair]:
        left, right = self._tops
        for node in (*left, *right):
            self._sign(node)
        found = self._align_rows(left, right)
        yield from self._walk(left, right, found, True, {})

    def _sign(self, node: TreeNode) -> None:
        """Number subtrees so that equal numbers mean equal looks."""
        stack: list[tuple[TreeNode, bool]] = [(node, False)]
        while stack:
            current, ready = stack.pop()
            if not ready:
                stack.append((current, True))
                stack += [(child, False) for child in current.children]
                continue
            look: Signature = (current.kind, *(child.signature for child in current.children))
            if not current.children:
                look = (current.kind, *current.details)
            current.signature = self._numbers.setdefault(look, len(self._numbers))

    def _align(self, left: TreeNode, right: TreeNode) -> _Alignment:
        key = left.signature, right.signature
        if key not in self._known:
            self._known[key] = self._compare(left, right)
        return self._known[key]

    def _compare(self, left: TreeNode, right: TreeNode) -> _Alignment:
        same = left.kind == right.kind != ""
        if left.children and right.children:
            found = self._align_rows(left.children, right.children)
            bonus = _LEAF // 2 if found.worth and same else 0
            return _Alignment(found.worth + bonus, found.pairs)
        if not left.children and not right.children:
            fits = same and all(
                one is None or other is None or one == other
                for one, other in zip(left.details, right.details, strict=True)
            )
            return _Alignment(_LEAF if fits else 0, ())
        if same:
            return _Alignment(_LEAF, ())  # the members of one of them were not captured
        # one operation against a graph that wraps such a one
        if left.children:
            worths = [self._align(child, right).worth for child in left.children]
        else:
            worths = [self._align(left, child).worth for child in right.children]
        best = max(worths)
        places = [place for place, worth in enumerate(worths) if worth == best]
        if not best:
            return _Alignment(0, ())
        certain = len(places) == 1
        pair = (places[0], -1) if left.children else (-1, places[0])
        rivals = tuple(places[1:]) if left.children else ()
        return _Alignment(best, ((*pair, rivals, certain),))

    def _align_rows(self, left: Sequence[TreeNode], right: Sequence[TreeNode]) -> _Alignment:
        worth, pairs = align_sequences(
            len(left), len(right), lambda i, j: self._align(left[i], right[j]).worth
        )
        return _Alignment(
            worth, tuple((pair.first, pair.second, pair.rivals, pair.certain) for pair in pairs)
        )

    def _walk(
        self,
        left: Sequence[TreeNode],
        right: Sequence[TreeNode],
        found: _Alignment,
        certain: bool,
        outer: dict[int, None],
        lone: tuple[TreeNode | None, TreeNode | None] = (None, None),
    ) -> Iterator[NodePair]:
        for first, second, rivals, only in found.pairs:
            one = left[first] if first >= 0 else lone[0]
            other = right[second] if second >= 0 else lone[1]
            assert one is not None
            assert other is not None
            ops = (left[place].op for place in rivals)
            others = {**outer, **{op: None for op in ops if op is not None}}
            sure = certain and only
            alike = bool(one.children) == bool(other.children) or one.kind == other.kind
            if one.op is not None and other.op is not None and alike:
                yield NodePair(one.op, other.op, sure, tuple(others))
            yield from self._walk(
                one.children,
                other.children,
                self._align(one, other),
                sure,
                others,
                (None if one.children else one, None if other.children else other),
            )


@dataclass(frozen=True, slots=True)
class _Alignment:
    """Worth of two subtrees, and pairs of members: places, rivals, whether it is certain.

    Place -1 stands for the subtree itself, where the other one wraps such an operation.
    """

    worth: int
    pairs: tuple[tuple[int, int, tuple[int, ...], bool], ...]


def _details(operation: Operation) -> tuple[object, object]:
    """What is known of a leaf beside its type: the kind of work, and the width of its output."""
    key = _SUBTYPES.get(operation.type)
    shape = next((shape_of(tensor) for tensor in operation.outputs), None)
    return None if key is None else params_of(operation).get(key), shape[-1] if shape else None
