"""Switches the capture of a running program on and off: ``ait llm attach``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ait_llm.dump.inject.channel import read_reports
from ait_llm.dump.inject.settings import CHANNEL_VARIABLE, VARIABLE, TorchSettings
from ait_llm.dump.inject.switch import FILE, read_switch, write_switch
from ait_llm.errors import UsageError

_PROC = Path("/proc")
_WAIT = 2.0
"""Seconds in which a program that is at work answers."""


@dataclass(frozen=True, slots=True)
class Running:
    """A run of ``ait llm dump`` that goes on.

    Attributes:
        channel: folder through which its processes and the launcher talk.
        settings: what is captured.
    """

    channel: Path
    settings: TorchSettings

    @property
    def file(self) -> Path:
        """The file that its processes follow."""
        return self.settings.control or self.channel / FILE


@dataclass(frozen=True, slots=True)
class ProcessState:
    """What one process of a run last said.

    Attributes:
        process: host and id.
        on: it captures.
        steps: how far each of its models was then.
    """

    process: str
    on: bool
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Attached:
    """A run and its processes.

    Attributes:
        wanted: what was asked for.
        processes: those that called a model, while it captured.
        output: where it writes.
        written: bytes below that.
    """

    wanted: bool
    processes: tuple[ProcessState, ...]
    output: Path
    written: int

    @property
    def waiting(self) -> tuple[ProcessState, ...]:
        """Processes that have not done yet what was asked for."""
        return tuple(each for each in self.processes if each.on is not self.wanted)

    def as_dict(self) -> dict[str, Any]:
        """The same for machines: JSON types only."""
        return {
            "wanted": "on" if self.wanted else "off",
            "output": str(self.output),
            "written": self.written,
            "processes": [
                {
                    "process": each.process,
                    "capture": "on" if each.on else "off",
                    "steps": list(each.steps),
                }
                for each in self.processes
            ],
        }


def find_run(pid: int) -> Running:
    """The run that a process belongs to: the launcher, the program, or any process below them.

    Raises:
        UsageError: no such process, or none of its processes was started by ``ait llm dump``.
    """
    if not (_PROC / str(pid)).is_dir():
        raise UsageError(f"there is no process {pid} on this machine")
    for each in (pid, *_below(pid), *_above(pid)):  # some overwrite their variables with a title
        environment = _environment(each)
        channel, settings = environment.get(CHANNEL_VARIABLE), environment.get(VARIABLE)
        if channel and settings and Path(channel).is_dir():
            return Running(Path(channel), TorchSettings.from_json(settings))
    raise UsageError(
        f"process {pid} runs without a capture; start the program with "
        "ait llm dump --exec ... --type torch --start off"
    )


def switch(run: Running, *, on: bool, wait: float = _WAIT) -> Attached:
    """Ask all processes of a run to capture, or not to, and wait for those that are at work.

    Raises:
        UsageError: the run is over, or belongs to somebody else.
    """
    try:
        write_switch(run.file, on=on)
    except OSError as error:
        raise UsageError(f"{run.file}: the program cannot be told ({error.strerror})") from error
    end = time.monotonic() + wait
    while (found := state_of(run)).waiting and time.monotonic() < end:
        time.sleep(0.05)
    return found


def state_of(run: Running) -> Attached:
    """What the processes of a run do now."""
    found: dict[str, ProcessState] = {}
    for report in read_reports(run.channel):
        if report.event == "model":
            found.setdefault(report.process, ProcessState(report.process, True, ()))
        elif report.event == "switch":
            steps = report.facts.get("steps")
            numbers = tuple(steps) if isinstance(steps, list) else ()
            found[report.process] = ProcessState(
                report.process, bool(report.facts.get("on")), numbers
            )
    wanted = read_switch(run.file)
    alive = [each for each in found.values() if _is_alive(each.process)]
    return Attached(
        run.settings.start if wanted is None else wanted,
        tuple(sorted(alive, key=lambda each: each.process)),
        run.settings.dump_dir,
        _size(run.settings.dump_dir),
    )


def _is_alive(process: str) -> bool:
    host, _, pid = process.rpartition("_")
    return host != os.uname().nodename or (_PROC / pid).is_dir()


def _below(pid: int) -> Iterator[int]:
    """Ids of the processes that a process started, and of theirs."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            children.setdefault(_parent(int(entry.name)), []).append(int(entry.name))
    waiting = children.get(pid, [])
    while waiting:
        each = waiting.pop()
        yield each
        waiting += children.get(each, [])


def _above(pid: int) -> Iterator[int]:
    """Ids of the processes that a process was started by."""
    while (pid := _parent(pid)) > 1:
        yield pid


def _parent(pid: int) -> int:
    """Id of the process that started another one; 0 if that is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
        return int(text.rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _environment(pid: int) -> dict[str, str]:
    """Variables of a process as it was started; empty where they are not ours to see."""
    try:
        raw = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (each.partition(b"=") for each in raw.split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs if name}


def _size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(f"{place}/{name}").st_size
            except OSError:
                continue
    return total
