"""What it costs to build two programs and to match them, by the number of operations.

    python scripts/bench/match_programs.py [--operations 100000] [--pairs NAME ...]

Two passes of a decoder are made in memory as captures of it would be read, and matched as
``compare`` does, by a process of their own. Printed are processor time, what the memory of the
process rises by, the peak of what Python itself allocates (in another process, for counting costs
time), and the growth from half as many operations.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

from decoder_passes import PAIRS, passes
from figures import figure

from ait_llm.match.choose import match_runs
from ait_llm.match.model import Match, MatchOptions

LIMIT_SECONDS, LIMIT_MB, LIMIT_GROWTH = 30, 400, 2.2


def _resident(field: str) -> float:
    """Memory of this process in MB: ``VmRSS`` now, ``VmHWM`` the most since it was reset."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * 1024 / 1e6


def measured(pair: str, operations: int, *, traced: bool) -> dict[str, Any]:
    """Match once, and say what it cost."""
    match_runs(*passes(pair, 1), MatchOptions())  # imports are no part of it
    golden, mine = passes(pair, operations)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _resident("VmRSS")
    if traced:
        tracemalloc.start()
    start = time.process_time()
    found = match_runs(golden, mine, MatchOptions())
    seconds = time.process_time() - start
    peak = tracemalloc.get_traced_memory()[1] / 1e6 if traced else 0.0
    return {
        "operations": max(len(golden.operations), len(mine.operations)),
        "pairs": sum(isinstance(each, Match) for each in found),
        "seconds": seconds,
        "rise": _resident("VmHWM") - before,
        "traced": peak,
    }


def _in_a_process(pair: str, operations: int, *words: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", pair, "--operations", str(operations), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _report(pair: str, operations: int) -> bool:
    """Print a row for half as many operations and one for all; True if all limits are kept."""
    half, whole = (_in_a_process(pair, number) for number in (operations // 2, operations))
    traced = _in_a_process(pair, operations, "--traced")["traced"]
    growth = whole["seconds"] / half["seconds"]
    print(
        f"| {pair} | {whole['operations']} | {whole['pairs']} | {half['seconds']:.1f}, "
        f"{whole['seconds']:.1f} | {growth:.2f} | {whole['rise']:.0f} | {traced:.0f} |",
        flush=True,
    )
    what = f"{pair}: {whole['operations']} operations on the larger side"
    figure(f"{what}, processor time", whole["seconds"], "s", at_most=LIMIT_SECONDS)
    note = f"{traced:.0f} MB of them counted by Python"
    figure(f"{what}, rise of memory", whole["rise"], "MB", at_most=LIMIT_MB, note=note)
    unit = "times more for twice as many"
    figure(f"{what}, growth", growth, unit, at_most=LIMIT_GROWTH)
    return (
        whole["seconds"] <= LIMIT_SECONDS
        and max(whole["rise"], traced) <= LIMIT_MB
        and growth <= LIMIT_GROWTH
    )


def main() -> int:
    """Print a row for each pair; 1 if a limit is not kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--pairs", nargs="+", choices=PAIRS, default=list(PAIRS), metavar="NAME")
    parser.add_argument("--one", choices=PAIRS, help=argparse.SUPPRESS)
    parser.add_argument("--traced", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        print(json.dumps(measured(given.one, given.operations, traced=given.traced)))
        return 0
    limits = f"{LIMIT_SECONDS} s, {LIMIT_MB} MB, growth {LIMIT_GROWTH}"
    print(f"At most {limits}; MB of memory are the rise of the process, then what Python counts.\n")
    print("| pair | operations | matches | CPU s of half, of all | growth | MB | MB counted |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    missed = [pair for pair in given.pairs if not _report(pair, given.operations)]
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
