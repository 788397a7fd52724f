"""Measures converting a capture of many small tensors, beside copying its files.

    python scripts/bench/convert.py [--files 4000] [--times 5]

Files are ``.pth`` of 256 floats, as captures write them, and become ``.npy``. The limit is a loop
of Python that opens, reads, writes and closes as many. What the command takes for 100 files, its
start above all, is taken off. Everything is in the page cache.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from compare_data import Tensor, write_torch
from figures import figure

TARGET = 0.4  # ms of each file
_FEW = 100


def main() -> None:
    """Print what each file takes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--files", type=int, default=4000)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--directory", type=Path, help="takes the files")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as place:
        folder = Path(place)
        few, many = (
            write_torch(folder / str(count), [Tensor(at, 256, at % 3) for at in range(count)])[0]
            for count in (_FEW, given.files)
        )
        rows = []
        for number in range(given.times):
            start = _seconds(_convert, few, folder / f"few-{number}")
            whole = _seconds(_convert, many, folder / f"many-{number}")
            copied = _seconds(_copy, many, folder / f"copy-{number}")
            ours = (whole - start) / (given.files - _FEW) * 1e3
            rows.append((ours, copied / given.files * 1e3))
            print(f"{ours:.3f} ms each, copied in {rows[-1][1]:.3f} ms", flush=True)
    ours, copied = (statistics.median(each) for each in zip(*rows, strict=True))
    print(f"median of {given.times}: {ours:.3f} ms, {ours / copied:.1f} times copying")
    what = f"convert, each of {given.files} small files"
    figure(what, ours, "ms", at_most=TARGET)
    figure(what, ours / copied, "times opening, reading, writing and closing it in Python")


def _seconds(run: Callable[[Path, Path], None], source: Path, output: Path) -> float:
    begun = time.perf_counter()
    run(source, output)
    return time.perf_counter() - begun


def _convert(source: Path, output: Path) -> None:
    words = ["-m", "ait_llm", "llm", "convert", source, "--to", "npy", "-o", output, "-q"]
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)


def _copy(source: Path, output: Path) -> None:
    output.mkdir()
    for number, path in enumerate(sorted(source.rglob("*.pth"))):
        (output / str(number)).write_bytes(path.read_bytes())


if __name__ == "__main__":
    main()
