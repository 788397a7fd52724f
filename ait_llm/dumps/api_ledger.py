"""The ledger of a capture of API calls, and what it says is missing from a folder.

Only our own capture writes one, ``{dump_path}/ledger/{rank}_{PID}.jsonl``; without it nobody can
tell a process that finished from one that was killed between two calls.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ait_llm.dumps.api_place import RANK_NAME, STEP_NAME, ApiPlace
from ait_llm.dumps.ledger import Ledger, LedgerEntry, read_ledger
from ait_llm.dumps.model import Loss, Process
from ait_llm.formats.opening import open_regular

_LEDGER_NAME = re.compile(r"(proc|rank[0-9]{1,18})_([0-9]{1,18})\.jsonl")
# Our captures write each record on a line of its own.
_RECORD = re.compile(rb'^("(?:[^"\\]|\\.)*"): ')
_LINE_START = 1 << 16


@dataclass(frozen=True, slots=True)
class ApiLedger:
    """The account of one process.

    Attributes:
        ledger: what it wrote.
        folders: its last entry for each record, by folder (``step0/rank0``) and name.
    """

    ledger: Ledger
    folders: Mapping[str, Mapping[str, LedgerEntry]]

    def entry(self, place: ApiPlace, record: str) -> LedgerEntry | None:
        """What it says of a record; None if it does not have it."""
        return self.folders.get(_folder(place) or "", {}).get(record)

    def finished(self, place: ApiPlace) -> bool:
        """True if nothing of a folder can be missing without the ledger saying so."""
        last = self.ledger.last
        return self.ledger.seal is not None or (last is not None and last.step > place.step)

    def losses(self, place: ApiPlace) -> Iterator[Loss]:
        """What the capture noticed that it lost, then records that vanished after it."""
        entries = self.folders.get(_folder(place) or "", {})
        names = None
        for entry in entries.values():
            if entry.state in ("failed", "dropped"):
                yield _loss(entry, "failed" if entry.state == "failed" else "dropped", entry.reason)
                continue
            if names is None:
                names = frozenset(_names(place.path))
            if entry.op not in names:
                yield _loss(entry, "missing", f"{place.path.name} does not have the record")


def find_ledger(place: ApiPlace) -> ApiLedger | None:
    """The ledger that accounts for a file, None if there is none.

    Raises:
        FormatError: it is damaged.
    """
    folder = _folder(place)
    if folder is None:
        return None
    ledgers = place.folder.parent.parent / "ledger"
    if ledgers.is_symlink() or not ledgers.is_dir():
        return None
    for path in sorted(ledgers.iterdir()):
        name = _LEDGER_NAME.fullmatch(path.name)
        # a process may have learnt its rank only after its ledger was begun
        if name is None or name[1] not in ("proc", place.folder.name):
            continue
        if name[1] == "proc" and place.pid not in (0, int(name[2])):
            continue
        status = path.stat()
        found = _read(path, status.st_size, status.st_mtime_ns)
        if folder in found.folders or found.ledger.header.get("device") == place.folder.name:
            return found
    return None


def problem_of(place: ApiPlace) -> str | None:
    """What the ledger says is wrong with a file, in one sentence; None if nothing is.

    Raises:
        FormatError: the ledger is damaged.
    """
    found = find_ledger(place)
    if found is None:
        return None
    return Process(
        device=place.rank,
        pid=place.pid,
        steps=(place.step,),
        ledger=None if found.finished(place) else found.ledger,
        losses=tuple(found.losses(place)),
        remarks=found.ledger.incidents if found.finished(place) else (),
    ).problem


@functools.lru_cache(maxsize=16)
def _read(path: Path, size: int, changed: int) -> ApiLedger:
    """Read a ledger; size and time of change tell whether it is still the same."""
    del size, changed
    ledger = read_ledger(path)
    folders: dict[str, dict[str, LedgerEntry]] = {}
    for entry in ledger.entries():
        folder = ledger.moves.get(entry.path, entry.path)
        folders.setdefault(folder, {})[entry.op] = entry
    return ApiLedger(ledger, folders)


def _folder(place: ApiPlace) -> str | None:
    """``step0/rank0``, None for a file that lies in no such folder."""
    rank, step = place.folder, place.folder.parent
    if not RANK_NAME.fullmatch(rank.name) or not STEP_NAME.fullmatch(step.name):
        return None
    return f"{step.name}/{rank.name}"


def _names(path: Path) -> Iterator[str]:
    """Names of the records of a file of ours; values are not decoded."""
    with open_regular(path) as file:
        is_start = True
        while line := file.readline(_LINE_START):
            match = _RECORD.match(line) if is_start else None
            if match is not None:
                yield json.loads(match[1])
            is_start = line.endswith(b"\n")


def _loss(entry: LedgerEntry, state: Literal["failed", "dropped", "missing"], reason: str) -> Loss:
    return Loss(
        op=entry.op,
        type=entry.type,
        step=entry.step,
        phase="",
        state=state,
        tensors=entry.lost,
        reason=reason,
    )
