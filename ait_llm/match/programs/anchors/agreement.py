"""Which names mean one node in two graphs.

Names of nodes are numbers in disguise: one more addition early in a graph makes ``add_4`` of what
is ``add_3`` in the other. So a name is believed where what wrote the arguments, or what reads the
result, has equal names as well, or where both are called at one place of one module. Where a graph
shows that another node reads what this one should, the name is not. A dump that was filtered shows
few neighbours; its names are believed if nothing in both graphs contradicts that they are one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping

from ait_llm.match.names import NamePair, pair_names
from ait_llm.program.common_nodes import CommonNode, Made, Shape

# Of the names of the smaller side; two dumps of one graph may hold different shares of it.
_ENOUGH = 0.5
_DOUBTED = 0.9

Nodes = Mapping[str, CommonNode]


class Agreement:
    """Nodes of both sides that are one.

    Args:
        left, right: the nodes.
        fit: tells if tensors of two shapes can be compared.
        are_told: tells if more than the names says that two nodes are one.

    Attributes:
        pairs: by the name on the left.
        is_one: True if nothing contradicts that both are of one graph: what only one of them has
            is not in the other.
    """

    def __init__(
        self,
        left: Nodes,
        right: Nodes,
        fit: Callable[[Shape, Shape], bool],
        are_told: Callable[[str, str], bool] = lambda one, other: False,
    ) -> None:
        self._sides = left, right
        self._fit, self._are_told = fit, are_told
        named = pair_names(
            {name: node.kind or None for name, node in left.items()},
            {name: node.kind or None for name, node in right.items()},
        )
        self.pairs: dict[str, NamePair] = {pair.golden: pair for pair in named}
        self._names = {pair.golden: pair.mine for pair in named}
        self._back = {pair.mine: pair.golden for pair in named}
        self._readers = _readers(left), _readers(right)
        odd = {name for name in self.pairs if not self._fits(name)}
        odd = {name for name in odd if not self._is_supported(name, but=odd)}
        wrong = odd | {name for name in self.pairs if self._is_contradicted(name)}
        wrong |= {
            one for one, other in self._names.items() if left[one].is_part != right[other].is_part
        }
        shared = len(self.pairs) >= _ENOUGH * min(len(left), len(right))
        self.is_one = bool(self.pairs) and shared and not wrong
        for name in wrong:
            del self.pairs[name]
        self._drop_unsupported()

    def __contains__(self, name: str) -> bool:
        return name in self.pairs

    def confidence(self, name: str) -> float:
        """How sure it is that a name on the left means the same on the right."""
        doubted = any(self._differing(name))
        return (
            min(self.pairs[name].confidence, _DOUBTED) if doubted else self.pairs[name].confidence
        )

    def _drop_unsupported(self) -> None:
        """Leave out what only its name speaks for, where that is not enough."""
        waiting = list(self.pairs)
        while waiting:
            dropped = {name for name in waiting if name in self.pairs and self._is_loose(name)}
            for name in dropped:
                del self.pairs[name]
            waiting = [other for name in dropped for other in self._neighbours(name)]

    def _is_loose(self, name: str) -> bool:
        left, right = self._sides[0][name], self._sides[1][self._names[name]]
        same = len(left.reads) == len(right.reads) and left.definition == right.definition
        if same and self.is_one and not any(self._differing(name)):
            return False
        if self._are_told(name, self._names[name]):
            return False
        # what is called in another way may well be another node that reads the same
        return not self._is_supported(name, by_readers=not same)

    def _is_supported(
        self, name: str, *, by_readers: bool = False, but: Container[str] = ()
    ) -> bool:
        """True if a neighbour that is believed has the same name on both sides.

        Args:
            name: of a node.
            by_readers: only what reads the result counts, not what made an argument.
            but: names that are not believed.
        """
        partners = set(self._reading(1, self._names[name]))
        if any(
            reader in self.pairs and reader not in but and self._names[reader] in partners
            for reader in self._reading(0, name)
        ):
            return True
        reads = self._sides[0][name].reads, self._sides[1][self._names[name]].reads
        return not by_readers and any(
            one[0] in self.pairs and one[0] not in but and _exchanged(one, self._names) == two
            for one, two in zip(*reads, strict=False)
            if one is not None
        )

    def _fits(self, name: str) -> bool:
        """True if arguments and results have shapes that go together."""
        left, right = self._sides[0][name], self._sides[1][self._names[name]]
        return all(
            one is None or two is None or self._fit(one, two)
            for ours, theirs in ((left.takes, right.takes), (left.gives, right.gives))
            for one, two in zip(ours, theirs, strict=False)
        )

    def _neighbours(self, name: str) -> Iterator[str]:
        yield from (made[0] for made in self._sides[0][name].reads if made is not None)
        yield from self._reading(0, name)

    def _reading(self, side: int, name: str) -> Iterator[str]:
        """Who reads a node on one side."""
        for index in range(max(1, len(self._sides[side][name].gives))):
            yield from self._readers[side].get((name, index), ())

    def _differing(self, name: str) -> Iterator[tuple[Made, Made]]:
        """What made an argument on either side, where these are known not to be one."""
        reads = self._sides[0][name].reads, self._sides[1][self._names[name]].reads
        for one, two in zip(*reads, strict=False):
            if one and two and _exchanged(one, self._names) != two:
                yield one, two

    def _is_contradicted(self, name: str) -> bool:
        """True if another node of the kind reads on one side what this one reads on the other."""
        other = self._names[name]
        differing = list(self._differing(name))
        if len(differing) > 1 and {_exchanged(one, self._names) for one, _ in differing} == {
            two for _, two in differing
        }:
            return True  # the same arguments in another order
        return any(
            self._has_other_reader(1, one, other, self._names, self._back)
            or self._has_other_reader(0, two, name, self._back, self._names)
            for one, two in differing
        )

    def _has_other_reader(
        self, side: int, there: Made, own: str, names: Mapping[str, str], back: Mapping[str, str]
    ) -> bool:
        """True if a node reads a result on one side and its namesake does not on the other.

        Args:
            side: where to look.
            there: the result, as the other side calls it.
            own: the node that should read it.
            names: of the other side to those of this one.
            back: the reverse.
        """
        nodes, others = self._sides[side], self._sides[1 - side]
        here = _exchanged(there, names)
        for reader in self._readers[side].get(here, ()) if here is not None else ():
            if reader != own and nodes[reader].kind == nodes[own].kind:
                namesake = back.get(reader)
                if namesake is None or there not in others[namesake].reads:
                    return True
        return False


def _exchanged(made: Made, names: Mapping[str, str]) -> Made | None:
    name = names.get(made[0])
    return None if name is None else (name, made[1])


def _readers(nodes: Nodes) -> dict[Made, list[str]]:
    """Who reads each result of each node."""
    found: dict[Made, list[str]] = defaultdict(list)
    for name, node in nodes.items():
        for made in dict.fromkeys(node.reads):
            if made is not None:
                found[made].append(name)
    return found
