"""How many values of two programs the matcher finds, and how many it gets wrong.

    python scripts/bench/matching.py [PATTERN ...] [--details] [--keep DIR] [--write]

Pairs are those of ``tests/support/matching_truth``; ``a/*`` are programs against themselves,
``d/*`` ``transformers`` against litgpt, and so on. Some need packages that the tests do without:
litgpt, peft, optimum-quanto. ``--write`` puts what was found into ``matching.json``, beside what is
there of other pairs, and makes ``docs/matching-results.md`` of it. The exit code is 1 where a pair
is wrong or its recall is below its floor.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from matching_page import publish  # noqa: E402
from matching_truth import PAIRS, Score, score  # noqa: E402


def main() -> int:
    """Print the table, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="only pairs such as 'b/*'")
    parser.add_argument("--details", action="store_true", help="name what is wrong and missed")
    parser.add_argument("--keep", type=Path, help="where captures stay for the next time")
    parser.add_argument("--write", action="store_true", help="write docs/matching-results.md")
    given = parser.parse_args()
    chosen = [
        name
        for name in PAIRS
        if not given.patterns or any(fnmatch(name, each) for each in given.patterns)
    ]
    with tempfile.TemporaryDirectory() as temporary:
        found = _run(chosen, given.keep or Path(temporary), details=given.details)
    if given.write:
        publish(found)
    return int(any(not PAIRS[name].is_met(each) for name, each in found.items()))


def _run(names: list[str], folder: Path, *, details: bool) -> Mapping[str, Score]:
    print(f"{'pair':34} {'both':>5} {'right':>5} {'wrong':>5} {'miss':>5} {'recall':>7} {'sec':>5}")
    found = {}
    for name in names:
        each = found[name] = score(name, folder)
        print(
            f"{name:34} {each.total:5} {each.right:5} {each.wrong:5} {each.missed:5}"
            f" {each.recall:7.4f} {each.seconds:5.2f}",
            flush=True,
        )
        if details:
            print(*(f"    {line}" for line in each.details), sep="\n")
    return found


if __name__ == "__main__":
    sys.exit(main())
