"""Measures ``compare`` on worker processes of Ray beside the same on threads.

    python scripts/bench/engine.py [--ranks 16] [--megabytes 200] [--jobs 2]

Dumps of several ranks are made, whose tensors differ by about one rounding, and lie in the page
cache when something is timed. Both engines measure in turns and the best of each counts, because
other work on the machine only ever slows a run down. What is timed is the comparison, with the
engine open and its workers started; how long that takes stands beside it. The reports of both must
be the same.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from figures import figure

from ait_llm.compare import compare
from ait_llm.core import TensorDesc
from ait_llm.core.comparison import Report
from ait_llm.engine import open_engine
from ait_llm.formats import dtype_of, write_tensor
from ait_llm.report import write_reports

TARGET = 0.85  # of the throughput of threads
_TENSOR_BYTES = 4 << 20
_SEED = 5


@dataclass
class Timed:
    """The best of several runs.

    Attributes:
        seconds: wall time.
        report: of the last one.
    """

    seconds: float
    report: Report


def make_dumps(folder: Path, ranks: int, megabytes: int) -> tuple[Path, Path]:
    """Two ATB dumps; every file of a side differs in its values."""
    random = np.random.default_rng(_SEED)
    base = random.normal(size=_TENSOR_BYTES // 2).astype(np.float16)
    rounded = base + (random.integers(0, 2, base.shape) * np.spacing(base)).astype(np.float16)
    sides = []
    for side, values in (("golden", base), ("mine", rounded)):
        root = folder / side / "ait_dump"
        for rank in range(ranks):
            for number in range(max(1, megabytes * 1_000_000 // _TENSOR_BYTES)):
                array = values.copy()
                array[: 2 + rank] = number
                name = f"tensors/{rank}_{1000 + rank}/0/{number}_LinearOperation/after"
                file = root / name / "outtensor0.bin"
                file.parent.mkdir(parents=True)
                write_tensor(file, array, TensorDesc(dtype_of(array), array.shape), {})
        sides.append(root)
    return sides[0], sides[1]


def bytes_of(sides: tuple[Path, Path]) -> int:
    """Bytes of both sides; reading them brings them into the page cache."""
    size = 0
    buffer = bytearray(1 << 20)
    for side in sides:
        for path in sorted(side.rglob("*.bin")):
            with path.open("rb", buffering=0) as file:
                while count := file.readinto(buffer):
                    size += count
    return size


def better(best: Timed | None, run: Callable[[], Report]) -> Timed:
    """One more run; the best so far."""
    before = time.perf_counter()
    report = run()
    seconds = time.perf_counter() - before
    return Timed(min(seconds, best.seconds) if best is not None else seconds, report)


def text_of(report: Report, folder: Path) -> str:
    """A report as text, but for its times."""
    folder.mkdir()
    files = write_reports(report, ["csv", "jsonl"], folder, "1")
    text = "\n".join(path.read_text() for path in files)
    return re.sub(r'"(started|finished)":"[^"]*"', "", text)


def main() -> None:
    """Make the data, time both, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, help="where to make the data; default: temporary")
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--megabytes", type=int, default=200, help="of each rank and side")
    parser.add_argument("--jobs", type=int, default=2, help="threads, and worker processes")
    parser.add_argument("--times", type=int, default=3, help="repetitions")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as name:
        folder = Path(name)
        sides = make_dumps(folder / "large", options.ranks, options.megabytes)
        small = make_dumps(folder / "small", options.jobs * 2, 2 * options.jobs)
        size = bytes_of(sides)
        compare(*small, jobs=options.jobs)
        here = there = None
        started = time.perf_counter()
        with open_engine("ray", None, options.jobs) as engine:
            compare(*small, engine=engine)
            starting = time.perf_counter() - started
            for _ in range(options.times):
                here = better(here, lambda: compare(*sides, jobs=options.jobs))
                there = better(there, lambda: compare(*sides, engine=engine))
        assert here is not None
        assert there is not None
        same = text_of(here.report, folder / "here") == text_of(there.report, folder / "there")
        pairs = len(there.report.comparisons)
        shutil.rmtree(folder / "large")
    ratio = here.seconds / there.seconds
    for label, timed in (("threads", here), ("worker processes of Ray", there)):
        speed = size / timed.seconds / 1e9
        print(f"{options.jobs} {label:<26}{timed.seconds:8.2f} s {speed:8.2f} GB/s")
    print(f"  {options.ranks} ranks, {pairs} pairs, {size / 2e9:.2f} GB per side")
    met = "met" if ratio >= TARGET else "MISSED"
    print(f"  throughput to threads: {ratio:.3g} (target {TARGET:g}: {met})")
    print(f"  start of the workers: {starting:.1f} s; the same report: {'yes' if same else 'NO'}")
    what = f"compare of {options.ranks} ranks of {options.megabytes} MB on {options.jobs} workers"
    figure(f"{what} of Ray", ratio, "times the throughput of threads", at_least=TARGET)
    figure(f"start of {options.jobs} workers of Ray", starting, "s")
    if not same:
        sys.exit("the reports differ")


if __name__ == "__main__":
    main()
