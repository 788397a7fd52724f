"""How often the origin of a bug is found: a campaign of bugs in real programs.

    python scripts/bench/origins.py [PATTERN ...] [--seed N] [--count N] [--from N] [--keep DIR]
                                    [--drawn] [--write]

Kinds of bugs are those of ``tests/support/bugs``; ``'kernel: *'`` are faults of operators, and so
on. Each bug is drawn with its kind, program, type and place by the seed and its number, so
``--from 17 --count 1`` looks at number 17 alone. Some programs need litgpt, which the tests do
without. With ``--drawn`` programs are decoders of designs that are drawn, too, and golden is mostly
written in another way. ``--write`` puts what was found into ``origins.json``, beside what is there
of other numbers of the same seed, and makes ``docs/origins-results.md`` of it. The exit code is 1
where a target is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from random import Random

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import torch  # noqa: E402
from bugs import KINDS, draw_bug, hunt  # noqa: E402
from bugs.programs import Pair, draw, draw_decoder  # noqa: E402
from origins_page import Row, is_met, publish, row_of, totals  # noqa: E402
from transformers.utils import logging  # noqa: E402


def main() -> int:
    """Print each bug and what was said about it, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="only kinds such as 'code*'")
    parser.add_argument("--seed", type=int, default=1, help="draws other bugs")
    parser.add_argument("--count", type=int, default=400, help="how many bugs")
    parser.add_argument("--from", type=int, default=0, dest="first", help="number of the first")
    parser.add_argument("--keep", type=Path, help="where golden captures stay for the next time")
    parser.add_argument("--drawn", action="store_true", help="decoders whose design is drawn")
    parser.add_argument("--write", action="store_true", help="write docs/origins-results.md")
    given = parser.parse_args()
    kinds = [
        name
        for name in KINDS
        if not given.patterns or any(fnmatch(name, each) for each in given.patterns)
    ]
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    numbers = range(given.first, given.first + given.count)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        pairs = draw_decoder if given.drawn else draw
        found = list(_run(given.seed, numbers, kinds, folder, pairs))
    for line in totals(found):
        print(line)
    if given.write:
        publish(given.seed, found)
    return int(not is_met(found))


def _run(
    seed: int,
    numbers: range,
    kinds: list[str],
    folder: Path,
    pairs: Callable[[Random], Pair],
) -> Iterator[Row]:
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        started = time.monotonic()
        bug = draw_bug(seed, number, kinds, folder, pairs)
        row = row_of(hunt(bug, folder))
        took = time.monotonic() - started
        print(f"{number:4} {row['kind']} | {row['program']} | {row['outcome']}", end="")
        accused = " ACCUSED" if row["accused"] else ""
        alone = f", {row['innocent']} innocent alone" if row["innocent"] else ""
        print(f"{accused}{alone} ({took:.1f} s)", flush=True)
        if row["outcome"] != "right first time":
            print(
                f"       truth: {', '.join(row['truth'])}\n       said: {row['said']}", flush=True
            )
        yield row


if __name__ == "__main__":
    sys.exit(main())
