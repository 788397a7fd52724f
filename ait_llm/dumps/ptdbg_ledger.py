"""The ledger of our own captures in ptdbg's format, and what it says is missing from a file.

``{folder}/ledger/{tag}_v{version}/rank{N}_{PID}.jsonl``, beside the folder of the tag.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ait_llm.dumps.ledger import Ledger, LedgerEntry, read_ledger
from ait_llm.dumps.model import Loss
from ait_llm.dumps.ptdbg_lines import read_lines
from ait_llm.dumps.ptdbg_place import PtdbgPlace

_NAME = re.compile(r"(rank[0-9]{1,18})_([0-9]{1,18})\.jsonl")


def find_ledger(place: PtdbgPlace) -> tuple[int, Ledger] | None:
    """Process id and ledger of the process that wrote a file; None if there is none.

    Raises:
        FormatError: the ledger is damaged.
    """
    rank, version = place.path.parent, place.path.parent.parent
    ledgers = version.parent / "ledger" / version.name
    if ledgers.is_symlink() or not ledgers.is_dir():
        return None
    for path in sorted(ledgers.iterdir()):
        name = _NAME.fullmatch(path.name)
        if name is not None and name[1] == rank.name:
            ledger = read_ledger(path)
            # another file of the folder may be of another run
            if any(entry.path == _path(place) for entry in ledger.entries()):
                return int(name[2]), ledger
    return None


def find_losses(ledger: Ledger, place: PtdbgPlace) -> Iterator[Loss]:
    """What the capture noticed that it lost of a file, then calls that vanished after it.

    Raises:
        FormatError: the file or the ledger is damaged.
    """
    path = _path(place)
    names = _names(place.path)
    for entry in ledger.entries():
        if entry.path != path:
            continue
        if entry.state in ("failed", "dropped"):
            yield _loss(entry, entry.reason)
        elif entry.state != "empty" and entry.op not in names:
            yield Loss(
                op=entry.op,
                type=entry.type,
                step=entry.step,
                phase="",
                state="missing",
                tensors=entry.tensors,
                reason=f"{place.path.name} does not have the call",
            )


def _loss(entry: LedgerEntry, reason: str) -> Loss:
    return Loss(
        op=entry.op,
        type=entry.type,
        step=entry.step,
        phase="",
        state="failed" if entry.state == "failed" else "dropped",
        tensors=entry.lost,
        reason=reason,
    )


def _path(place: PtdbgPlace) -> str:
    return f"{place.path.parent.name}/{place.path.name}"


def _names(path: Path) -> frozenset[str]:
    return frozenset(line.call for line in read_lines(path))
