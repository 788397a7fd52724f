"""Measures ``ait llm compare`` on dumps in an object store beside fetching them, and beside disk.

    python scripts/bench/storage.py [--gigabytes 1] [--json]

Two dumps of PyTorch modules with tensors of mixed sizes lie in a store that speaks S3 over a socket
of this machine (moto, in a process of its own), and on disk in the page cache. The limit is
``fs.get`` of s3fs: the same bytes fetched into a folder, and nothing else. What users would do
without URLs is that, and then the comparison of the local files. All times are of whole processes
with the start of Python; the best of the repetitions is taken. The server computes on the same
processors, reads a whole object for each part that is asked for, and is far slower than a real one,
so that speeds say nothing of real stores, and the ratio to fetching alone little.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import fsspec
from compare import Sample, best, judged, line, run
from compare_data import mixed, write_torch
from figures import figure

BUCKET = "captures"
BY_HAND_TARGET = 0.9  # of the speed of fetching everything and comparing it then
_SERVER = """
import sys, time, logging
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""
_GET = """
import sys, fsspec
fsspec.filesystem("s3").get(sys.argv[1], sys.argv[2], recursive=True)
"""


@contextlib.contextmanager
def object_store() -> Iterator[None]:
    """A server in a process of its own, which the environment then names."""
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    os.environ.update(
        AWS_ENDPOINT_URL=f"http://127.0.0.1:{int(server.stdout.readline())}",
        AWS_ACCESS_KEY_ID="bench",
        AWS_SECRET_ACCESS_KEY="bench",
        AWS_DEFAULT_REGION="us-east-1",
    )
    try:
        yield
    finally:
        server.communicate("")


def compare(golden: str, mine: str, folder: Path, jobs: int) -> Sample:
    """The whole command."""
    output = folder / "report"
    shutil.rmtree(output, ignore_errors=True)
    return run(
        [
            *(sys.executable, "-m", "ait_llm", "llm", "compare", "-j", str(jobs)),
            *("-gp", golden, "-mp", mine, "-o", output),
        ]
    )


def fetch(url: str, folder: Path) -> Sample:
    """``fs.get`` alone."""
    target = folder / "fetched"
    shutil.rmtree(target, ignore_errors=True)
    sample = run([sys.executable, "-c", _GET, url, target])
    shutil.rmtree(target)
    return sample


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Sample]:
    """Both commands and the limit."""
    tensors = mixed(int(options.gigabytes * 1e9))
    sides = write_torch(folder, tensors)
    size = 2 * sum(tensor.bytes for tensor in tensors)
    url = f"s3://{BUCKET}/bench"
    with object_store():
        store = fsspec.filesystem("s3")
        store.mkdir(BUCKET)
        for side in sides:
            store.put(f"{side}/", f"{url}/{side.name}/", recursive=True)
        where = [f"{url}/{side.name}" for side in sides]
        found = {
            "fs.get alone": best(lambda: fetch(url, folder), options.times),
            "compare, s3://": best(
                lambda: compare(where[0], where[1], folder, options.jobs), options.times
            ),
            "compare, local": best(
                lambda: compare(str(sides[0]), str(sides[1]), folder, options.jobs), options.times
            ),
        }
    out = sys.stderr if options.json else sys.stdout
    with contextlib.redirect_stdout(out):
        print(f"{len(tensors)} tensors, {size / 2e9:.2f} GB per side, {options.jobs} threads")
        for label, sample in found.items():
            line(label, sample, size)
        speed = found["fs.get alone"].seconds / found["compare, s3://"].seconds
        print(f"  speed of compare over s3:// to fetching alone: {speed:.3g}")
        both = found["fs.get alone"].seconds + found["compare, local"].seconds
        by_hand = both / found["compare, s3://"].seconds
        print(f"  to fetching, then comparing: {judged(by_hand, BY_HAND_TARGET, at_least=True)}")
        slower = found["compare, s3://"].seconds / found["compare, local"].seconds
        print(f"  compare over s3:// to compare of local files: {slower:.3g} times the time")
    what = f"compare of dumps in an object store, {size / 2e9:.1f} GB per side"
    figure(what, by_hand, "times the speed of fs.get, then compare", at_least=BY_HAND_TARGET)
    figure(f"{what}, beside the limit", speed, "times the speed of fs.get alone")
    figure(f"{what}, beside local files", slower, "times the time")
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=0.5, help="of each side")
    parser.add_argument("--jobs", type=int, default=2, help="threads of compare")
    parser.add_argument("--times", type=int, default=3, help="repetitions")
    parser.add_argument("--directory", type=Path, help="folder for temporary files")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ait-bench-", dir=options.directory) as folder:
        found = measure(Path(folder), options)
    if options.json:
        print(json.dumps({label: asdict(sample) for label, sample in found.items()}))


if __name__ == "__main__":
    main()
