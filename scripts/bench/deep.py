"""What ``ait llm compare --deep`` costs, in passes of the model that was captured.

    python scripts/bench/deep.py [--hidden 2048] [--layers 2] [--tokens 256] [--dtypes float32 ...]
                                 [--directory DIR]

A Llama-shaped model is captured twice, operator by operator, and compared with and without
``--deep``. Printed is the processor time of what ``--deep`` adds, over that of a pass in float32 in
the same process. ``other sums`` are captures whose products were added up in another order than
those of this machine, as those of other devices are.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
from figures import figure
from llama_shape import LlamaShape
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))
from other_sums import OtherSums

from ait_llm import DumpConfig, compare, register_hook
from ait_llm.core.comparison import Verdict

LIMIT = 3.0


def seconds(work: Callable[[], object], times: int = 3) -> float:
    """Least processor time of some runs."""
    found = []
    for _ in range(times):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def captured(model: LlamaShape, ids: Tensor, folder: Path, *, other_sums: bool) -> Path:
    """A capture of every operator, and of the weights."""
    config = DumpConfig(dump_path=folder, operators=True, weights=True)
    how = OtherSums() if other_sums else nullcontext()
    with how, torch.no_grad(), register_hook(model, config):
        model(ids)
    return folder


def added(golden: Path, mine: Path) -> float:
    """Seconds that ``deep`` adds to a comparison of healthy captures."""

    def run(*, deep: bool) -> None:
        report = compare(golden, mine, deep=deep, ledger=False, jobs=1)
        if report.verdict is not Verdict.PASS:
            raise SystemExit(f"a healthy pair is {report.verdict.value}: {report.origins}")

    run(deep=True)  # imports are no part of it
    return seconds(lambda: run(deep=True), 2) - seconds(lambda: run(deep=False), 2)


def main() -> int:
    """Print the cost for each type; 1 if it is too much."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--directory", type=Path, help="for the captures; 3 GB for a full run")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = LlamaShape(given.hidden, given.layers).eval()
    ids = torch.randint(0, 4096, (1, given.tokens))
    with torch.no_grad():
        once = seconds(lambda: model(ids))
    print(f"one pass in float32: {once:.2f} s")
    met = True
    for name in given.dtypes:
        narrow = model.to(getattr(torch, name))
        for other_sums in (False, True):
            with tempfile.TemporaryDirectory(dir=given.directory) as folder:
                golden, mine = (
                    captured(narrow, ids, Path(folder, side), other_sums=other_sums)
                    for side in ("golden", "mine")
                )
                passes = added(golden, mine) / once
            what = f"{name}, other sums" if other_sums else name
            print(f"--deep, {what}: {passes:.2f} passes", flush=True)
            figure(f"--deep of {given.layers} layers, {what}", passes, "passes", at_most=LIMIT)
            met &= passes < LIMIT
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
