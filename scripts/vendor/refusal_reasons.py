"""Refusals that the vendor's tables expect and its library, as its sources have it, does not make.

As with goldens, nothing is explained by its name: each reason is looked for in the checkout.
"""

from __future__ import annotations

import re
from pathlib import Path

from vendor.cases import OK, Case
from vendor.generator import Generator
from vendor.outcome import Side
from vendor.stages import CHIP, End, expected

_SOURCES = Path("src/ops/ops_infer")
# A function that answers yes or no, up to its end at the margin.
_PREDICATE = re.compile(r"^bool \w+\(.*?^}", re.DOTALL | re.MULTILINE)
_STATUS_AS_YES = re.compile(r"return (?:atb::)?ERROR_\w+;")
_YES = (
    "its look at the parameters answers a status where yes or no is asked, which is yes: its "
    "library takes them"
)
ON_THE_HOST = (
    "it passes none of the numbers that the library reads on the host; all tensors of hostatb are "
    "there"
)


def explain(case: Case, got: End, checkout: Path) -> tuple[Side, str]:
    """Who is to blame that a refusal is not the expected one, and what shows it."""
    if expected(case).stage == "C" and got.where == ("C", OK) and _answers_yes(case, checkout):
        return Side.VENDOR, _YES
    return Side.OURS, ""


def is_without_host(case: Case, got: End, generator: Generator) -> bool:
    """Whether Setup should only be refused because numbers are not passed on the host."""
    wanted = expected(case)
    if wanted.where != ("S", "ERROR_INVALID_PARAM") or got.where != ("S", OK):
        return False
    return not generator.host(case, CHIP)


def _answers_yes(case: Case, checkout: Path) -> bool:
    """Whether the library's look at the parameters returns a status from a bool function."""
    folder = case.operator.removesuffix("Operation").lower()
    for path in (checkout / _SOURCES).glob("*/*_operation.cpp"):
        if path.parent.name.replace("_", "") != folder:
            continue
        text = path.read_text("utf-8", errors="replace")
        return any(_STATUS_AS_YES.search(found) for found in _PREDICATE.findall(text))
    return False
