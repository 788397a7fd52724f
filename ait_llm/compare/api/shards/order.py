"""The first call that differs, over all ranks, by the order of communication."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ait_llm.compare.api.first_difference import (
    FirstDifference,
    communication_of,
    first_differences,
)
from ait_llm.compare.api.item import Item
from ait_llm.compare.api.rank_order import Call
from ait_llm.compare.api.row import Row
from ait_llm.compare.api.shards.records import Ranks
from ait_llm.compare.api.shards.row import ShardRow
from ait_llm.core.comparison import Verdict

_COMMUNICATION = "Distributed."


class Order:
    """Collects what differs on each rank, call by call.

    Args:
        ranks: the side with more ranks.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._calls: list[list[Call]] = [[] for _ in ranks.sides]
        self._inputs: dict[tuple[int, str], Item] = {}

    def add(self, name: str, rows: Sequence[ShardRow]) -> None:
        """Take the rows of the next call."""
        failing = [row for row in rows if row.verdict is Verdict.FAIL]
        speaks = name.startswith(_COMMUNICATION)
        items = self._ranks.items(name) if speaks else []
        missing = self._ranks.missing(name)
        for rank, calls in enumerate(self._calls):
            if rank in missing:
                continue
            off = [row for row in failing if not row.off or rank in row.off]
            inputs = [row for row in off if row.item.state != "output"]
            if inputs and not speaks:
                self._inputs[rank, name] = inputs[0].item
            group = None
            if speaks:
                group = communication_of(name, [Row(each, None) for each in items[rank].values()])
            given_wrong = speaks and bool(inputs)
            calls.append(Call(name, bool(off) and not given_wrong, given_wrong, group))

    def first_differences(self) -> list[FirstDifference]:
        """The earliest calls that differ, at most one per rank.

        A collective is blamed if what it was given is right on all ranks: because it did not
        return what these inputs give, or because the next call on a rank reads something wrong.
        """
        found = first_differences(dict(enumerate(self._calls)))
        return [self._explained(each) for each in found]

    def _explained(self, each: FirstDifference) -> FirstDifference:
        wrong = self._inputs.get((each.rank, each.name))
        if wrong is None:
            return each
        why = f"{wrong.name} differs, and nothing captured before it on any rank does"
        before = self._before(each.rank, each.name)
        if before is not None and wrong.state == "input" and wrong.shape in before[1]:
            why = (
                f"{wrong.name} differs; what {before[0]} was given and returned is right, so it is "
                "what runs between the two"
                if before[2]
                else f"{wrong.name} differs; {before[0]} was given what is right on all ranks, so "
                "it is to blame, or what runs between the two"
            )
        return replace(each, why=why)

    def _before(self, rank: int, name: str) -> tuple[str, set[str], bool] | None:
        """The last communication before a call, its shapes, and if its result was recorded."""
        found = None
        for call in self._calls[rank]:
            if call.name == name:
                break
            if call.communication is not None:
                found = call.name
        if found is None:
            return None
        items = [item for item in self._ranks.items(found)[rank].values() if item.is_tensor]
        shapes = {item.shape for item in items}
        return found, shapes, any(item.state == "output" for item in items)
