"""Which golden row answers which row of mine.

Three ways, as in msprobe's compare: by name, by a table of the user's own, and fuzzily by name
without call numbers. By name, both files are read side by side, and only records that the other
side has not reached yet are remembered, by their place in the file.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping

from ait_llm.compare.api.item import Item
from ait_llm.compare.api.reading import Record

# My row and the golden one; one of them may be missing.
Pair = tuple[Item | None, Item | None]
# Reads the items of a golden record once more: its name, and the place that the record names.
Again = Callable[[str, int], list[Item]]

_FLOATS = frozenset({"torch.float16", "torch.bfloat16", "torch.float32", "torch.float64"})
_CALL = re.compile(r"\.(\d+)\.(forward|backward)(?=\.|$)|\.(forward|backward)\.(\d+)(?=\.|$)")


def match_by_name(
    mine: Iterable[Record], golden: Iterable[Record], again: Again
) -> Iterator[list[Pair]]:
    """Pair records of one name: the rows of each record of mine, then what golden has more.

    Backward calls count in the order of their appearance: with recomputation, or on another
    device, their recorded numbers differ although they are the same calls.

    Args:
        mine, golden: records of both sides, read side by side.
        again: reads a golden record that was passed; of such records only places are kept.
    """
    ahead = _Ahead(golden, again)
    left: list[tuple[str, int, tuple[int, ...]]] = []
    for key, record in _keyed(mine):
        answer = ahead.take(key)
        rows, extra = pair_items(record.items, answer.items if answer is not None else [])
        if extra:
            assert answer is not None
            left.append((answer.name, answer.place, tuple(extra)))
        yield rows
    for name, place, numbers in left:
        items = again(name, place)
        yield [(None, items[number]) for number in numbers]
    for record in ahead.rest():
        yield [(None, item) for item in record.items]


def match_by_table(
    mine: Iterable[Record], golden: Iterable[Record], table: Mapping[str, str]
) -> Iterator[list[Pair]]:
    """Pair rows that a table names, whatever their types, and all others by name.

    Args:
        mine, golden: records of both sides.
        table: full names of my rows to those of golden.
    """
    theirs: dict[str, Item] = {}
    by_record: dict[str, list[Item]] = {}
    for key, record in _keyed(golden):
        items = record.items
        by_record[key] = items
        theirs.update((item.name, item) for item in items)
    wanted = set(table.values())
    taken: set[int] = set()
    for key, record in _keyed(mine):
        items = record.items
        answers = [each for each in by_record.get(key, ()) if each.name not in wanted]
        named = {}
        for item in items:
            answer = theirs.get(table.get(item.name, ""))
            if answer is not None:
                named[item.name] = answer
        rows, _ = pair_items([item for item in items if item.name not in table], answers)
        plain = iter(rows)
        group = [
            (item, named.get(item.name)) if item.name in table else next(plain) for item in items
        ]
        taken.update(id(answer) for _, answer in group if answer is not None)
        yield group
    left = [item for items in by_record.values() for item in items if id(item) not in taken]
    if left:
        yield [(None, item) for item in left]


def match_fuzzily(mine: Iterable[Record], golden: Iterable[Record]) -> Iterator[list[Pair]]:
    """Pair rows whose names differ in call numbers only, both sides walked in order.

    A row that found its answer leaves behind everything before it on the golden side, so the order
    of calls is kept. Each row is looked at once.
    """
    waiting: defaultdict[tuple[str, str], deque[tuple[int, Item]]] = defaultdict(deque)
    everything = [item for record in golden for item in record.items]
    for place, item in enumerate(everything):
        waiting[without_call(item.name), _kind(item)].append((place, item))
    taken: set[int] = set()
    reached = 0
    for record in mine:
        group: list[Pair] = []
        for item in record.items:
            candidates = waiting.get((without_call(item.name), _kind(item)))
            while candidates and candidates[0][0] < reached:
                candidates.popleft()
            if candidates:
                place, answer = candidates.popleft()
                reached = place + 1
                taken.add(place)
                group.append((item, answer))
            else:
                group.append((item, None))
        yield group
    left = [item for place, item in enumerate(everything) if place not in taken]
    if left:
        yield [(None, item) for item in left]


def pair_items(mine: list[Item], golden: list[Item]) -> tuple[list[Pair], list[int]]:
    """Rows of two records that answer each other, and which of golden's have no answer.

    Types must be equal, or both floating of 16 to 64 bits; shapes need not.
    """
    if len(mine) == len(golden) and all(
        m.name == g.name and m.dtype == g.dtype for m, g in zip(mine, golden, strict=True)
    ):
        return list(zip(mine, golden, strict=True)), []  # nearly always
    theirs: defaultdict[str, deque[int]] = defaultdict(deque)
    for number, item in enumerate(golden):
        theirs[within_record(item)].append(number)
    rows: list[Pair] = []
    for item in mine:
        candidates = theirs.get(within_record(item))
        if candidates and _kind(golden[candidates[0]]) == _kind(item):
            rows.append((item, golden[candidates.popleft()]))
        else:
            rows.append((item, None))
    return rows, [number for numbers in theirs.values() for number in numbers]


def without_call(name: str) -> str:
    """A name without the number of its call."""
    return _CALL.sub(lambda found: f".{found.group(2) or found.group(3)}", name, count=1)


class _Ahead:
    """Golden records by key, read no further than they are asked for.

    Of those that were passed only the place is kept: they are read again when they are needed.
    """

    def __init__(self, records: Iterable[Record], again: Again) -> None:
        self._records = _keyed(records)
        self._again = again
        # By key: the place, and the name where it is not the key.
        self._passed: dict[str, int | tuple[str, int]] = {}

    def take(self, key: str) -> Record | None:
        """The record of a key, None if there is none."""
        known = self._passed.pop(key, None)
        if known is not None:
            return self._read(key, known)
        for found, record in self._records:
            if found == key:
                return record
            name, _, place = record
            self._passed[found] = place if name == found else (name, place)
        return None

    def rest(self) -> Iterator[Record]:
        """What nobody took, in its order."""
        for key, known in self._passed.items():
            yield self._read(key, known)
        self._passed.clear()
        for _, record in self._records:
            yield record

    def _read(self, key: str, known: int | tuple[str, int]) -> Record:
        name, place = (key, known) if isinstance(known, int) else known
        return Record(name, self._again(name, place), place)


def _keyed(records: Iterable[Record]) -> Iterator[tuple[str, Record]]:
    """Records with their names, backward calls numbered as they appear."""
    counts: defaultdict[str, int] = defaultdict(int)
    for record in records:
        name = record.name
        if "backward" in name:
            function = without_call(name)
            if function != name:
                name = f"{function}#{counts[function]}"
                counts[function] += 1
        yield name, record


def within_record(item: Item) -> str:
    """Name of a row within its record; keyword arguments alike with and without a file."""
    name = item.name
    if name.startswith(item.record):
        name = name[len(item.record) :]
    return name.replace(".kwargs.", ".input.", 1)


def _kind(item: Item) -> str:
    return "float" if item.dtype in _FLOATS else item.dtype
