"""When calls of several ranks happened, as far as communication orders them.

A collective ends when all ranks of its group have come to it, so what a rank computes after it
comes later than what the others computed before it. Calls are given a depth: the number of
communications that must have happened before, on any rank.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

# What a point-to-point call does, by its name.
_SENDS = frozenset({"send", "isend"})
_RECEIVES = frozenset({"recv", "irecv"})


@dataclass(frozen=True, slots=True)
class Communication:
    """One communication call of one rank.

    Attributes:
        function: ``all_reduce``.
        group: ranks that take part; empty for all.
        peers: what is sent and received, ``("isend", 1)``; empty for collectives.
    """

    function: str
    group: tuple[int, ...] = ()
    peers: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """One record of one rank.

    Attributes:
        name: the record.
        differs: an output differs from golden.
        input_differs: an input does.
        communication: what it says to other ranks, None for computation.
    """

    name: str
    differs: bool
    input_differs: bool = False
    communication: Communication | None = None


# One communication with all who take part in it: the same key on every rank.
Meeting = tuple[object, ...]


def depths(ranks: Mapping[int, Sequence[Call]]) -> dict[int, list[int]]:
    """Depth of every call of every rank; even for computation, odd for communication.

    Args:
        ranks: calls in their order, by rank.
    """
    meetings = {rank: _meetings(rank, calls, sorted(ranks)) for rank, calls in ranks.items()}
    # Longest chains: repeat until nothing grows. Each round settles at least one more layer.
    layer: dict[Meeting, int] = {}
    order = {rank: [each for each in found if each] for rank, found in meetings.items()}
    longest = sum(map(len, order.values())) + 1
    for _ in range(longest):
        if not _grow(order, layer):
            break
    return {rank: _rank_depths(found, layer) for rank, found in meetings.items()}


def _grow(order: Mapping[int, Sequence[tuple[Meeting, ...]]], layer: dict[Meeting, int]) -> bool:
    """One round over all ranks; False if every depth is settled."""
    grown = False
    for calls in order.values():
        before = 0
        for meetings in calls:
            depth = max(before + 1, *(layer.get(each, 1) for each in meetings))
            for each in meetings:
                if layer.get(each, 0) < depth:
                    layer[each] = depth
                    grown = True
            before = depth
    return grown


def _rank_depths(found: Sequence[tuple[Meeting, ...]], layer: Mapping[Meeting, int]) -> list[int]:
    depth = 0
    result = []
    for meetings in found:
        if meetings:
            depth = max(layer[each] for each in meetings)
            result.append(2 * depth - 1)
        else:
            result.append(2 * depth)
    return result


def _meetings(
    rank: int, calls: Sequence[Call], everyone: Sequence[int]
) -> list[tuple[Meeting, ...]]:
    """For each call the communications that it takes part in, numbered in their order."""
    counts: defaultdict[object, int] = defaultdict(int)
    return [
        ()
        if call.communication is None
        else tuple(map(partial(_numbered, counts), _keys(rank, call.communication, everyone)))
        for call in calls
    ]


def _numbered(counts: defaultdict[object, int], key: tuple[object, ...]) -> Meeting:
    number = counts[key]
    counts[key] += 1
    return (*key, number)


def _keys(
    rank: int, communication: Communication, everyone: Sequence[int]
) -> list[tuple[object, ...]]:
    if not communication.peers:
        return [("group", communication.group or tuple(everyone), communication.function)]
    keys: list[tuple[object, ...]] = []
    for operation, peer in communication.peers:
        if operation in _SENDS:
            keys.append(("from", rank, peer))
        elif operation in _RECEIVES:
            keys.append(("from", peer, rank))
    return keys or [("alone", rank, communication.function)]
