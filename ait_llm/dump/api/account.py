"""The ledger of a capture of API calls: a line for each record, beside the folders of the steps."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from ait_llm.dump.api.calls import Call
from ait_llm.dump.api.folders import LEDGERS, ledger_name
from ait_llm.dump.api.settings import ApiSettings
from ait_llm.dump.pytorch.ledger import Ledger

# How the JSON of a record names a data file, and how it tells of a tensor. Quotes in texts of the
# program are escaped there, so these are nowhere else.
_FILE = '"data_name": "'
_TENSOR = '"dtype": "'
# A line of the ledger has a length that readers accept.
_MAX_IDENTITIES = 500


def open_ledger(dump_path: Path, name: str, settings: ApiSettings) -> Ledger:
    """``{dump_path}/ledger/{rank}_{PID}.jsonl``, with its header.

    Args:
        dump_path: the folder of the capture.
        name: of the folders of this process, ``rank0`` or ``proc4242``.
        settings: of the capture.

    Raises:
        OSError: it cannot be written.
    """
    options: dict[str, Any] = {
        "task": settings.task,
        "level": settings.level,
        "dump_path": str(dump_path),
        "step": sorted(settings.steps),
        "rank": sorted(settings.ranks),
        "scope": list(settings.scope),
        "list": list(settings.names),
        "summary_mode": settings.summary,
        "async_dump": settings.asynchronous,
    }
    path = dump_path / LEDGERS / ledger_name(name)
    return Ledger(path, name, options, producer="api")


class Account:
    """What the ledger says of the records of one folder.

    Args:
        ledger: of the process.
        folder: ``{dump_path}/step{N}/{rank}``.
        written_later: data are written behind the program's back.
        holds: lines wait for :meth:`release`, for a step that may turn out to be none.
    """

    def __init__(
        self, ledger: Ledger, folder: Path, *, written_later: bool, holds: bool = False
    ) -> None:
        self._ledger = ledger
        self._held: list[dict[str, Any]] | None = [] if holds else None
        self._written_later = written_later
        self._path = _within(folder)
        self._step = int(folder.parent.name.removeprefix("step"))

    def record(self, call: Call, text: str) -> None:
        """Note a record that was written, or could not be.

        Args:
            call: of the record.
            text: JSON of the record; empty if there is none.
        """
        outcome = call.outcome
        written = text.count(_FILE)
        if self._written_later:  # its files were named before anybody knew
            written = max(0, written - outcome.lost)
        line: dict[str, Any] = {
            "op": call.name,
            "type": _type(call.name),
            "path": self._path,
            "step": self._step,
            "state": "saved" if written else "described" if _TENSOR in text else "empty",
        }
        if call.identities:
            line["identity"] = dict(itertools.islice(call.identities.items(), _MAX_IDENTITIES))
        if call.rounding:
            line["rounding"] = call.rounding
        if written:
            line["tensors"] = written
        if outcome.lost:
            line["state"] = "failed"
            line["lost"] = outcome.lost
            line["errno"] = outcome.errno
            line["reason"] = outcome.reason
        if self._held is None:
            self._ledger.operations([line])
        else:
            self._held.append(line)

    def release(self) -> None:
        """Write the lines that wait."""
        if self._held is not None:
            self._ledger.operations(self._held)
            self._held = []

    def not_written(self, name: str, reason: str) -> None:
        """Note that a file of the folder could not be written."""
        self._ledger.not_written(f"{self._path}/{name}", reason)

    def move_to(self, folder: Path) -> None:
        """Note that the folder has another name now."""
        before, self._path = self._path, _within(folder)
        self._ledger.moved(before, self._path)


def _within(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"


def _type(record: str) -> str:
    """The function, the class of the module, or ``variable``."""
    parts = record.split(".")
    if parts[-1] == "debug":
        return "variable"
    if parts[0] == "Module":
        return parts[-3]
    return ".".join(parts[:2])
