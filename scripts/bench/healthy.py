"""Pairs of healthy programs: how often something is said to be wrong with them.

    python scripts/bench/healthy.py [PATTERN ...] [--details] [--keep DIR] [--write]

Pairs are those of ``tests/support/healthy_runs``; ``a/*`` are programs against themselves,
``i/*`` other data types, ``o/*`` modules against operators, and so on. Each is compared, and each
side of a pair with operators is judged by itself, too. Some need packages that the tests do
without: litgpt, peft, optimum-quanto, diffusers, accelerate and pillow, and, in an environment
named by ``AIT_LLM_PEER_PYTHON``, mindstudio-probe. ``--write`` puts what was found into
``healthy.json``, beside what is there of other pairs, and makes ``docs/healthy-results.md`` of it.
The exit code is 1 where a pair gives an alarm or an exit code other than 0.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from healthy_page import publish, totals  # noqa: E402
from healthy_runs import PAIRS, Outcome, judge  # noqa: E402


def main() -> int:
    """Print the table, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="only pairs such as 'b/*'")
    parser.add_argument("--details", action="store_true", help="say what failed and what decided")
    parser.add_argument("--keep", type=Path, help="where captures stay for the next time")
    parser.add_argument("--write", action="store_true", help="write docs/healthy-results.md")
    given = parser.parse_args()
    chosen = [
        name
        for name in PAIRS
        if not given.patterns or any(fnmatch(name, each) for each in given.patterns)
    ]
    if not chosen:
        parser.error(f"no pair is called {' or '.join(given.patterns)}; they begin with a/ to r/")
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.keep or Path(temporary)).resolve()
        found = _run(chosen, folder, details=given.details, write=given.write)
    print(totals(found))
    return int(any(each.is_alarm or each.code for each in found.values()))


def _run(names: list[str], folder: Path, *, details: bool, write: bool) -> Mapping[str, Outcome]:
    head = f"{'pair':40} exit   PASS  FAIL missing not-comparable   alone     sec accused"
    print(head, flush=True)
    found = {}
    for name in names:
        start = time.perf_counter()
        each = found[name] = judge(PAIRS[name], folder)
        if write:  # each at once: hours of them may be interrupted
            publish({name: each})
        checked = sum(side.checked for side in each.alone)
        bad = sum(side.failed for side in each.alone)
        print(
            f"{name:40} {each.code:4} {each.passed:6} {each.failed:5} {each.missing:7}"
            f" {each.not_comparable:14} {f'{bad}/{checked}':>10} {time.perf_counter() - start:5.1f}"
            f" {', '.join(each.accused[:2])}",
            flush=True,
        )
        if details:
            alone = (line for side in each.alone for line in side.details)
            for line in (*each.details, *alone):
                print(f"    {line[:400]}")
    return found


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # of this process, which is why main leaves it alone
    warnings.simplefilter("ignore")
    sys.exit(main())
