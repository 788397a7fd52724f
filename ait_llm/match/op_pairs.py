"""From pairs of ATB operations to pairs of their tensors, for both ATB matchers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ait_llm.dumps.model import Tensor
from ait_llm.match.addresses import Addresses
from ait_llm.match.masks import Masks
from ait_llm.match.model import Match, Unmatched
from ait_llm.match.operators import Finding, Placed, key_of, output_shapes, placed
from ait_llm.match.quantised import Quantised, mixed
from ait_llm.match.shapes import Aligned, batch_ratio
from ait_llm.match.wiring import Links, Wiring
from ait_llm.program.one_pass import Pass


@dataclass(frozen=True, slots=True)
class OpPair:
    """Two operations that answer each other.

    Attributes:
        golden, mine: the operations.
        finding: rule, confidence and reason.
        rivals: golden operations that fit as well.
    """

    golden: Placed
    mine: Placed
    finding: Finding
    rivals: tuple[str, ...] = ()


def match_tensors(golden: Pass, mine: Pass, pairs: Sequence[OpPair]) -> Iterator[Match | Unmatched]:
    """Tensors of all pairs, with batches repeated, caches put in order and integers made real."""
    operations = [(pair.golden, pair.mine) for pair in pairs]
    ratio = batch_ratio(output_shapes(operations))
    addresses, masks = Addresses(operations, ratio), Masks(operations)

    def special(golden: tuple[Placed, Tensor], mine: tuple[Placed, Tensor]) -> Aligned | str | None:
        return addresses.align(golden, mine) or masks.align(golden, mine)

    quantised = Quantised(placed(golden), placed(mine))
    links = Links(Wiring(golden), Wiring(mine))
    # members first: they say which inputs of the graphs around them belong together
    for pair in sorted(pairs, key=lambda each: each.mine.operation.is_graph):
        finding = replace(pair.finding, ratio=ratio, special=special)
        one, other = pair.golden.operation, pair.mine.operation
        linked: list[Match] = []
        if (
            one.is_graph
            and other.is_graph
            and (len(one.inputs) != len(other.inputs) or mixed(one, other))
        ):
            linked += links.inputs(pair.golden, pair.mine, finding)
        yield from linked
        taken = {key_of(pair.mine, match.mine.tensor) for match in linked}
        for found in quantised.match(pair.golden, pair.mine, finding, pair.rivals):
            if isinstance(found, Match):
                if key_of(pair.mine, found.mine.tensor) in taken:
                    continue
                if not other.is_graph:
                    links.note(found)
            yield found
