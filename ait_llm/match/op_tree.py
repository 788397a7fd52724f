"""The operations of a run as a tree, and which parts of two trees answer each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ait_llm.dumps.model import Operation
from ait_llm.errors import AitError
from ait_llm.formats.names import PLAIN_FORMATS
from ait_llm.match.align import align_sequences
from ait_llm.match.operators import Placed

# Types that compute the same on other element types (quantised: float).
SAME_WORK = {
    "LinearQuantOperation": "LinearOperation",
    "LinearSparseOperation": "LinearOperation",
    "LinearActivationQuantOperation": "LinearActivationOperation",
    "LinearDequantOnly": "LinearNoQuant",
    "LinearRowParallelNoAdd": "LinearRowParallelAndAdd",
}
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
    """An operation and its members; ``placed`` is None where only members were captured."""

    kind: str
    placed: Placed | None = None
    members: dict[int, TreeNode] = field(default_factory=dict)
    children: list[TreeNode] = field(default_factory=list)
    signature: int = -1


@dataclass(frozen=True, slots=True)
class NodePair:
    """Two operations that answer each other, and golden ones that would as well."""

    golden: Placed
    mine: Placed
    certain: bool
    rivals: tuple[str, ...] = ()


def build_tree(operations: Sequence[Placed]) -> list[TreeNode]:
    """Top-level operations with everything below them."""
    top = TreeNode("")
    for each in operations:
        node = top
        for part in each.operation.op_id.parts:
            node = node.members.setdefault(part, TreeNode(""))
        node.kind, node.placed = _same_work(each.operation.type), each
    pending = [top]
    while pending:
        node = pending.pop()
        node.children = [node.members[place] for place in sorted(node.members)]
        pending += node.children
    return top.children


def _same_work(kind: str) -> str:
    return SAME_WORK.get(kind, kind)


class TreeAligner:
    """Pairs operations of two trees by type, order and width, never by name or value.

    Subtrees that look alike are aligned once: the layers of a model cost as much as one of them.
    """

    def __init__(self, golden: Sequence[TreeNode], mine: Sequence[TreeNode]) -> None:
        self._tops = golden, mine
        self._numbers: dict[Signature, int] = {}
        self._known: dict[tuple[int, int], _Alignment] = {}

    def pairs(self) -> Iterator[NodePair]:
        """Pairs in execution order, a graph before its members."""
        golden, mine = self._tops
        for node in (*golden, *mine):
            self._sign(node)
        found = self._align_rows(golden, mine)
        yield from self._walk(golden, mine, found, True, {})

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
            if not current.children and current.placed is not None:
                look = (current.kind, *_details(current.placed.operation))
            current.signature = self._numbers.setdefault(look, len(self._numbers))

    def _align(self, golden: TreeNode, mine: TreeNode) -> _Alignment:
        key = golden.signature, mine.signature
        if key not in self._known:
            self._known[key] = self._compare(golden, mine)
        return self._known[key]

    def _compare(self, golden: TreeNode, mine: TreeNode) -> _Alignment:
        same = golden.kind == mine.kind != ""
        if golden.children and mine.children:
            found = self._align_rows(golden.children, mine.children)
            bonus = _LEAF // 2 if found.worth and same else 0
            return _Alignment(found.worth + bonus, found.pairs)
        if not golden.children and not mine.children:
            fits = same and _may_be(golden, mine)
            return _Alignment(_LEAF if fits else 0, ())
        if same:
            return _Alignment(_LEAF, ())  # the members of one of them were not captured
        # one operation against a graph that wraps such a one
        if golden.children:
            worths = [self._align(child, mine).worth for child in golden.children]
        else:
            worths = [self._align(golden, child).worth for child in mine.children]
        best = max(worths)
        places = [place for place, worth in enumerate(worths) if worth == best]
        if not best:
            return _Alignment(0, ())
        certain = len(places) == 1
        pair = (places[0], -1) if golden.children else (-1, places[0])
        rivals = tuple(places[1:]) if golden.children else ()
        return _Alignment(best, ((*pair, rivals, certain),))

    def _align_rows(self, golden: Sequence[TreeNode], mine: Sequence[TreeNode]) -> _Alignment:
        worth, pairs = align_sequences(
            len(golden), len(mine), lambda i, j: self._align(golden[i], mine[j]).worth
        )
        return _Alignment(
            worth, tuple((pair.first, pair.second, pair.rivals, pair.certain) for pair in pairs)
        )

    def _walk(
        self,
        golden: Sequence[TreeNode],
        mine: Sequence[TreeNode],
        found: _Alignment,
        certain: bool,
        outer: dict[str, None],
        lone: tuple[TreeNode | None, TreeNode | None] = (None, None),
    ) -> Iterator[NodePair]:
        for first, second, rivals, only in found.pairs:
            one = golden[first] if first >= 0 else lone[0]
            other = mine[second] if second >= 0 else lone[1]
            assert one is not None
            assert other is not None
            titles = {**outer, **dict.fromkeys(_title(golden[place]) for place in rivals)}
            sure = certain and only
            if (
                one.placed is not None
                and other.placed is not None
                and (bool(one.children) == bool(other.children) or one.kind == other.kind)
            ):
                yield NodePair(one.placed, other.placed, sure, tuple(filter(None, titles)))
            yield from self._walk(
                one.children,
                other.children,
                self._align(one, other),
                sure,
                titles,
                (None if one.children else one, None if other.children else other),
            )


@dataclass(frozen=True, slots=True)
class _Alignment:
    """Worth of two subtrees, and pairs of members: places, rivals, whether it is certain.

    Place -1 stands for the subtree itself, where the other one wraps such an operation.
    """

    worth: int
    pairs: tuple[tuple[int, int, tuple[int, ...], bool], ...]


def _title(node: TreeNode) -> str:
    return node.placed.operation.name if node.placed is not None else ""


def _details(operation: Operation) -> tuple[object, object]:
    """What is known of a leaf beside its type: the kind of work, and the width of its output."""
    subtype: object = None
    key = _SUBTYPES.get(operation.type)
    width: object = None
    try:
        if key is not None:
            subtype = operation.params.get(key)
        for tensor in operation.outputs[:1]:
            if tensor.format in PLAIN_FORMATS and tensor.shape:
                width = tensor.shape[-1]
    except AitError:
        pass  # comparing the tensor says what is wrong with it
    return subtype, width


def _may_be(golden: TreeNode, mine: TreeNode) -> bool:
    """False if two leaves of one type are known to do different work."""
    if golden.placed is None or mine.placed is None:
        return True
    return all(
        one is None or other is None or one == other
        for one, other in zip(
            _details(golden.placed.operation), _details(mine.placed.operation), strict=True
        )
    )
