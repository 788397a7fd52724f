"""Time and memory of reading a large GE graph, beside plain reading of the same file.

    python scripts/bench/ge_graph.py [--megabytes 200] [--form txt|pbtxt] [--whole]

The file repeats a graph that torchair wrote, each time with other names of operators and tensors.
Every way of reading runs in a process of its own: processor time, and the most memory that it held
beyond what its imports took.
"""

from __future__ import annotations

import argparse
import lzma
import os
import re
import resource
import sys
import tempfile
import time
from pathlib import Path

from figures import figure

from ait_llm.topology import read_ge_graph, stream_ge_ops

RECORDED = Path(__file__).parents[2] / "tests" / "data" / "torchair"
PEAK_TARGET = 64  # MiB, whatever the size of the file
NAMES = re.compile(r'(\b(?:input|name): "|\\?"(?=\w+-aten))(?=[A-Za-z])')


def generate(path: Path, form: str, megabytes: int) -> None:
    """Write a graph file of at least that size."""
    (source,) = RECORDED.glob(f"dynamo_original_graph_1_*.{form}.xz")
    text = lzma.decompress(source.read_bytes()).decode()
    head, opening, body = text.partition("op {" if form == "txt" else "node {")
    with path.open("w") as file:
        file.write(head)
        copy = 0
        while file.tell() < megabytes * 1_000_000:
            file.write(opening + NAMES.sub(rf"\g<1>layer{copy}_", body))
            copy += 1


def plain(path: Path) -> int:
    with path.open("rb") as file:
        return sum(map(len, iter(lambda: file.read(1 << 16), b"")))


def lines(path: Path) -> int:
    with path.open() as file:
        return sum(1 for _ in file)


def stream(path: Path) -> int:
    return sum(1 for _ in stream_ge_ops(path))


def whole(path: Path) -> int:
    return len(read_ge_graph(path).ops)


WAYS = {
    "read": ("bytes, in pieces", plain),
    "lines": ("lines of text", lines),
    "stream": ("operators, one by one", stream),
    "whole": ("operators, all kept", whole),
}


def measure(path: Path, way: str) -> None:
    """Print one row."""
    title, action = WAYS[way]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    count = action(path)
    seconds = time.process_time() - start
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    speed = path.stat().st_size / seconds / 1e6
    print(f"{title:<24} {count:>12} {seconds:>9.2f} {speed:>9.0f} {memory:>9.1f}", flush=True)
    if way == "stream":
        size = path.stat().st_size / 1e6
        what = f"GE graph of {size:.0f} MB ({path.suffix[1:]}), operator by operator"
        figure(
            what, memory, "MiB beyond the imports", at_most=PEAK_TARGET, note=f"{speed:.0f} MB/s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--form", choices=("txt", "pbtxt"), default="txt")
    parser.add_argument("--whole", action="store_true", help="also keep the whole graph")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"dynamo_original_graph.{arguments.form}"
        generate(path, arguments.form, arguments.megabytes)
        print(f"{arguments.form}, {path.stat().st_size / 1e6:.0f} MB")
        print(
            f"{'reading':<24} {'count':>12} {'seconds':>9} {'MB/s':>9} {'peak MiB':>9}", flush=True
        )
        for way in WAYS:
            if way == "whole" and not arguments.whole:
                continue
            child = os.fork()  # a process of its own, so that its peak is its own
            if child == 0:
                measure(path, way)
                os._exit(0)
            if os.waitpid(child, 0)[1]:
                sys.exit(f"{way}: failed")


if __name__ == "__main__":
    main()
