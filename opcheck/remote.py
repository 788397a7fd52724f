"""Operators checked in another process, which opens the dump itself.

A unit of work names operators by their number in the selection. The same options select the same
operators wherever the same files are seen; each is named too, to be sure of that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from ait_llm.dumps import open_dump
from ait_llm.naming import shown
from ait_llm.opcheck.checker import Checker
from ait_llm.opcheck.outcome import Checked
from ait_llm.opcheck.plugins import load_entry_points, load_golden
from ait_llm.opcheck.ranks import Ranks
from ait_llm.opcheck.selection import Selection, Target, Wanted
from ait_llm.storage import local_path

OTHER_FILES = "the node that was to check it sees other files under the same path"
_UNITS_PER_SLOT = 8
_MOST = 64  # operators of a unit

Name = tuple[int, int, int, str, str]
Unit = tuple[tuple[int, Name], ...]


@dataclass(frozen=True)
class OpcheckRequest:
    """A check, as far as a worker must know it.

    Attributes:
        token: differs for each check, so that nothing is remembered too long.
        path, table: paths or URLs as given.
        wanted: filters.
        standard, metrics: how outputs are judged.
        golden: modules and files with golden operators of the user.
        threads: of torch, for each operator.
        soc: the chip, where it is given.
    """

    token: str
    path: str
    table: str | None
    wanted: Wanted
    standard: str
    metrics: tuple[str, ...]
    golden: tuple[str, ...]
    threads: int
    soc: str | None = None

    @property
    def roots(self) -> tuple[str, ...]:
        """What a worker must be able to read."""
        return (self.path,) if self.table is None else (self.path, self.table)


def name_of(target: Target) -> Name:
    """What an operator is known by."""
    return target.device, target.pid, target.step, target.op_id, target.type


def units_of(targets: Sequence[tuple[int, Target]], slots: int) -> list[Unit]:
    """Cut operators with their numbers into units for so many workers."""
    size = min(max(len(targets) // (slots * _UNITS_PER_SLOT), 1), _MOST)
    named = [(number, name_of(target)) for number, target in targets]
    return [tuple(named[first : first + size]) for first in range(0, len(named), size)]


def check_unit(request: OpcheckRequest, unit: Unit) -> list[list[Checked] | None]:
    """Check operators; None for one that is another here."""
    opened = _opened(request)
    found: list[list[Checked] | None] = []
    for number, name in unit:
        target = opened.targets[number] if number < len(opened.targets) else None
        if target is None or name_of(target) != name:
            found.append(None)
            continue
        items = opened.checker.check(target)
        # a reason may name a copy that only this process has
        found.append([replace(item, reason=shown(item.reason)) for item in items])
    return found


class _Opened:
    """The operators of a check in this process."""

    def __init__(self, request: OpcheckRequest) -> None:
        import torch

        torch.set_num_threads(request.threads)
        load_entry_points()
        for name in request.golden:
            load_golden(name)
        self.token = request.token
        table = None if request.table is None else local_path(request.table)
        selection = Selection(local_path(request.path), table, request.wanted)
        self.targets = selection.targets()
        root = selection.dump.root
        ranks: Callable[[], Ranks] = cache(lambda: Ranks(open_dump(root).operations()))
        self.checker = Checker(request.standard, request.metrics, None, request.soc, ranks)


_last: _Opened | None = None


def _opened(request: OpcheckRequest) -> _Opened:
    global _last
    if _last is None or _last.token != request.token:
        _last = None  # memory for the next one
        _last = _Opened(request)
    return _last
