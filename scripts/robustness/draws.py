"""What chaos draws: a program, how it is captured, what goes wrong, and when."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from subprocess import Popen

KINDS = ("torch", "torch-op", "torch-stats", "api", "tensor", "fx", "inductor")
COMMANDS = ("compare", "compare-ray", "compare-store", "opcheck", "convert", "show")
_ERRORS = (errno.ENOSPC, errno.EIO, errno.EDQUOT)
_SHARES = (0.3, 1.1)  # of the time that a run takes undisturbed: when something happens
_MARK = b"CHAOS_DRAW="


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong.

    Attributes:
        name: of it.
        environment: variables that the command gets.
        limits: of resources, for the command and all that it starts.
        act: what is done at a moment of the run, to the command and the folder that it writes.
        strikes: it may end the program itself, which then has another result than without us.
        removes: it takes files away that were written.
        ends: it may end ``ait``, which then says nothing more.
        disk: bytes of a file system of its own that it writes to; 0 for that of all.
        beside: where the same runs once more at the same time: ``same`` or ``next`` to its folder.
        writer: the environment is for the writer of the ATB probe, not for the command.
    """

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[int, int] = field(default_factory=dict)
    act: Callable[[Popen[str], Path], None] | None = None
    strikes: bool = False
    removes: bool = False
    ends: bool = False
    disk: int = 0
    beside: str = ""
    writer: bool = False


def members(mark: str) -> list[int]:
    """Processes of a draw that are alive, the command itself among them."""
    found = []
    for each in Path("/proc").iterdir():
        if not each.name.isdigit():
            continue
        try:
            dead = each.joinpath("stat").read_text("utf-8").rpartition(")")[2].split()[0] in "ZX"
            has = _MARK + mark.encode() in each.joinpath("environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if has and not dead:
            found.append(int(each.name))
    return found


def _signal(number: signal.Signals, *, all_but_first: bool, rng: Random) -> Callable[..., None]:
    def act(process: Popen[str], _folder: Path) -> None:
        mark = str(getattr(process, "mark", ""))
        chosen = [each for each in members(mark) if each != process.pid or not all_but_first]
        if chosen:
            send(rng.choice(sorted(chosen)), number)

    return act


def _stop(seconds: float, rng: Random) -> Callable[..., None]:
    def act(process: Popen[str], _folder: Path) -> None:
        chosen = members(str(getattr(process, "mark", "")))
        if chosen:
            pid = rng.choice(sorted(chosen))
            send(pid, signal.SIGSTOP)
            time.sleep(seconds)
            send(pid, signal.SIGCONT)

    return act


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended meanwhile."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _take_away(how: str) -> Callable[..., None]:
    def act(_process: Popen[str], folder: Path) -> None:
        inner = folder / "ait_dump"
        target = inner if inner.exists() else folder
        if not target.exists():
            return
        if how == "removed":
            shutil.rmtree(target, ignore_errors=True)
            return
        moved = folder.parent / f"moved-{target.name}"
        target.rename(moved)
        if how == "link":
            target.symlink_to(moved)
        elif how == "file":
            target.write_text("not a folder", encoding="utf-8")

    return act


def _write_error(rng: Random) -> Fault:
    number = rng.choice(_ERRORS)
    after = rng.choice((0, 1, rng.randrange(2, 40), rng.randrange(40, 400)))
    count = rng.choice((1, 5, 1 << 40))
    environment = {
        "CHAOS_ERRNO": str(number), "CHAOS_AFTER": str(after), "CHAOS_COUNT": str(count)
    }  # fmt: skip
    some = "all" if count > 5 else count
    name = f"{errno.errorcode[number]} for {some} writes after {after}"
    return Fault(name, environment, writer=rng.random() < 0.5)


def draw_fault(rng: Random) -> Fault:
    """A fault, with its numbers."""
    kill, term = signal.SIGKILL, signal.SIGTERM
    choices: list[Callable[[], Fault]] = [
        lambda: Fault("nothing"),
        lambda: Fault(
            "any process killed", act=_signal(kill, all_but_first=False, rng=rng),
            strikes=True, ends=True,
        ),
        lambda: Fault(
            "a process below killed", act=_signal(kill, all_but_first=True, rng=rng), strikes=True
        ),
        lambda: Fault(
            "any process told to end", act=_signal(term, all_but_first=False, rng=rng),
            strikes=True, ends=True,
        ),
        lambda: Fault(
            "interrupted", act=_signal(signal.SIGINT, all_but_first=False, rng=rng),
            strikes=True, ends=True,
        ),
        lambda: Fault("any process stopped for a while", act=_stop(rng.uniform(0.1, 3.0), rng)),
        lambda: _write_error(rng),
        lambda: _write_error(rng),
        lambda: _small_disk(rng),
        lambda: _limit("descriptors", resource.RLIMIT_NOFILE, rng.randrange(16, 200)),
        lambda: _limit("memory", resource.RLIMIT_AS, rng.randrange(1 << 28, 4 << 30)),
        lambda: _limit("file size", resource.RLIMIT_FSIZE, rng.randrange(64, 1 << 16)),
        lambda: Fault(
            "clock jumps", {"CHAOS_CLOCK": str(rng.choice((3600, 86400 * 400, 86400 * 20000)))}
        ),
        lambda: Fault("the same beside it, in the next folder", beside="next"),
        lambda: Fault("the same beside it, in the same folder", beside="same"),
        lambda: Fault("output removed", act=_take_away("removed"), removes=True),
        lambda: Fault("output moved away", act=_take_away("moved"), removes=True),
        lambda: Fault("output replaced by a link", act=_take_away("link"), removes=True),
        lambda: Fault("output replaced by a file", act=_take_away("file"), removes=True),
    ]  # fmt: skip
    return rng.choice(choices)()


def _small_disk(rng: Random) -> Fault:
    size = rng.choice((16, 64, 256, 1024)) << 10
    return Fault(f"{size >> 10} KiB of a disk", disk=size)


def _limit(what: str, resource_number: int, value: int) -> Fault:
    return Fault(
        f"{value} of {what}", limits={resource_number: value}, strikes=True, ends=True
    )  # the program is below the same limit


def moment(rng: Random, usual: float) -> float:
    """Seconds after the start at which something happens."""
    early: float = rng.random() ** 0.3
    return rng.uniform(*_SHARES) * usual * early
