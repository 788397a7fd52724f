"""Measures ``ait llm compare`` beside reading, the metric kernel alone, and msprobe.

    python scripts/bench/compare.py [--gigabytes 2] [--small 100000] [--peer-python PYTHON]

Two dumps of PyTorch modules with fp16, bf16 and fp32 outputs of mixed sizes are made, which differ
by about one rounding. Every byte is in the page cache when something is timed. GB/s count the bytes
of both sides; the best of the repetitions is taken, because other work on the machine only ever
slows a run down. CPU seconds depend least on it.

(a) is reading the same files once, in blocks, without looking at them; (b) is the command of the
PyPI package mindstudio-probe in its real-data mode on hard links to the same files, run by the
environment of ``--peer-python``; (c) is the metric kernel on arrays in memory, on one core. The
whole command includes the start of Python and writing the csv report.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from compare_data import Tensor, arrays, mixed, small, write_atb, write_for_peer, write_torch
from figures import figure

from ait_llm.metrics import measure_pair

SPEED_TARGET = 1.5  # GB/s of the whole command on two cores
PEER_TARGET = 20.0
READ_TARGET = 0.5  # kernel per core against reading
PEAK_TARGET = 600  # MB
SMALL_TARGET = 60.0  # seconds for 100 000 pairs
_READ_BYTES = 1 << 20
# Starts the command from a small process: a child's peak begins with the memory of its parent.
# The peak is that of the largest process, or of all together where a look each 0.1 s finds more.
_LAUNCHER = """
import os, resource, subprocess, sys, threading, time

def resident():
    parents, pages = {}, {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as stat:
                fields = stat.read().rpartition(") ")[2].split()
        except OSError:
            continue  # it has ended
        parents[int(name)], pages[int(name)] = int(fields[1]), int(fields[21])
    total, around = 0, {os.getpid()}
    while around:
        around = {each for each, parent in parents.items() if parent in around}
        total += sum(pages[each] for each in around)
    return total * os.sysconf("SC_PAGESIZE") / 1024

def look():
    global peak
    while not ended.wait(0.1):
        peak = max(peak, resident())

peak, ended = 0, threading.Event()
before = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=sys.stderr)
threading.Thread(target=look, daemon=True).start()
code = process.wait()
seconds = time.perf_counter() - before
ended.set()
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(code, seconds, usage.ru_utime + usage.ru_stime, max(peak, usage.ru_maxrss) / 1024)
"""


@dataclass(frozen=True)
class Sample:
    """One run of a command.

    Attributes:
        seconds: wall time.
        cpu_seconds: of the process and its children.
        peak_mb: largest resident set of its processes together.
    """

    seconds: float
    cpu_seconds: float
    peak_mb: float


def run(command: Sequence[str | Path], expected: Sequence[int] = (0,)) -> Sample:
    """Run a command to its end.

    Raises:
        SystemExit: it failed.
    """
    words = [sys.executable, "-I", "-S", "-c", _LAUNCHER, *map(str, command)]
    with tempfile.TemporaryFile() as errors:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=errors, check=True)
        code, seconds, cpu_seconds, peak = map(float, done.stdout.split())
        if code not in expected:
            errors.seek(0)
            sys.exit(f"{command[0]} failed:\n{errors.read().decode()[-2000:]}")
    return Sample(seconds, cpu_seconds, peak)


def best(function: Callable[[], Sample], times: int) -> Sample:
    """The fastest of several runs, with the largest peak."""
    samples = [function() for _ in range(times)]
    fastest = min(samples, key=lambda sample: sample.seconds)
    return Sample(
        fastest.seconds,
        min(sample.cpu_seconds for sample in samples),
        max(sample.peak_mb for sample in samples),
    )


def ours(sides: tuple[Path, Path], folder: Path, jobs: int) -> Sample:
    """The whole command."""
    output = folder / "report"
    shutil.rmtree(output, ignore_errors=True)
    return run(
        [
            *(sys.executable, "-m", "ait_llm", "llm", "compare", "-j", str(jobs)),
            *("-gp", sides[0], "-mp", sides[1], "-o", output),
        ]
    )


def peer(python: Path, dumps: tuple[Path, Path], folder: Path) -> Sample:
    """The whole command of the peer."""
    output = folder / "peer_report"
    shutil.rmtree(output, ignore_errors=True)
    program = python.parent / "msprobe"
    return run([program, "compare", "-tp", dumps[1], "-gp", dumps[0], "-o", output])


def read_once(sides: tuple[Path, Path]) -> Sample:
    """Read every file of both sides in blocks into one buffer."""
    files = [path for side in sides for path in side.rglob("*") if path.is_file()]
    buffer = bytearray(_READ_BYTES)
    before, cpu = time.perf_counter(), time.process_time()
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return Sample(time.perf_counter() - before, time.process_time() - cpu, 0)


def kernel(tensors: list[Tensor]) -> Sample:
    """All metrics of the same values in memory, on one core."""
    pairs = [(golden.copy(), mine.copy()) for _, golden, mine in arrays(tensors)]
    before, cpu = time.perf_counter(), time.process_time()
    for golden, mine in pairs:
        measure_pair(golden, mine)
    return Sample(time.perf_counter() - before, time.process_time() - cpu, 0)


def line(label: str, sample: Sample, size: int, note: str = "") -> None:
    """Print one result."""
    speed = f"{size / sample.seconds / 1e9:8.2f} GB/s"
    peak = f"{sample.peak_mb:7.0f} MB" if sample.peak_mb else " " * 10
    print(
        f"{label:<34}{sample.seconds:8.2f} s {speed}{sample.cpu_seconds:9.2f} CPU s {peak}  {note}"
    )


def judged(value: float, target: float, *, at_least: bool) -> str:
    """``8.1 (target 1.5: met)``."""
    met = value >= target if at_least else value <= target
    return f"{value:.3g} (target {target:g}: {'met' if met else 'MISSED'})"


def large_tensors(folder: Path, options: argparse.Namespace) -> None:
    """The mixed sizes."""
    tensors = mixed(int(options.gigabytes * 1e9))
    sides = write_torch(folder, tensors)
    size = 2 * sum(tensor.bytes for tensor in tensors)
    print(f"{len(tensors)} tensors, {size / 2e9:.2f} GB per side, {options.jobs} threads")
    reading = best(lambda: read_once(sides), options.times)
    part = tensors[: len(tensors) // 4 or 1]
    part_size = 2 * sum(tensor.bytes for tensor in part)
    alone = best(lambda: kernel(part), options.times)
    whole = best(lambda: ours(sides, folder, options.jobs), options.times)
    line("(a) reading once, one core", reading, size)
    line("(c) metric kernel, one core", alone, part_size, "a quarter of the tensors")
    line("ait llm compare", whole, size)
    read_speed, kernel_speed = size / reading.seconds, part_size / alone.seconds
    speed = size / whole.seconds
    print(f"  GB/s: {judged(speed / 1e9, SPEED_TARGET, at_least=True)}")
    print(f"  peak MB: {judged(whole.peak_mb, PEAK_TARGET, at_least=False)}")
    print(f"  kernel to reading: {judged(kernel_speed / read_speed, READ_TARGET, at_least=True)}")
    pairs = f"compare, {size / 2e9:.1f} GB per side in the page cache"
    figure(pairs, speed / 1e9, "GB/s of both sides", at_least=SPEED_TARGET)
    figure(f"{pairs}, memory", whole.peak_mb, "MB", at_most=PEAK_TARGET)
    what = "metric kernel on one core beside reading the files"
    figure(what, kernel_speed / read_speed, "times the speed of reading", at_least=READ_TARGET)
    print(f"  whole command to reading: {speed / read_speed:.3g}")
    print(
        f"  whole command to kernel on {options.jobs} cores: "
        f"{speed / kernel_speed / options.jobs:.3g}"
    )
    if options.peer_python is not None:
        count = max(1, int(len(tensors) * options.peer_share))
        chosen = tensors[:count]
        dumps = write_for_peer(sides, chosen)
        other = best(lambda: peer(options.peer_python, dumps, folder), options.peer_times)
        other_size = 2 * sum(tensor.bytes for tensor in chosen)
        note = "" if count == len(tensors) else f"on {count} of {len(tensors)} tensors"
        line("(b) msprobe compare", other, other_size, note)
        ratio = speed / (other_size / other.seconds)
        print(f"  speed to the peer: {judged(ratio, PEER_TARGET, at_least=True)}")
        figure(
            f"{pairs}, beside msprobe", ratio, "times its speed", at_least=PEER_TARGET, note=note
        )
        cpu_ratio = (other.cpu_seconds / other_size) / (whole.cpu_seconds / size)
        print(f"  CPU seconds per byte of the peer to ours: {cpu_ratio:.3g}")


def small_tensors(folder: Path, options: argparse.Namespace) -> None:
    """Many small ones."""
    tensors = small(options.small)
    write = write_atb if options.layout == "atb" else write_torch
    sides = write(folder, tensors)
    size = 2 * sum(tensor.bytes for tensor in tensors)
    sample = best(lambda: ours(sides, folder, options.jobs), options.small_times)
    line(f"{options.small} small {options.layout} tensors", sample, size)
    scaled = sample.seconds * 100_000 / options.small
    print(f"  seconds per 100 000: {judged(scaled, SMALL_TARGET, at_least=False)}")
    print(f"  peak MB: {judged(sample.peak_mb, PEAK_TARGET, at_least=False)}")
    what = f"compare, {options.small} small {options.layout} tensors"
    figure(what, scaled, "s for 100 000", at_most=SMALL_TARGET)
    figure(f"{what}, memory", sample.peak_mb, "MB", at_most=PEAK_TARGET)


def main() -> None:
    """Make the data, time everything, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, help="where to make the data; default: temporary")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="per side; 0 leaves it out")
    parser.add_argument("--small", type=int, default=100_000, help="tensors; 0 leaves it out")
    parser.add_argument("--layout", choices=("torch", "atb"), default="torch", help="of the small")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--times", type=int, default=3, help="repetitions")
    parser.add_argument("--small-times", type=int, default=1)
    parser.add_argument("--peer-python", type=Path, help="of an environment with mindstudio-probe")
    parser.add_argument("--peer-share", type=float, default=1.0, help="of the tensors")
    parser.add_argument("--peer-times", type=int, default=1)
    options = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, NumPy {np.__version__}, {options.jobs} cores")
    with tempfile.TemporaryDirectory(dir=options.dir) as name:
        for wanted, part, folder in (
            (options.gigabytes > 0, large_tensors, Path(name) / "large"),
            (options.small > 0, small_tensors, Path(name) / "small"),
        ):
            if wanted:
                folder.mkdir()
                part(folder, options)
                shutil.rmtree(folder)


if __name__ == "__main__":
    main()
