"""What two programs show of each other before any tensor is asked for: the steps in their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ait_llm.match.model import Match, SideName
from ait_llm.match.programs.align import Aligner, Pair
from ait_llm.match.programs.anchors.arguments import Arguments
from ait_llm.match.programs.anchors.common_nodes import CommonNodes
from ait_llm.match.programs.anchors.given import Given
from ait_llm.match.programs.anchors.named_inputs import add_named_inputs
from ait_llm.match.programs.anchors.namesakes import Namesakes
from ait_llm.match.programs.anchors.ports import Ports
from ait_llm.match.programs.congruence import Congruence
from ait_llm.match.programs.counterparts import Counterparts
from ait_llm.match.programs.layout import Layouts
from ait_llm.match.programs.likeness import Likeness
from ait_llm.match.programs.links import SURE, Links
from ait_llm.match.programs.looked_up import LookedUpTables
from ait_llm.match.programs.outcomes import add_outcomes
from ait_llm.match.programs.plan import Place, plan, same_ids
from ait_llm.match.programs.products import Products
from ait_llm.match.programs.ranks import CongruenceOfRanks
from ait_llm.match.programs.rotary import RotaryLinks
from ait_llm.match.programs.routed import routed_ports
from ait_llm.match.programs.shards import portion_of
from ait_llm.match.programs.sums import Sums
from ait_llm.match.programs.tokens import Tokens, find_tokens
from ait_llm.match.programs.weights import WeightLinks
from ait_llm.program.flow import Value
from ait_llm.program.program import Program
from ait_llm.program.unwritten import Unwritten


class Evidence:
    """All that is known of two programs.

    Attributes:
        left, right: the programs.
        left_is_golden: which of them is the golden one.
        portion: how they share a model; None if both compute the same of it.
        tokens: alignment of their rows.
        ports: what anchors have settled.
        links: values that answer each other.
        weights: weights that parameters of modules answer.
        unwritten: memory of either side that nobody has written.
        summands: values of the whole by numbers of values that ranks have to add up.
        routed: what experts read and give, for tokens that were sent to them.
        likeness: tensors that hold the same elements.
        looked_up: tables that one side looks up, and the other one hands on row by row.
        counterparts: operations that answer each other.
    """

    def __init__(
        self, left: Program, right: Program, *, left_is_golden: bool, given: Sequence[Match] = ()
    ) -> None:
        self.left, self.right = left, right
        self.left_is_golden = left_is_golden
        self._given = Given(left, right, given, left_is_golden=left_is_golden)
        self.portion = portion_of(left.run, right.run)
        library = None
        if are_of_one_library(left, right):
            from ait_llm.match.programs.anchors.library import Library  # other programs have none

            library = Library(left, right)
        is_open = library is None or library.leaves_open
        self.tokens: Tokens | None = find_tokens(left, right) if is_open else None
        self._layouts = Layouts(left, right, self.tokens)
        self.links = Links(left, right, self._layouts)
        self.weights = WeightLinks(left, right, self._layouts)
        self.ports: Ports = library or self._named()
        is_open = is_open and not self.ports.settles
        places = dict(self.ports.places)
        self.weights.without = self._folded()
        for op, other in places.items():
            self.links.add_unit(op, other)
            self.weights.add_same(op, other, SURE)
        if is_open:
            add_named_inputs(left, right, self.links, self.tokens)
            self._align()
            for op, other in Counterparts(left, right, self.links.units).pairs():
                places.setdefault(op, other)
        self.unwritten = Unwritten(left), Unwritten(right)
        self.summands: dict[int, Value] = {}
        sides = left, right, self.tokens, self.links, places, self.unwritten
        if self.portion is None:
            if is_open:
                Congruence(*sides).run()
        elif self.portion.of_left:
            ranks = CongruenceOfRanks(*sides, self.portion)
            ranks.run()
            self.summands = ranks.summands
        self.likeness = Likeness(left, right, self.tokens, self.links)
        about = left, right, self.tokens, self.links.units, self.likeness
        self.routed = routed_ports(*about) if is_open else {}
        self.looked_up = LookedUpTables(left, right, self.tokens, self.links, self.likeness)
        self.counterparts = Counterparts(left, right, self.links.units)

    def side_name(self, side: Program) -> SideName:
        """Which side of the comparison a program is."""
        return "golden" if (side is self.left) == self.left_is_golden else "mine"

    def title(self, side: Program) -> str:
        """How reasons call the dump of a program."""
        return "the golden dump" if self.side_name(side) == "golden" else "my dump"

    def _named(self) -> Arguments:
        """What modules and nodes of one name on both sides take and give."""
        sides = self.left, self.right
        ports = Arguments(*sides, self.tokens, self.links, left_is_golden=self.left_is_golden)
        self._given.add(ports, self.links)
        Namesakes(*sides, ports)
        CommonNodes(*sides, ports, (self.title(self.left), self.title(self.right)))
        return ports

    def _folded(self) -> frozenset[str]:
        """Modules of which one side has taken up the norm behind them, and these."""
        if not (self.left.has_modules and self.right.has_modules):
            return frozenset()
        if not any(
            "BatchNorm" in each.type for each in (*self.left.operations, *self.right.operations)
        ):
            return frozenset()
        from ait_llm.match.programs.folded_norms import link_folded  # few programs have such norms

        return link_folded(self.left, self.right, self.links, self.ports)

    def _align(self) -> None:
        ids = same_ids(self.left, self.right, self.tokens)
        known = self.ports.places if self.right.nodes else self._given.places
        aligner = Aligner(self.left, self.right, ids, known)
        aligned: list[tuple[Place, list[Pair]]] = [
            (place, aligner.align(place.left.units, place.right.units))
            for place in self._open_places(plan(self.left, self.right, aligner))
        ]
        for _, pairs in aligned:
            self._layouts.learn(pairs)
        for place, pairs in aligned:
            self.links.add_pairs(pairs, place.where, place.certainty)
        for place, pairs in aligned:
            self.links.add_sources(pairs, place.where, place.certainty)
        products = Products(self.left, self.right, self.links, self.weights)
        for place, pairs in aligned:
            self.weights.add(pairs, place.where, place.certainty)
            products.add(pairs, place.where, place.certainty)
            self.links.add_choices(pairs, place.where)
        for place, _ in aligned:
            self.links.add_layer(place.left, place.right, place.certainty)
        self.links.add_splits()
        rotary = RotaryLinks(self.left, self.right, self.links)
        rotary.add_tables()
        for place, _ in aligned:
            rotary.add_handed(place.left, place.right)
        rotary.add_rotated()
        rotary.add_composites()
        Sums(self.left, self.right, self.links).add()
        add_outcomes(self.left, self.right, self.links)

    def _open_places(self, places: Iterable[Place]) -> Iterator[Place]:
        """What alignment may pair: blocks that answer each other, without what is settled."""
        alone = self.ports.alone
        for place in places:
            if alone is None:
                yield place
                continue
            layer = place.left.layer
            if layer is None or self.ports.places.get(layer) == place.right.layer:
                left, right = place.left.only(alone[0]), place.right.only(alone[1])
                if left.units and right.units:
                    yield replace(place, left=left, right=right)


def are_of_one_library(left: Program, right: Program) -> bool:
    """True for two runs of one library of operations."""
    return left.run.traits.library and right.run.traits.library
