"""Rows of communication, which only the side with several ranks has."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ait_llm.compare.api.item import NO_FILE, Item
from ait_llm.compare.api.shards.collectives import wrong_results
from ait_llm.compare.api.shards.comparing import Comparer, opened
from ait_llm.compare.api.shards.row import ShardRow
from ait_llm.compare.api.without_rules import function_of
from ait_llm.core import whole_number
from ait_llm.core.comparison import Verdict
from ait_llm.dumps.api_values import dtype_named
from ait_llm.errors import AitError

COMMUNICATION = "communication between ranks"
_NUMBER = re.compile(r"\d+")


def communication_rows(comparer: Comparer, name: str, before: str | None) -> Iterator[ShardRow]:
    """Rows of a call that speaks to other ranks.

    An input fails on ranks where it is not what the call before it returned, if on most ranks it
    is. An output fails where it is not what the inputs of all members of its group give. All other
    rows are listed only.

    Args:
        comparer: both sides.
        name: the record.
        before: the record before it on the same side.
    """
    ranks = comparer.many.items(name)
    changed = _changed_since(comparer, ranks, before) if before is not None else {}
    wrong = _wrong_ranks(comparer, name, ranks)
    for within in dict.fromkeys(each for items in ranks for each in items):
        items = [each[within] for each in ranks if within in each]
        off, reason = changed.get(within, ()), f"it is not what {before} returned"
        if items[0].state == "output":
            off, reason = wrong, "it is not what the inputs of all ranks give"
        if off:
            yield comparer.make([], items, Verdict.FAIL, reason, off=off)
        else:
            yield comparer.make([], items, Verdict.SKIPPED, COMMUNICATION)


def _changed_since(
    comparer: Comparer, ranks: list[dict[str, Item]], before: str
) -> dict[str, tuple[int, ...]]:
    """Ranks whose inputs are not what the call before returned, by name within the record."""
    returned = comparer.many.items(before)
    found = {}
    for within in (".input.0", ".input.tensor"):
        pairs = [
            (rank, items[within], results[".output.0"])
            for rank, (items, results) in enumerate(zip(ranks, returned, strict=True))
            if within in items and ".output.0" in results
        ]
        if len(pairs) != len(ranks):
            continue
        try:
            unlike = tuple(rank for rank, *both in pairs if not _same(comparer, rank, *both))
        except AitError:
            continue
        if 0 < len(unlike) * 2 < len(ranks):
            found[within] = unlike
    return found


def _same(comparer: Comparer, rank: int, one: Item, other: Item) -> bool:
    """True if two tensors of a rank have the same values, as far as they were captured."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    if NO_FILE in (one.data_name, other.data_name):
        return str(one.statistics) == str(other.statistics) and one.md5 == other.md5
    with opened(comparer.many, [one, other], [rank, rank]) as (first, second):
        return first.tobytes() == second.tobytes()


def _wrong_ranks(comparer: Comparer, name: str, ranks: list[dict[str, Item]]) -> tuple[int, ...]:
    wrong: set[int] = set()
    for group in _groups(ranks):
        members = [ranks[rank] for rank in group]
        named = [
            [
                (within, rank, item)
                for within, item in items.items()
                if item.is_tensor and item.data_name != NO_FILE
            ]
            for rank, items in zip(group, members, strict=True)
        ]
        if not all(named):
            continue
        try:
            wrong |= _wrong_in(comparer, name, group, members, named)
        except AitError:
            continue  # without values nothing is known; the row says that it was not compared
    return tuple(sorted(wrong))


def _wrong_in(
    comparer: Comparer,
    name: str,
    group: tuple[int, ...],
    members: list[dict[str, Item]],
    named: list[list[tuple[str, int, Item]]],
) -> set[int]:
    flat = [each for one in named for each in one]
    with opened(
        comparer.many, [item for _, _, item in flat], [rank for _, rank, _ in flat]
    ) as arrays:
        values = iter(arrays)
        given = [{within: next(values) for within, _, _ in one} for one in named]
        found = wrong_results(
            function_of(name),
            given,
            dtype_named(flat[0][2].dtype),
            _reduction(members[0]),
            _source(members[0], group),
        )
    return {group[member] for member in found or ()}


def _groups(ranks: list[dict[str, Item]]) -> list[tuple[int, ...]]:
    """Members of each group that made the call; all ranks where none is named."""
    found = set()
    for items in ranks:
        group = next((i for i in items.values() if i.dtype == "torch.ProcessGroup"), None)
        if group is None:
            found.add(tuple(range(len(ranks))))
        else:
            found.add(tuple(map(int, _NUMBER.findall(str(group.statistics[0])))))
    return [each for each in sorted(found) if each and max(each) < len(ranks)]


def _reduction(items: dict[str, Item]) -> str:
    """``SUM`` unless the call names another."""
    for item in items.values():
        text = str(item.statistics[0])
        if item.state == "input" and text.startswith(("RedOpType.", "ReduceOp.")):
            return text.rpartition(".")[2]
    return "SUM"


def _source(items: dict[str, Item], group: tuple[int, ...]) -> int:
    """Which member of the group a broadcast starts from; -1 if unknown."""
    for within in (".input.src", ".input.1"):
        item = items.get(within)
        rank = None if item is None else whole_number(str(item.statistics[0]))
        if rank is not None:
            return group.index(rank) if rank in group else -1
    return -1
