"""Which processes of a folder belong to its newest run.

Whoever gives two runs the same output has both in one folder: each process writes below its own id,
so nothing of the first run is overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ait_llm.dumps.processes import Process

_RUNS = ("run", "AIT_PROBE_START_TIME")
"""What a launcher calls its run, among the options of a capture."""


def newest_run(processes: Sequence[Process]) -> list[Process]:
    """The processes but those that the same part of a later run stands for.

    Processes of one launch belong together, and so do those that ran at the same time. A part is
    a rank on a device, of one machine, captured by one tool.
    """
    return [each for each in processes if not any(_replaces(other, each) for other in processes)]


def _replaces(later: Process, earlier: Process) -> bool:
    if later is earlier or _place(later) != _place(earlier):
        return False
    begun, before = later.header.get("time"), earlier.header.get("time")
    if not isinstance(begun, str) or not isinstance(before, str):
        return False
    runs = _run(later), _run(earlier)
    if None not in runs:
        return runs[0] != runs[1] and begun > before
    same_program = _program(later) == _program(earlier)
    ended = _ended(earlier)
    return same_program and ended is not None and begun > ended


def _place(process: Process) -> tuple[object, ...]:
    header = process.header
    environment = header.get("environment")
    rank = environment.get("RANK") if isinstance(environment, Mapping) else None
    return header.get("host"), header.get("producer"), header.get("device"), rank


def _program(process: Process) -> tuple[object, ...]:
    """What it was started as; earlier captures recorded all words of it."""
    header = process.header
    mark = header.get("arguments_mark")
    return ("", header.get("arguments")) if mark is None else (header.get("program"), mark)


def _run(process: Process) -> str | None:
    options = process.header.get("options")
    if not isinstance(options, Mapping):
        return None
    return next((str(options[name]) for name in _RUNS if options.get(name)), None)


def _ended(process: Process) -> str | None:
    seal = process.ledger.seal if process.ledger is not None else None
    time = seal.totals.get("time") if seal is not None else None
    return time if isinstance(time, str) else None
