"""What only one of two graphs of one model shows, because the other one has fused its nodes.

ONNX Runtime computes in one node what a graph says in several (``QuickGelu``, ``FusedMatMul``,
``SkipLayerNormalization``), moves transpositions, and leaves out what it knows ahead. What lies
within such a stretch has no counterpart; where the stretch ends it is compared. So a value can have
none by nature if all that is computed of it comes to values that have one, and every node of both
graphs is there: nothing can be wrong within the stretch and right behind it, and nothing was lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from sys import intern

from ait_llm.match.model import Match, Source, Unmatched
from ait_llm.program.common_nodes import CommonNode, graphs_of
from ait_llm.program.describe import integers, is_float
from ait_llm.program.flow import Value
from ait_llm.program.program import Program

Found = Match | Unmatched
_WORDS = "the other graph tells the same sizes in other words"


def within_fused_nodes(
    golden: Program, mine: Program, found: Iterable[Found], titles: tuple[str, str]
) -> Iterator[Found]:
    """What was found, with those marked that have no counterpart by nature.

    Args:
        golden, mine: the programs.
        found: all that the matcher says of them.
        titles: how reasons call the two dumps.
    """
    sides = golden, mine
    if not all(map(_is_whole_graph, sides)):
        yield from found
        return
    every = [part for each in found for part in _apart(each, sides)]
    stretches = _Stretches(golden), _Stretches(mine)
    for each in every:
        if isinstance(each, Match) and not each.is_self_check:
            stretches[0].ends_at(each.golden, each.mine.operation.name)
            stretches[1].ends_at(each.mine, each.golden.operation.name)
    for side in stretches:
        side.close()
    for each in every:
        if isinstance(each, Match) or each.lost or each.by_nature:
            yield each
            continue
        number = int(each.side == "mine")
        end = stretches[number].end_behind(each.source)
        if end is None:
            yield each
        elif end and is_float(each.source.tensor):
            reason = intern(f"{titles[1 - number]} computes {end} without it")
            yield replace(each, reason=reason, by_nature=True)
        else:
            yield replace(each, by_nature=True)


def _is_whole_graph(side: Program) -> bool:
    """True for one graph that names its results, of which every node is in the dump."""
    graphs = graphs_of(side.run)
    if len(graphs) != 1 or not graphs[0].results or not side.nodes:
        return False
    places = (node.op for node in side.nodes.values())
    return all(
        op is not None and len(side.operations[op].outputs) == _results(node)
        for op, node in zip(places, side.nodes.values(), strict=True)
    )


def _results(node: CommonNode) -> int:
    """How many results a node has; of one that leaves some out the others have shapes."""
    return sum(each is not None for each in node.gives) or len(node.gives)


def _apart(found: Found, sides: tuple[Program, Program]) -> Sequence[Found]:
    """A match, or both tensors alone where they tell the sizes of one shape in other words.

    A size may be left open (-1) or copied (0) where the other graph has it; its result shows it.
    """
    if not isinstance(found, Match) or found.is_self_check:
        return [found]
    both = list(zip(sides, (found.golden, found.mine), strict=True))
    if not any(_is_size(side, source) for side, source in both):
        return [found]
    one, other = (integers(source.tensor) for _, source in both)
    if one is None or other is None or one.shape != other.shape or (one == other).all():
        return [found]
    if not ((one == other) | (one <= 0) | (other <= 0)).all():
        return [found]
    return [
        Unmatched("golden", found.golden, _WORDS, by_nature=True),
        Unmatched("mine", found.mine, _WORDS, by_nature=True),
    ]


def _is_size(side: Program, source: Source) -> bool:
    """True for the sizes that a node gives its first input."""
    value = side.value(source.order - side.run.first_order, source.tensor)
    return value is not None and any(
        use.tensor.index == 1 and side.kind(use.op).lower() == "reshape" for use in value.reads
    )


class _Stretches:
    """Values of a side without a counterpart, and where what is computed of them has one."""

    def __init__(self, side: Program) -> None:
        self._side = side
        self._ends: dict[int, str] = {}  # by number of a value; empty if nobody reads it
        made = set(graphs_of(side.run)[0].results.values())
        self._results = {
            value.number
            for op, operation in enumerate(side.operations)
            for tensor in operation.outputs
            if (operation.name, tensor.index) in made
            if (value := side.value(op, tensor)) is not None
        }
        self._behind: list[str | None] = []  # by operation

    def ends_at(self, source: Source, counterpart: str) -> None:
        """A value has a counterpart, which is this node's on the other side."""
        value = self._side.value(self._op(source), source.tensor)
        if value is not None and value.writes:
            self._ends.setdefault(value.number, counterpart)

    def close(self) -> None:
        """Find out what every operation leads to, now that all ends are known."""
        operations = self._side.operations
        self._behind = [None] * len(operations)
        for op in reversed(range(len(operations))):
            values = [self._side.value(op, tensor) for tensor in operations[op].outputs]
            self._behind[op] = self._first([self._end_of(value) for value in values])

    def end_behind(self, source: Source) -> str | None:
        """The node of the other side where the stretch of a tensor ends; None if it is open."""
        op = self._op(source)
        if source.tensor.role == "in":
            return self._behind[op]
        return self._end_of(self._side.value(op, source.tensor))

    def _end_of(self, value: Value | None) -> str | None:
        if value is None:
            return None
        if value.number in self._ends:
            return self._ends[value.number]
        if value.number in self._results:
            return None
        return self._first([self._behind[use.op] for use in value.reads])

    @staticmethod
    def _first(ends: Sequence[str | None]) -> str | None:
        """The first of several ends; none if one of them is open."""
        if any(end is None for end in ends):
            return None
        return next((end for end in ends if end), "")

    def _op(self, source: Source) -> int:
        return source.order - self._side.run.first_order
