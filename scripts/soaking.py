"""Captures under random kills, and what must be true of what they leave.

Some programs at a time save numbered operations on several threads, each below the probe. At random
moments a program or its writer gets SIGKILL; another program takes over the next operations. The
bytes of an operation follow from its number, so every file can be checked afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ait_llm import open_dump
from ait_llm.dump.leftovers import remove_leftovers
from ait_llm.dumps.ledger import read_ledger
from ait_llm.errors import AitError
from ait_llm.formats.atb_bin import read_header, read_tensor

_LONG_EACH = 64  # every how many operations one has a long tensor
_PATIENCE_SECONDS = 120.0  # for a process that should end by itself
_MIX, _STEP, _MASK = 0x9E3779B97F4A7C15, 0xD1342543DE82EF95, (1 << 64) - 1
_SETTINGS = {
    "ATB_DUMP_TYPE": "tensor",
    "ATB_SAVE_TENSOR": "1",
    "ATB_SAVE_CHILD": "1",
    "ATB_SAVE_TENSOR_RANGE": "0,0",
    "ATB_SAVE_TENSOR_TIME": "1",
    "ATB_SAVE_TENSOR_PART": "2",
    "ATB_AIT_LOG_LEVEL": "3",
}


def words_of(number: int) -> NDArray[np.uint64]:
    """What operation ``number`` saves; as ``driver_soak.cpp`` computes it."""
    mixed = (number * _MIX & _MASK) >> 40
    is_long = number % _LONG_EACH == _LONG_EACH - 1
    count = 8192 + mixed % 8192 if is_long else 1 + mixed % 512
    start = np.uint64(number * _MIX & _MASK)
    with np.errstate(over="ignore"):
        return np.arange(count, dtype=np.uint64) * np.uint64(_STEP) + start


@dataclass(frozen=True)
class Settings:
    """What a soak does.

    Attributes:
        build: of the native tests.
        output: where programs capture to.
        operations: of each thread, over all programs of one place.
        threads: of each program.
        processes: programs at a time.
        rounds: programs one after the other in each place.
        queue_bytes: between program and writer; small ones let programs wait, or write themselves.
        seed: of what is killed and when.
    """

    build: Path
    output: Path
    operations: int
    threads: int
    processes: int
    rounds: int
    queue_bytes: int
    seed: int


@dataclass
class Killed:
    """One program of a soak.

    Attributes:
        pid: of the program.
        first: number of its first operation.
        count: of its operations.
        victim: what got SIGKILL: ``program``, ``writer`` or nothing; ``failed`` and ``hung`` for
            programs that did not start or end by themselves.
        status: how the program ended.
    """

    pid: int
    first: int
    count: int
    victim: str
    status: int


@dataclass
class Result:
    """Figures of a soak, and what was wrong."""

    programs: list[Killed] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def run(settings: Settings) -> Result:
    """Run all programs, then check what they left."""
    result = Result()
    places = [
        threading.Thread(target=_one_place, args=(settings, place, result))
        for place in range(settings.processes)
    ]
    for place in places:
        place.start()
    for place in places:
        place.join()
    _wait_for_writers(settings.output, result)
    check(settings.output / "ait_dump", result)
    return result


def _one_place(settings: Settings, place: int, result: Result) -> None:
    rng = random.Random(f"{settings.seed}/{place}")
    share = -(-settings.operations // settings.rounds)
    first = place * settings.operations * settings.threads
    for start in range(0, settings.operations, share):
        count = min(share, settings.operations - start)
        victim = rng.choice(("program", "writer", ""))
        one = _one_program(settings, first + start * settings.threads, count, victim, rng)
        result.programs.append(one)


def _one_program(
    settings: Settings, first: int, count: int, victim: str, rng: random.Random
) -> Killed:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ATB_", "AIT_", "LD_PRELOAD"))
    }
    environment |= _SETTINGS
    environment["ATB_OUTPUT_DIR"] = f"{settings.output}/"
    environment["AIT_PROBE_QUEUE_BYTES"] = str(settings.queue_bytes)
    # The runtime of a sanitizer has to come first.
    preloaded = os.environ.get("AIT_NATIVE_RUNTIME", "").split()
    preloaded.append(str(settings.build / "lib" / "libatb_probe_abi1.so"))
    environment["LD_PRELOAD"] = " ".join(preloaded)
    command = [settings.build / "tests" / "probe_driver_abi1", "soak", f"first={first}"]
    process = subprocess.Popen(
        [*command, f"ops={count}", f"threads={settings.threads}"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # its writer holds it open too
        text=True,
    )
    assert process.stdout is not None
    pid = process.pid
    if process.stdout.readline() != f"pid {pid}\n":
        victim = "failed"
    elif victim:
        # a share of the operations, not of the time: a busy machine only makes it last longer
        _wait_until_saved(settings.output, pid, count * settings.threads, rng.random(), process)
        target = pid if victim == "program" else next(iter(_writers(settings.output, pid)), 0)
        try:
            os.kill(target, signal.SIGKILL) if target else None
        except ProcessLookupError:
            victim = ""
        if not target:
            victim = ""
    try:
        status = process.wait(_PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        status = process.wait()
        victim = "hung"
    process.stdout.close()
    if victim == "program" and status == 0:
        victim = ""  # it had ended before
    return Killed(pid, first, count * settings.threads, victim, status)


def _wait_until_saved(
    output: Path, pid: int, operations: int, share: float, process: subprocess.Popen[str]
) -> None:
    """Return when the ledger is as long as that share of the operations makes it."""
    ledger = output / "ait_dump" / "ledger" / f"0_{pid}.jsonl"
    wanted = share * operations * 0.9 * 150  # bytes of a line, about
    while process.poll() is None:
        try:
            if ledger.stat().st_size >= wanted:
                return
        except FileNotFoundError:
            pass
        time.sleep(0.0005)


def _writers(output: Path, host: int | None = None) -> Iterator[int]:
    """Processes that write to the folder, of one program or of all."""
    wanted = b"ATB_OUTPUT_DIR=" + os.fsencode(output)
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if not words[0].endswith(b"/ait_probe_writer"):
                continue
            if host is not None and words[4] != str(host).encode():
                continue
            if wanted in (process / "environ").read_bytes():
                yield int(process.name)
        except (OSError, IndexError):
            continue  # it has ended meanwhile


def _wait_for_writers(output: Path, result: Result) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while left := list(_writers(output)):
        if time.monotonic() > until:
            result.problems.append(f"writers still run: {left}")
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.02)


def check(dump: Path, result: Result) -> None:
    """Check every file against the number of its operation, and the ledgers against the files."""
    say = result.problems.append
    for one in result.programs:
        result.counts[f"killed: {one.victim or 'nothing'}"] += 1
        files = _check_files(dump, one, result)
        saved = _check_ledger(dump, one, files, result)
        if not one.victim and (one.status != 0 or len(files) != one.count):
            say(f"{one.pid}: ended with {one.status} and {len(files)} of {one.count} files")
        if one.victim in ("hung", "failed"):
            say(f"{one.pid}: {'did not end' if one.victim == 'hung' else 'did not start'}")
            continue
        result.counts["operations"] += one.count
        result.counts["files"] += len(files)
        result.counts["saved lines"] += saved
    left = list(dump.parent.rglob(".ait-*"))
    result.counts["unfinished files of killed writers"] = len(left)
    remove_leftovers(dump)
    left = list(dump.parent.rglob(".ait-*"))
    if left:
        say(f"{len(left)} temporary files stay, such as {left[0]}")
    known = {f"0_{one.pid}" for one in result.programs}
    for folder in (dump / "tensors").glob("*"):
        if folder.name not in known:
            say(f"{folder} is of no program")
    problems = [each.problem for each in open_dump(dump).processes if each.problem is not None]
    result.counts["processes that the reader tells of"] = len(problems)


def _check_files(dump: Path, one: Killed, result: Result) -> set[int]:
    found: set[int] = set()
    step = dump / "tensors" / f"0_{one.pid}" / "0"
    for folder in step.iterdir() if step.is_dir() else ():
        path = folder / "after" / "outtensor0.bin"
        number = int(folder.name.partition("_")[0])
        if not path.exists():
            continue  # made for a file that was never finished
        if not one.first <= number < one.first + one.count:
            result.problems.append(f"{path}: no operation of this program")
        try:
            expected = words_of(number)
            header = read_header(path)
            if header.desc.shape != expected.shape:
                result.problems.append(f"{path}: dims {header.desc.shape}, not {expected.shape}")
            elif not np.array_equal(read_tensor(path), expected):
                result.problems.append(f"{path}: other bytes than operation {number} saved")
            found.add(number)
            result.counts["bytes"] += expected.nbytes
        except AitError as error:
            result.problems.append(str(error))
    return found


def _check_ledger(dump: Path, one: Killed, files: set[int], result: Result) -> int:
    """Every saved line has its file, and every file its line unless the writer was killed."""
    say = result.problems.append
    path = dump / "ledger" / f"0_{one.pid}.jsonl"
    if not path.exists() and one.victim == "writer":
        return 0
    try:
        ledger = read_ledger(path)
        entries = list(ledger.entries())
    except AitError as error:
        say(str(error))
        return 0
    saved = {entry.op_id.parts[0] for entry in entries if entry.state == "saved" and entry.op_id}
    lost = [entry for entry in entries if entry.state not in ("saved",)]
    if saved - files:
        say(f"{path}: {len(saved - files)} saved operations have no file")
    # What the program was writing itself when it was killed counts as failed, even if it is whole.
    named = {entry.op_id.parts[0] for entry in entries if entry.op_id}
    without_writer = ledger.header.get("writer") == "host"
    if files - named and one.victim != "writer" and not (one.victim and without_writer):
        say(f"{path}: {len(files - named)} files have no line")
    if lost and not one.victim:
        say(f"{path}: {len(lost)} operations are {lost[0].state}: {lost[0].reason}")
    end = ledger.seal.end if ledger.seal is not None else None
    if one.victim and end == "exit":  # it was killed when all was done
        if len(saved) != one.count:
            say(f"{path}: sealed with {len(saved)} of {one.count} operations")
        return len(saved)
    # Before Linux 6.15 a status that the parent has collected already cannot be read any more.
    killed = {None} if without_writer else {"signal 9", "unknown"}
    allowed = {"program": killed, "writer": {None}, "": {"exit"}}
    if one.victim in allowed and end not in allowed[one.victim]:
        say(f"{path}: the seal says {end!r}, killed was {one.victim or 'nothing'}")
    return len(saved)


def main() -> int:
    """0 if nothing was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--build", type=Path, required=True, help="folder of the native tests")
    parser.add_argument("--operations", type=int, default=10_000, help="of each thread")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20, help="programs in each of the places")
    parser.add_argument("--queue-bytes", type=int, default=1 << 20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="where the capture goes, for a while")
    given = parser.parse_args()
    output = Path(tempfile.mkdtemp(prefix="ait-soak-", dir=given.directory))
    shared = {entry.name for entry in Path("/dev/shm").iterdir()}
    began = time.monotonic()
    try:
        settings = Settings(
            given.build,
            output,
            given.operations,
            given.threads,
            given.processes,
            given.rounds,
            given.queue_bytes,
            given.seed,
        )
        result = run(settings)
    finally:
        shutil.rmtree(output, ignore_errors=True)
    left = {entry.name for entry in Path("/dev/shm").iterdir()} - shared
    ours = [name for name in sorted(left) if name.startswith(("ait_probe", output.name))]
    result.problems += [f"/dev/shm/{name} stays" for name in ours]
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures = {
        **dict(sorted(result.counts.items())),
        "problems": len(result.problems),
        "seconds": round(time.monotonic() - began, 1),
        "cpu seconds of programs": round(usage.ru_utime + usage.ru_stime, 1),
    }
    print(json.dumps(figures, indent=2))
    for problem in result.problems[:50]:
        print(problem, file=sys.stderr)
    return int(bool(result.problems))


if __name__ == "__main__":
    sys.exit(main())
