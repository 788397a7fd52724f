"""Measures ``ait llm compare`` on API-level dumps beside msprobe 26.2, in one run.

    python scripts/bench/api_compare.py --peer-python PYTHON [--gigabytes 2] [--calls 50000]
    python scripts/bench/api_compare.py --large-json 2 --cases

Three cases: tensors of 2 GB per side, statistics and checksums of 50 000 calls. Both commands get
the same files, write a csv table, and start from nothing; all is in the page cache. The best of
the repetitions counts for us, the peer runs once: it takes minutes.

MB are those of all processes of a command together.

``--large-json`` compares one pair of ``dump.json`` files of so many GB each, by our command alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from compare import Sample, best, run
from compare_data import mixed, write_for_peer, write_torch
from figures import figure

SPEED_TARGETS = {"tensors": 20.0, "statistics": 10.0, "md5": 10.0}
PEAK_TARGET = 0.25
LARGE_PEAK_TARGET = 1024  # MB
_RECORD_BYTES = 919  # of one call in dump.json


def tensors(folder: Path, gigabytes: float) -> tuple[Path, Path]:
    """Golden and my dump with values; sides differ by about one rounding."""
    chosen = mixed(int(gigabytes * 1e9))
    return write_for_peer(write_torch(folder, chosen), chosen)


def described(folder: Path, calls: int, *, md5: bool) -> tuple[Path, Path]:
    """Golden and my dump of linear calls without values; every tenth output differs a little."""
    random.seed(5)
    steps = [folder / side / "step0" / "rank0" for side in ("golden", "mine")]
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    frames = ['File "model.py", line 3, in forward, \n return F.linear(x, w, b)'] * 6
    with contextlib.ExitStack() as opened:
        files = []
        for step in steps:
            step.mkdir(parents=True)
            (step / "construct.json").write_text("{}")
            dump, stack = (step / name for name in ("dump.json", "stack.json"))
            files.append([opened.enter_context(each.open("w")) for each in (dump, stack)])
        for dump, stack in files:
            dump.write(json.dumps(head)[:-1] + ', "data": {')
            stack.write("{")
        for number in range(calls):
            name = f"Functional.linear.{number}.forward"
            stack_text = json.dumps({str(number): [[name], frames]})[1:-1]
            parts = [_tensor(md5) for _ in range(4)]
            for side, (dump, stack) in enumerate(files):
                if side and not number % 10:
                    parts[3] |= {"md5": "00000000"} if md5 else {"Max": parts[3]["Max"] * 1.001}
                record = {"input_args": parts[:3], "input_kwargs": {}, "output": parts[3:]}
                separator = ", " if number else ""
                dump.write(f"{separator}{json.dumps({name: record})[1:-1]}")
                stack.write(f"{separator}{stack_text}")
        for dump, stack in files:
            dump.write("}}")
            stack.write("}")
    return steps[0] / "dump.json", steps[1] / "dump.json"


def _tensor(md5: bool) -> dict:
    found = {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [128, 4096],
        "Max": random.uniform(1, 4),
        "Min": -random.uniform(1, 4),
        "Mean": random.gauss(0, 0.1),
        "Norm": random.uniform(100, 900),
        "requires_grad": False,
    }
    if md5:
        found["md5"] = f"{random.getrandbits(32):08x}"
    return found


def ours(dumps: tuple[Path, Path], folder: Path) -> Sample:
    """Our command."""
    words = [sys.executable, "-m", "ait_llm", "llm", "compare", "-gp", dumps[0], "-mp", dumps[1]]
    shutil.rmtree(folder / "ours", ignore_errors=True)
    sample = run([*words, "-o", folder / "ours", "--format", "csv"], (0, 1))
    if not list((folder / "ours").glob("*.csv")):  # a traceback ends with 1, too
        sys.exit("our command wrote no table")
    return sample


def theirs(python: Path, dumps: tuple[Path, Path], folder: Path) -> Sample:
    """The command of the peer."""
    words = [python.with_name("msprobe"), "compare", "-tp", dumps[1], "-gp", dumps[0]]
    return run([*words, "-o", folder / "theirs"])


def _size(case: str, options: argparse.Namespace) -> str:
    if case == "tensors":
        return f"{options.gigabytes:g} GB of tensors per side"
    return f"{case} of {options.calls} calls"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peer-python", type=Path, help="of an environment with mindstudio-probe")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="per side")
    parser.add_argument("--calls", type=int, default=50_000)
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("--large-json", type=float, metavar="GB", help="per side")
    parser.add_argument("--cases", nargs="*", default=list(SPEED_TARGETS), choices=SPEED_TARGETS)
    parser.add_argument("--directory", help="where the dumps are made")
    options = parser.parse_args()
    makers: dict[str, Callable[[Path], tuple[Path, Path]]] = {
        "tensors": lambda folder: tensors(folder, options.gigabytes),
        "statistics": lambda folder: described(folder, options.calls, md5=False),
        "md5": lambda folder: described(folder, options.calls, md5=True),
    }
    print("| case | ours s | CPU s | MB | peer s | CPU s | MB | speed (target) | peak (target) |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for case in options.cases:
        with tempfile.TemporaryDirectory(dir=options.directory) as name:
            folder = Path(name)
            dumps = makers[case](folder)
            our = best(lambda: ours(dumps, folder), options.times)  # noqa: B023
            row = f"| {case} | {our.seconds:.2f} | {our.cpu_seconds:.2f} | {our.peak_mb:.0f} |"
            if options.peer_python is not None:
                their = theirs(options.peer_python, dumps, folder)
                speed, peak = their.seconds / our.seconds, our.peak_mb / their.peak_mb
                row += f" {their.seconds:.1f} | {their.cpu_seconds:.1f} | {their.peak_mb:.0f} |"
                what = f"API tables, {_size(case, options)}"
                figure(what, speed, "times msprobe's speed", at_least=SPEED_TARGETS[case])
                figure(f"{what}, memory", peak, "of msprobe's", at_most=PEAK_TARGET)
                row += f" {speed:.1f} ({SPEED_TARGETS[case]:.0f}) | {peak:.2f} ({PEAK_TARGET}) |"
            print(row, flush=True)
    if options.large_json is not None:
        with tempfile.TemporaryDirectory(dir=options.directory) as name:
            folder = Path(name)
            calls = int(options.large_json * 1e9 / _RECORD_BYTES)
            dumps = described(folder, calls, md5=False)
            size = dumps[0].stat().st_size / 1e9
            our = ours(dumps, folder)
            print(f"\ndump.json of {size:.2f} GB per side, {calls} calls:")
            print(f"{our.seconds:.0f} s, CPU {our.cpu_seconds:.0f} s", end=", ")
            print(f"peak {our.peak_mb:.0f} MB ({LARGE_PEAK_TARGET})")
            what = f"API tables, dump.json of {options.large_json:g} GB per side, memory"
            figure(what, our.peak_mb, "MB", at_most=LARGE_PEAK_TARGET)


if __name__ == "__main__":
    main()
