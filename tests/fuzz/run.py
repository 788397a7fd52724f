"""Fuzz readers from the command line; docs/robustness.md shows how.

python tests/fuzz/run.py --target ge_graph_text --iterations 1000000 --seed 7
python tests/fuzz/run.py --iterations 400 --json
python tests/fuzz/run.py --target npy --seed 7 --show 4711 > input.npy
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]

from corpus import kept  # noqa: E402
from engine import add_findings, fuzz, replay  # noqa: E402
from targets import all_targets  # noqa: E402


def main() -> int:
    """0 if all promises were kept."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", action="append", help="name of a reader, all by default")
    parser.add_argument("--iterations", type=int, default=1000, help="damaged files for each")
    parser.add_argument("--first", type=int, default=0, help="number of the first of them")
    parser.add_argument("--seed", type=int, default=0, help="which sequence of damaged files")
    parser.add_argument("--json", action="store_true", help="print one JSON object per target")
    parser.add_argument(
        "--kept", action="store_true", help="read the files of tests/data/fuzz, too"
    )
    parser.add_argument("--list", action="store_true", help="print the names of all readers")
    parser.add_argument("--show", type=int, help="write the input of that number to stdout")
    given = parser.parse_args()
    targets = all_targets()
    if given.list:
        print("\n".join(targets))
        return 0
    unknown = [name for name in given.target or () if name not in targets]
    if unknown:
        parser.error(f"no target {unknown[0]!r}; known: {', '.join(targets)}")
    if given.show is not None:
        sys.stdout.buffer.write(targets[given.target[0]].input(given.seed, given.show))
        return 0
    broken = False
    for name in given.target or targets:
        start = time.monotonic()
        numbers = range(given.first, given.first + given.iterations)
        outcome = fuzz(targets[name], given.seed, numbers)
        if given.kept:
            again = replay(targets[name], kept(name))
            outcome.kept = again.inputs
            add_findings(outcome.findings, again.findings)
        broken |= bool(outcome.findings)
        if given.json:
            print(json.dumps(asdict(outcome)), flush=True)
            continue
        rate = outcome.inputs / max(time.monotonic() - start, 1e-9)
        print(
            f"{name:24} {outcome.inputs:>9} inputs, {outcome.accepted:>8} accepted, "
            f"{rate:8.0f}/s, {len(outcome.findings)} findings",
            flush=True,
        )
        for finding in outcome.findings:
            print(f"  number {finding.number} ({finding.times} times): {finding.kind}")
            print("    " + finding.text.strip().replace("\n", "\n    "), flush=True)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
