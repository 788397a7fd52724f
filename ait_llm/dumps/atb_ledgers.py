"""Which ledger accounts for which ``{device}_{PID}`` folder.

A process writes one ledger, named after its first device, and one folder for each device that it
drives. Processes in containers may share a process id but not a device.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ait_llm.dumps.atb_place import PROCESS_NAME
from ait_llm.dumps.ledger import Ledger, LedgerEntry, read_ledger

ProcessId = tuple[int, int]  # device, pid


class AtbLedgers:
    """The ledgers of a dump; each is read when first asked for.

    Args:
        folder: where the ledgers lie; it may be missing.
        folders: the ``(device, pid)`` of the tensor folders.

    Attributes:
        processes: the tensor folders, and the ledgers that account for none of them, in order.
    """

    def __init__(self, folder: Path, folders: Iterable[ProcessId]) -> None:
        self._files: dict[ProcessId, Path] = {}
        for path in folder.glob("*.jsonl"):
            if (match := PROCESS_NAME.fullmatch(path.stem)) is not None:
                self._files[int(match[1]), int(match[2])] = path
        self._owners: dict[ProcessId, ProcessId] = {}
        for process in folders:
            same_pid = [each for each in self._files if each[1] == process[1]]
            if process in self._files:
                self._owners[process] = process
            elif len(same_pid) == 1:
                self._owners[process] = same_pid[0]
        used = set(self._owners.values())
        alone = {process: process for process in self._files if process not in used}
        self._owners.update(alone)
        # the first folder of each ledger answers for entries about folders that are not there
        self._first: dict[ProcessId, ProcessId] = {}
        for process in sorted(self._owners):
            self._first.setdefault(self._owners[process], process)
        self._read: dict[ProcessId, Ledger] = {}
        self.processes = tuple(sorted({*folders, *alone}))

    def of(self, process: ProcessId) -> Ledger | None:
        """The ledger that accounts for a folder, None if there is none.

        Raises:
            FormatError: it is damaged.
        """
        owner = self._owners.get(process)
        if owner is None:
            return None
        if owner not in self._read:
            self._read[owner] = read_ledger(self._files[owner])
        return self._read[owner]

    def belongs(self, entry: LedgerEntry, process: ProcessId) -> bool:
        """True if an entry of a folder's ledger is about that folder.

        Args:
            entry: an entry of ``self.of(process)``.
            process: the folder.
        """
        match = PROCESS_NAME.fullmatch(entry.path.partition("/")[0])
        named = (int(match[1]), int(match[2])) if match is not None else None
        owner = self._owners[process]
        if named is not None and self._owners.get(named) == owner:
            return named == process
        return process == self._first[owner]
