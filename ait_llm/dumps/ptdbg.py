"""Dumps of API calls by ptdbg: ``.pkl`` files of text and folders of ``.npy`` files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ait_llm.core import OpId
from ait_llm.dumps.api_json import UnfinishedError
from ait_llm.dumps.model import Dump, Loss, Operation, Process, Traits
from ait_llm.dumps.ptdbg_ledger import find_ledger, find_losses
from ait_llm.dumps.ptdbg_lines import parse_call, read_lines
from ait_llm.dumps.ptdbg_place import PtdbgPlace
from ait_llm.dumps.ptdbg_records import PtdbgCall
from ait_llm.formats.opening import open_regular


class PtdbgDump(Dump):
    """A dump of ptdbg; see :class:`ait_llm.dumps.model.Dump`."""

    kind = "ptdbg"
    traits = Traits(named=True)

    def __init__(self, root: Path, places: list[PtdbgPlace]) -> None:
        self._root = root
        self._places = places

    @property
    def root(self) -> Path:
        """The folder that was opened, or that of the file that was."""
        return self._root

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """By rank, as device, with the ledger of our own captures.

        A file whose last line breaks off is told of.

        Raises:
            FormatError: a file is damaged.
        """
        ranks: dict[int, list[PtdbgPlace]] = {}
        for place in self._places:
            ranks.setdefault(place.rank, []).append(place)
        return tuple(_process(rank, places) for rank, places in ranks.items())

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps of all ranks, ascending."""
        return tuple(sorted({place.step for place in self._places}))

    def operations(
        self, *, device: int | None = None, pid: int | None = None, step: int | None = None
    ) -> Iterator[Operation]:
        """See :meth:`calls`."""
        for call in self.calls(device=device, pid=pid, step=step):
            yield call.operation()

    def calls(
        self, *, device: int | None = None, pid: int | None = None, step: int | None = None
    ) -> Iterator[PtdbgCall]:
        """Calls in the order of the files.

        Raises:
            FormatError: a line is damaged; its number is named.
        """
        for place in self._places:
            if device in (None, place.rank) and pid in (None, 0) and step in (None, place.step):
                yield from _calls(place, self._root)


@dataclass(slots=True)
class _Group:
    """Lines of one call; those of another one may lie between them."""

    lines: list[tuple[int, int]] = field(default_factory=list)
    items: set[tuple[str, tuple[int | str, ...]]] = field(default_factory=set)
    is_overflow: bool = False


def _calls(place: PtdbgPlace, root: Path) -> Iterator[PtdbgCall]:
    groups: list[tuple[str, _Group]] = []
    latest: dict[str, _Group] = {}
    try:
        for line in read_lines(place.path):
            group = latest.get(line.call)
            item = (line.part, line.keys)
            if group is None or item in group.items:  # the same call again: a file of two runs
                group = latest[line.call] = _Group()
                groups.append((line.call, group))
            group.lines.append((line.offset, line.length))
            group.items.add(item)
            group.is_overflow |= line.is_overflow
    except UnfinishedError:
        pass  # the process's remark tells of it
    for number, (name, group) in enumerate(groups):
        yield PtdbgCall(
            name=name,
            parsed=parse_call(name),
            op_id=OpId((number,)),
            step=place.step,
            device=place.rank,
            has_stack=any(part == "stack_info" for part, _ in group.items),
            is_overflow=group.is_overflow,
            _place=place,
            _root=root,
            _lines=tuple(group.lines),
        )


def _process(rank: int, places: list[PtdbgPlace]) -> Process:
    pid, ledger = 0, None
    remarks: list[str] = []
    losses: list[Loss] = []
    for place in places:
        broken = list(_broken_off(place))
        remarks += broken
        found = find_ledger(place)
        if found is not None:
            pid, ledger = found
            if not broken:
                losses += find_losses(ledger, place)
    steps = tuple(sorted({place.step for place in places}))
    return Process(rank, pid, steps, ledger, tuple(losses), tuple(remarks))


def _broken_off(place: PtdbgPlace) -> Iterator[str]:
    """Whether the last line is only a part of one."""
    with open_regular(place.path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        is_whole = size == 0 or file.read(1) == b"\n"
    if not is_whole:
        try:
            for _ in read_lines(place.path):
                pass
        except UnfinishedError:
            yield f"{place.path.name} breaks off, calls at its end are missing"
