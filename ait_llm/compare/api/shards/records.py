"""The same call on all ranks of both sides.

Ranks of one side run the same program: their records have the same names. The sides do not: the
class of a module may be another, and code that only one side needs (masks of a vocabulary that is
cut, communication) makes further calls, which shift the numbers of those after it. So calls of a
function that both sides made equally often are matched by number. They are fixed points; what lies
between two of them is matched in order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ait_llm.compare.api.item import Item, items_of
from ait_llm.compare.api.matching import within_record, without_call
from ait_llm.compare.api.sides import ApiSide
from ait_llm.dumps.api_json import UnfinishedError, read_members, read_value

_COMMUNICATION = "Distributed."


class Ranks:
    """The records of one side by name, on all its ranks.

    Args:
        sides: one file for each rank.

    Attributes:
        sides: the files.
        problems: what could not be read.
    """

    def __init__(self, sides: Sequence[ApiSide]) -> None:
        self.sides = sides
        self.problems: list[str] = []
        self._places = [self._read(side) for side in sides]

    def _read(self, side: ApiSide) -> dict[str, tuple[int, int]]:
        """Where each record lies in a file; records themselves are not kept."""
        places: dict[str, tuple[int, int]] = {}
        try:
            for member in read_members(side.place.path, ("data",)):
                if member.parent == "data":
                    places[member.key] = member.offset, member.length
        except UnfinishedError as error:
            self.problems.append(str(error))
        return places

    @property
    def names(self) -> list[str]:
        """Records of the first rank, then those that only others have."""
        found = dict.fromkeys(self._places[0])
        for places in self._places[1:]:
            if places.keys() - found.keys():
                found.update(dict.fromkeys(places))
        return list(found)

    def missing(self, name: str) -> tuple[int, ...]:
        """Ranks without a record."""
        return tuple(rank for rank, places in enumerate(self._places) if name not in places)

    def items(self, name: str) -> list[dict[str, Item]]:
        """Rows of a record on each rank, by their names within it.

        Raises:
            FormatError: a file has changed meanwhile.
        """
        found = []
        for side, places in zip(self.sides, self._places, strict=True):
            items: dict[str, Item] = {}
            if name in places:
                content = read_value(side.place.path, *places[name])
                if not isinstance(content, Mapping):
                    content = {"": content}
                for item in items_of(name, content):
                    items.setdefault(within_record(item), item)
            found.append(items)
        return found


@dataclass(frozen=True, slots=True)
class Calls:
    """Which records of both sides are the same call.

    Attributes:
        pairs: names on the side with fewer ranks and on the other, in the order of the latter.
        few_only, many_only: records that only one side has.
        communication: records of communication, which is not compared.
    """

    pairs: tuple[tuple[str, str], ...]
    few_only: tuple[str, ...]
    many_only: tuple[str, ...]
    communication: tuple[str, ...]


def match_calls(few: Sequence[str], many: Sequence[str]) -> Calls:
    """Match the records of two sides.

    Args:
        few: names of the side with fewer ranks, in their order.
        many: those of the other side.
    """
    one = [name for name in few if not name.startswith(_COMMUNICATION)]
    other = [name for name in many if not name.startswith(_COMMUNICATION)]
    counts = Counter(map(call_key, one)), Counter(map(call_key, other))
    fixed = {key for key, count in counts[0].items() if counts[1][key] == count}
    waiting: defaultdict[str, list[str]] = defaultdict(list)
    for name in reversed(one):
        if call_key(name) in fixed:
            waiting[call_key(name)].append(name)
    answers = {name: waiting[call_key(name)].pop() for name in other if call_key(name) in fixed}
    found = dict(_between(one, other, answers, fixed))
    found.update(answers)
    pairs = tuple((found[name], name) for name in other if name in found)
    taken = {pair[0] for pair in pairs}
    return Calls(
        pairs,
        tuple(name for name in one if name not in taken),
        tuple(name for name in other if name not in found),
        tuple(name for name in many if name.startswith(_COMMUNICATION)),
    )


def call_key(name: str) -> str:
    """What the records of a function, or of a module, have in common on both sides."""
    if name.startswith("Module."):
        parts = name.split(".")
        place = next(
            (p for p, part in enumerate(parts) if part in ("forward", "backward")), len(parts)
        )
        return ".".join([*parts[: max(1, place - 1)], *parts[place:]])
    return without_call(name)


def _between(
    one: Sequence[str],
    other: Sequence[str],
    answers: Mapping[str, str],
    fixed: set[str],
) -> Iterator[tuple[str, str]]:
    """Names of the other side and those of the one, in order between fixed points.

    Where one side makes a call more often, those nearest to the next fixed point count: what only
    one side needs comes before what both do.
    """
    places = {name: place for place, name in enumerate(one)}
    reached = 0
    gap: list[str] = []
    for name in [*other, ""]:
        if name and call_key(name) not in fixed:
            gap.append(name)
            continue
        stop = places[answers[name]] if name else len(one)
        if stop < reached:
            continue  # the sides made these two in another order
        candidates: defaultdict[str, list[str]] = defaultdict(list)
        for each in one[reached:stop]:
            if call_key(each) not in fixed:
                candidates[call_key(each)].append(each)
        for mine in reversed(gap):
            if candidates[call_key(mine)]:
                yield mine, candidates[call_key(mine)].pop()
        gap = []
        reached = stop
