"""Run the vendor's own suites, from a checkout of its public sources, against this project.

Nothing of the checkout is copied: its modules are imported where they lie, with stand-ins for the
device libraries that they import.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vendor.outcome import Outcome, Side
from vendor.page import write_page


@dataclass(frozen=True)
class Suite:
    """One suite of the vendor's.

    Attributes:
        name: in ``--only``, and of the module of this folder that runs it. The module has
            ``run(checkout: Path, operators: Sequence[str], *, largest: int) -> Outcome``; of
            another source than ``atb``, ``cases`` names the checkout with the cases too.
        title: what is held against what.
        about: how to read its numbers; Markdown.
        source: which checkout it is in: ``atb`` or ``msit``.
    """

    name: str
    title: str
    about: str
    source: str = "atb"


SUITES = (
    Suite(
        "goldens",
        "Golden generator against golden operators",
        "Every positive operator case of the csv tables: inputs and golden outputs of the "
        "vendor's generator, against the golden operator on the same inputs. Floats may be two "
        "steps of the coarsest type among inputs and output apart, quantised numbers one. Not "
        "compared is what takes more than 8 GiB or two minutes of a processor.",
    ),
    Suite(
        "msit",
        "MSIT's goldens against golden operators",
        "The goldens of MSIT's `opcheck` on inputs and parameters of the same cases, small ones. "
        "Where they differ from ours and the vendor's own generator does not, they are at fault.",
        "msit",
    ),
    Suite(
        "statuses",
        "Refusals against hostatb",
        "Every operator case of the csv tables that the vendor expects to be refused, through "
        "hostatb: it agrees where the stage and the status are the vendor's.",
    ),
    Suite(
        "accepted",
        "Accepted cases against hostatb",
        "Every operator case of the csv tables that the vendor expects to go through, to hostatb's "
        "Setup, with the shapes of the table, or, if they are refused, with the tensors that the "
        "vendor's generator makes: it agrees where nothing is refused.",
    ),
    Suite(
        "programs",
        "Tests of torch_atb on hostatb",
        "The vendor's own tests of its Python module, as they are, with hostatb in its place and "
        "the CPU in that of the device. Those with several ranks start a process for each.",
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and write the page if asked to; 1 if a disagreement is ours."""
    options = _parser().parse_args(arguments)
    checkouts = {"atb": options.checkout, "msit": options.msit}
    for path in filter(None, checkouts.values()):
        if not path.is_dir():
            print(f"{path} is no folder; name a checkout of the sources", file=sys.stderr)
            return 2
    if options.record:
        print(importlib.import_module("vendor.record").record(options.checkout))
        return 0
    found: dict[str, Outcome] = {}
    for suite in SUITES:
        checkout = checkouts[suite.source]
        if checkout is None or (options.only and suite.name not in options.only):
            continue
        module = importlib.import_module(f"vendor.{suite.name}")
        more = {"cases": options.checkout} if suite.source == "msit" else {}
        found[suite.name] = module.run(checkout, options.operator, **more, largest=options.largest)
        _print(suite, found[suite.name])
    if options.write:
        write_page(SUITES, found, checkouts)
    return int(any(each.side is Side.OURS for one in found.values() for each in one.disagreed))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("scripts/vendor_suites", description=__doc__)
    parser.add_argument("checkout", type=Path, help="of the public ATB sources")
    parser.add_argument("--msit", type=Path, help="a checkout of MSIT that has msit_llm/opcheck")
    parser.add_argument(
        "--only", nargs="+", choices=[suite.name for suite in SUITES], help="run these suites"
    )
    parser.add_argument(
        "--largest", type=int, default=1 << 28, help="elements of the largest case that is run"
    )
    parser.add_argument("--operator", nargs="+", default=(), help="run cases of these operators")
    parser.add_argument(
        "--write", action="store_true", help="put results on record, and docs/vendor-suites.md"
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help="run no suite, but write small cases of the generator to opcheck/selftest/vendor",
    )
    return parser


def _print(suite: Suite, outcome: Outcome) -> None:
    print(f"{suite.title}\n  {'operator':<36} {'agree':>6} {'differ':>6} {'skipped':>7}")
    for name in outcome.operators:
        differ = sum(each.operator == name for each in outcome.disagreed)
        skipped = sum(outcome.skipped.get(name, {}).values())
        print(f"  {name:<36} {outcome.agreed.get(name, 0):>6} {differ:>6} {skipped:>7}")
    for name, reasons in outcome.skipped.items():
        for reason, count in reasons.items():
            print(f"  {name}: {count} skipped, {reason}")
    for each in outcome.disagreed:
        print(f"  {each.operator} {each.case}: {each.what}; {each.side.value} {each.why}".rstrip())
    agreed = sum(outcome.agreed.values())
    compared = agreed + len(outcome.disagreed)
    print(f"  {agreed} of {compared} agree\n")


if __name__ == "__main__":
    sys.exit(main())
