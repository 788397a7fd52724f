"""docs/hostatb.md lists what there is, no more and no less."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from vendor.hostatb_page import generated, sentences

import ait_llm.hostatb as torch_atb
from ait_llm.hostatb.faults import faults
from ait_llm.hostatb.operators.generic import __name__ as generic
from ait_llm.hostatb.spec import operator_specs

_ROOT = Path(__file__).resolve().parents[2]
_PAGE = _ROOT / "docs" / "hostatb.md"
_SUITES = _ROOT / "scripts" / "vendor" / "suites.json"


def _section(title: str) -> str:
    text = _PAGE.read_text("utf-8").split(f"## {title}\n", 1)[1]
    return text.split("\n## ", 1)[0]


def test_every_fault_is_listed() -> None:
    assert re.findall(r"^\| `(\w+)` \|", _section("Faults"), re.MULTILINE) == faults.names()


def _agreed(suite: str) -> tuple[int, int]:
    """How many of the vendor's cases agree, of how many, as the suites put on record."""
    found = json.loads(_SUITES.read_text("utf-8"))[suite]
    agreed = sum(found["agreed"].values())
    return agreed, agreed + len(found["disagreed"])


@pytest.mark.parametrize("page", ["hostatb.md", "hostatb.zh.md"])
def test_the_sentences_about_status_codes_are_those_of_the_suites_on_record(page: str) -> None:
    assert generated(page) == sentences(json.loads(_SUITES.read_text("utf-8")))[page]
    numbers = [int(number) for number in re.findall(r"\b\d{4}\b", generated(page))]
    assert sorted(numbers) == sorted([*_agreed("statuses"), *_agreed("accepted")])


def test_refusals_are_the_vendors_and_nothing_healthy_is_refused() -> None:
    agreed, cases = _agreed("statuses")
    assert agreed / cases > 0.99
    accepted = json.loads(_SUITES.read_text("utf-8"))["accepted"]
    assert {row["side"] for row in accepted["disagreed"]} == {"vendor"}


def test_every_operator_with_the_librarys_kernels_is_listed() -> None:
    assert torch_atb.Operation is not None
    text = " ".join(_section("Programs written for torch_atb").split())
    listed = re.search(r"kernels are the library's for ([^.]+)\.", text)
    assert listed is not None
    names = [f"{name.strip()}Operation" for name in listed[1].replace(" and ", ", ").split(",")]
    known = [name for name in operator_specs if operator_specs.get(name).plan.__module__ != generic]
    assert names == sorted(known)
