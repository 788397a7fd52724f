"""Measures reading a dump of the graph engine beside msprobe's parser on the same files.

    python scripts/bench/ge_read.py [--gigabytes 1] [--peer-python PYTHON]

The dump holds layers of a decoder: bf16, fp16, fp32, int8, int64 and bool, over a third of the
bytes in FRACTAL_NZ, files from 8 KB to 34 MB. Every byte is in the page cache before something is
timed, and the readers take turns. All read every tensor of every file.

(a) is ``msprobe parse`` of the PyPI package mindstudio-probe, run by the environment of
``--peer-python``: the command that its users run, which writes npy files; (b) is the parser inside
of it, called in one process that writes nothing. Both need a library of CANN to read a header;
``ge_parser_stand_in.cpp`` is compiled in its place. (c) is this package: the values as stored,
which is what the peer gives, mapped where they can be, every byte looked at; (d) is the same in
logical dims, FRACTAL_NZ restored, which the peer does not do; (e) copies them into memory; (f) is
(e) that also writes npy files. "Inside" leaves out the start of Python and imports.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from figures import figure
from ge_data import write_dump

TARGET = 10.0  # times the speed of (a), and of (b)
PEAK_TARGET = 250  # MB

_OURS = """
import sys, time
import numpy as np
from ait_llm.dumps import open_dump
mode, folder, out = sys.argv[1:]
begin = time.perf_counter(), time.process_time()
tensors = total = 0
for operation in open_dump(folder).operations():
    for tensor in operation.tensors:
        tensors += 1
        if mode in ("seen", "mapped"):
            flat = (tensor.numpy() if mode == "seen" else tensor.nd()).reshape(-1).view(np.uint8)
            total += flat.size
            flat.max(initial=0)
            continue
        values = np.array(tensor.nd())
        total += values.nbytes
        if mode == "npy":
            if values.dtype.name == "bfloat16":
                values = values.astype(np.float32)
            np.save(f"{out}/{operation.path.name}.{tensor.name}.npy", values)
end = time.perf_counter(), time.process_time()
print(tensors, total, end[0] - begin[0], end[1] - begin[1])
"""
_PEER = """
import os, sys, time
import msprobe
sys.path.insert(0, os.path.join(os.path.dirname(msprobe.__file__), "msaccucmp"))
from dump_parse import dump_utils
begin = time.perf_counter(), time.process_time()
tensors = total = 0
for folder, _, names in os.walk(sys.argv[1]):
    for name in sorted(names):
        dump = dump_utils.parse_dump_file(os.path.join(folder, name), 2)
        for tensor in [*dump.input_data, *dump.output_data]:
            tensors += 1
            total += tensor.data.nbytes
end = time.perf_counter(), time.process_time()
print(tensors, total, end[0] - begin[0], end[1] - begin[1])
"""
# Starts the command from a small process: a child's peak begins with the memory of its parent.
_LAUNCHER = """
import os, resource, subprocess, sys, time
start = time.perf_counter()
code = subprocess.call(sys.argv[1:])
wall = time.perf_counter() - start
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(code, wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss // 1024, file=sys.stderr)
"""


@dataclass(frozen=True)
class Cost:
    """What one run took.

    Attributes:
        wall, cpu: seconds of the whole command, and of all its processes on CPUs.
        peak: MB of memory.
        inside: seconds and CPU seconds without start and imports; None where it cannot be told.
    """

    wall: float
    cpu: float
    peak: int
    inside: tuple[float, float] | None


def main() -> None:
    """Make the dump, run all, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--peer-python", default=os.environ.get("AIT_LLM_PEER_PYTHON"))
    parser.add_argument("--folder", type=Path, help="where the files go  [default: a new one]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        files, total = write_dump(folder / "dump", int(options.gigabytes * 1e9))
        print(f"{files} files, {total / 1e9:.2f} GB")
        _run_all(folder, total, options)


def _run_all(folder: Path, total: int, options: argparse.Namespace) -> None:
    rows: dict[str, list[Cost]] = {}
    for _ in range(options.repeat):
        for label, command in _commands(folder, options.peer_python).items():
            shutil.rmtree(folder / "out", ignore_errors=True)
            (folder / "out").mkdir(mode=0o750)
            _warm(folder / "dump")
            rows.setdefault(label, []).append(_measured(command, folder))
    best = {label: min(costs, key=lambda cost: cost.cpu) for label, costs in rows.items()}
    print(f"{'':<50} {'command':>16}  {'peak':>7}  {'inside':>16}")
    for label, cost in best.items():
        line = f"{label:<50} {cost.wall:6.2f} s {cost.cpu:6.2f} s  {cost.peak:4d} MB"
        if cost.inside is not None:
            line += f"  {cost.inside[0]:6.2f} s {cost.inside[1]:6.2f} s"
            line += f"  {total / cost.inside[0] / 1e9:5.2f} GB/s"
        print(line)
    print("each: seconds, CPU seconds")
    letters = {label[1]: cost for label, cost in best.items()}
    for peer in "ab":
        for ours in "cdef":
            if peer in letters:
                _print_ratio(peer, letters[peer], ours, letters[ours])
    read = f"reading {total / 1e9:.1f} GB of graph-engine dumps"
    for peer, text in (("a", "msprobe parse"), ("b", "the parser inside msprobe")):
        if peer in letters:
            ratio = letters[peer].wall / letters["c"].wall
            wanted = TARGET if peer == "a" else None  # (b) starts no command and writes nothing
            figure(f"{read}, beside {text}", ratio, "times its speed", at_least=wanted)
    figure(f"{read}, memory", letters["c"].peak, "MB", at_most=PEAK_TARGET)
    print(f"wanted: (c) {TARGET:.0f} times as fast as (a), peak below {PEAK_TARGET} MB")


def _print_ratio(peer: str, theirs: Cost, letter: str, ours: Cost) -> None:
    wall, cpu = theirs.wall / ours.wall, theirs.cpu / ours.cpu
    line = f"({letter}) beside ({peer}): {wall:5.1f} times as fast, {cpu:5.1f} times less CPU"
    if theirs.inside is not None and ours.inside is not None:
        wall, cpu = (a / b for a, b in zip(theirs.inside, ours.inside, strict=True))
        line += f"; inside {wall:5.1f} and {cpu:5.1f}"
    print(line)


def _commands(folder: Path, peer: str | None) -> dict[str, Sequence[str]]:
    dump, out = str(folder / "dump"), str(folder / "out")
    commands: dict[str, Sequence[str]] = {}
    if peer:
        _compile(folder)
        script = Path(peer).parent / "msprobe"
        leaf = next(path.parent for path in sorted(Path(dump).rglob("*.7.*")))
        commands["(a) msprobe parse -t npy"] = [
            str(script),
            "parse",
            "-d",
            str(leaf),
            "-t",
            "npy",
            "-o",
            out,
        ]
        commands["(b) msprobe's parser, nothing written"] = [peer, "-c", _PEER, dump]
    for letter, mode, text in (
        ("c", "seen", "stored values, mapped, all looked at"),
        ("d", "mapped", "logical dims, mapped, all looked at"),
        ("e", "logical", "logical dims, copied into memory"),
        ("f", "npy", "the same, npy files written"),
    ):
        commands[f"({letter}) ait_llm, {text}"] = [sys.executable, "-c", _OURS, mode, dump, out]
    return commands


def _compile(folder: Path) -> None:
    source = Path(__file__).with_name("ge_parser_stand_in.cpp")
    library = folder / "lib" / "libascend_dump_parser.so"
    if not library.exists():
        library.parent.mkdir()
        subprocess.run(
            ["g++", "-O2", "-shared", "-fPIC", str(source), "-o", str(library)], check=True
        )
        library.chmod(0o550)


def _warm(dump: Path) -> None:
    for path in dump.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                while file.read(1 << 20):
                    pass


def _measured(command: Sequence[str], folder: Path) -> Cost:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder / "lib")}
    done = subprocess.run(
        [sys.executable, "-c", _LAUNCHER, *command],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    code, wall, cpu, peak = done.stderr.strip().splitlines()[-1].split()
    if code != "0":
        raise SystemExit(
            f"{command[0]} ended with {code}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    numbers = done.stdout.split()[-2:] if _is_measured(done.stdout) else []
    inside = (float(numbers[0]), float(numbers[1])) if numbers else None
    return Cost(float(wall), float(cpu), int(peak), inside)


def _is_measured(output: str) -> bool:
    """True if a reader of this script printed its counts and seconds."""
    parts = (output.strip().splitlines() or [""])[-1].split()
    return len(parts) == 4 and parts[0].isdigit() and parts[1].isdigit()


if __name__ == "__main__":
    main()
