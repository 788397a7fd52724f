"""The times that the acceleration library reported of its top-level operations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from ait_llm.dump.profiling import parse_statistics
from ait_llm.dumps import Dump, Process
from ait_llm.errors import FormatError

_TABLE = re.compile(r"operation_statistic_(\d{1,18})\.txt")
_OWNER = re.compile(r"\d+_(\d{1,18})")

Times = dict[str, int]  # setup_totalTime, execute_kernelExecuteTime and so on, in microseconds


def read_profiles(dump: Dump) -> dict[tuple[int, int, str], Times]:
    """Times by process id, step and name of the operation; empty where there are no tables.

    Raises:
        FormatError: a table cannot be read.
    """
    found = {}
    for process, folder in _folders(dump):
        for path in sorted(folder.iterdir()):
            match = _TABLE.fullmatch(path.name)
            if match is None:
                continue
            try:
                text = path.read_text("utf-8", "replace")
            except OSError as error:
                raise FormatError(path, f"cannot be read: {error.strerror}") from None
            step = int(match.group(1)) - 1  # the library counts executions from 1
            for name, times in parse_statistics(text.splitlines())[0].items():
                cells = {key: int(text) for key, text in times.cells().items() if text.isdecimal()}
                found[process.pid, step, name] = cells
    return found


def _folders(dump: Dump) -> Iterator[tuple[Process, Path]]:
    """Folders of times with the process that wrote each; see docs/formats.md."""
    parent = dump.root / "cpu_profiling"
    folders = sorted(each for each in parent.glob("*") if each.is_dir())
    by_pid = {process.pid: process for process in dump.processes}
    by_seal = {_sealed_folder(process): process for process in dump.processes}
    for folder in folders:
        match = _OWNER.fullmatch(folder.name)
        owner = by_pid.get(int(match.group(1))) if match else by_seal.get(folder.name)
        if owner is None and len(by_pid) == 1:  # a process that was killed seals nothing
            (owner,) = by_pid.values()
        if owner is not None:
            yield owner, folder


def _sealed_folder(process: Process) -> str:
    if process.ledger is None or process.ledger.seal is None:
        return ""
    try:
        *_, last = process.ledger.path.read_text("utf-8", "replace").splitlines()
        name = json.loads(last).get("cpu_profiling")
    except (OSError, ValueError, AttributeError):
        return ""
    return name if isinstance(name, str) else ""
