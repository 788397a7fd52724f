"""How the cost of a command grows: twice the work must cost twice the time, not four times.

    python scripts/bench/growth.py [--axes NAME ...] [--scale 1]

Each axis runs a command on n, 2n and 4n of something and counts the processor time of all its
processes. What a command costs whatever it works on (its start, its imports) is in each of the
three, so the growth is that of the differences: (t(4n) - t(2n)) / (t(2n) - t(n)) is 2 where the
cost is linear and 4 where it is quadratic. Where twice the work costs less than a tenth more, the
growth is t(4n) / t(2n), which is at most 2 where the cost is linear. The memory stands beside it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

import torch
from api_compare import described
from compare import Sample, run
from compare_data import PROCESS, Tensor, write_torch
from figures import figure
from operator_dumps import LINEAR, OperatorDump

SHARE = 0.1  # of the time of n, by which that of 2n must be larger
TARGET = 3.0  # 2 is linear, 4 is quadratic
COMMAND = (sys.executable, "-m", "ait_llm", "llm")
Words = list[str | Path]


def sides(folder: Path, tensors: list[Tensor]) -> Words:
    golden, mine = write_torch(folder, tensors)
    return ["compare", "-gp", golden, "-mp", mine, "-o", folder / "report", "--format", "csv"]


def operators(folder: Path, count: int) -> Words:
    return sides(folder, [Tensor(number, 1024, number % 3) for number in range(count)])


def tokens(folder: Path, count: int) -> Words:
    every = 200
    return sides(folder, [Tensor(each, 1024, each % 3, every) for each in range(count * every)])


def ranks(folder: Path, count: int) -> Words:
    words = sides(folder, [Tensor(number, 1024, number % 3) for number in range(400)])
    for side in ("golden", "mine"):
        place = folder / side / "ait_dump" / "torch_tensors"
        for rank in range(count):
            shutil.copytree(place / PROCESS, place / f"{rank}_{4242 + rank}", copy_function=os.link)
        shutil.rmtree(place / PROCESS)
    return words


def tensor_size(folder: Path, mebibytes: int) -> Words:
    return sides(folder, [Tensor(number, mebibytes << 18, 2) for number in range(24)])


def api_calls(folder: Path, count: int) -> Words:
    golden, mine = described(folder, count, md5=False)
    return ["compare", "-gp", golden, "-mp", mine, "-o", folder / "report", "--format", "csv"]


def checked_operators(folder: Path, count: int) -> Words:
    made = OperatorDump(folder / "ait_dump")
    values = torch.linspace(1, 2, 128 * 256).reshape(128, 256).half()
    right = (values.float() @ values.float().T).half()
    for number in range(count):
        made.add(f"{number}_LinearOperation", [values, values], [right], LINEAR)
    made.ledger()
    return ["opcheck", "-i", made.root, "-o", folder / "report", "--format", "csv"]


def converted_files(folder: Path, count: int) -> Words:
    golden, _ = write_torch(folder, [Tensor(each, 1024, each % 3) for each in range(count)])
    return ["convert", golden, "-o", folder / "npy", "--to", "npy"]


def dumped_tokens(folder: Path, count: int) -> Words:
    program = f"{sys.executable} -m ait_llm.hostatb.demo.llama --tokens {count}"
    return ["dump", "--exec", program, "--type", "tensor", "-er", "all", "-o", folder / "dump"]


@dataclass(frozen=True)
class Axis:
    """What grows: the least amount, its unit, and what makes the files and the command."""

    least: int
    unit: str
    command: Callable[[Path, int], Words]


AXES = {
    "compare-operators": Axis(8000, "operators of one pass", operators),
    "compare-tokens": Axis(16, "forward passes", tokens),
    "compare-ranks": Axis(16, "ranks", ranks),
    "compare-size": Axis(32, "MiB per tensor", tensor_size),
    "compare-api": Axis(20000, "API calls", api_calls),
    "opcheck-operators": Axis(400, "operators", checked_operators),
    "convert-files": Axis(4000, "files", converted_files),
    "dump-tokens": Axis(16, "generated tokens", dumped_tokens),
}


def measure(axis: Axis, amount: int, repeat: int, directory: Path | None) -> Sample:
    """The cheapest of some runs, each on files of its own."""
    found = []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory(dir=directory) as folder:
            words = axis.command(Path(folder), amount)
            found.append(run([*COMMAND, *words], (0, 1, 3)))
    return min(found, key=lambda sample: sample.cpu_seconds)


def main() -> int:
    """Print a row for each axis; 1 if one grows faster than it may."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--axes", nargs="+", choices=AXES, default=list(AXES))
    parser.add_argument("--scale", type=float, default=1.0, help="of all amounts")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--directory", type=Path, help="where files go for a moment")
    given = parser.parse_args()
    print("| what grows | n | CPU s of n, 2n, 4n | MB of n, 4n | growth (2 is linear) |")
    print("| --- | --- | --- | --- | --- |")
    missed = False
    for name in given.axes:
        axis = AXES[name]
        least = max(1, round(axis.least * given.scale))
        once, twice, four = (
            measure(axis, least * factor, given.repeat, given.directory) for factor in (1, 2, 4)
        )
        first = twice.cpu_seconds - once.cpu_seconds
        if first > SHARE * once.cpu_seconds:
            growth = (four.cpu_seconds - twice.cpu_seconds) / first
        else:  # a difference that is lost in what is constant tells nothing
            growth = four.cpu_seconds / twice.cpu_seconds
        seconds = ", ".join(f"{sample.cpu_seconds:.2f}" for sample in (once, twice, four))
        memory = f"{once.peak_mb:.0f}, {four.peak_mb:.0f}"
        print(
            f"| {name}, {axis.unit} | {least} | {seconds} | {memory} | {growth:.2f} |", flush=True
        )
        note = f"{seconds} CPU s and {memory} MB"
        what = f"{name}: {least}, {2 * least} and {4 * least} {axis.unit}"
        figure(what, growth, "times more for twice as many", at_most=TARGET, note=note)
        missed |= growth > TARGET
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
