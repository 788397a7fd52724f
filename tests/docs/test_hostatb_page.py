"""docs/hostatb.md lists what there is, no more and no less."""

from __future__ import annotations

import re
from pathlib import Path

import ait_llm.hostatb as torch_atb
from ait_llm.hostatb.faults import faults
from ait_llm.hostatb.operators.generic import __name__ as generic
from ait_llm.hostatb.spec import operator_specs

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "hostatb.md"


def _section(title: str) -> str:
    text = _PAGE.read_text("utf-8").split(f"## {title}\n", 1)[1]
    return text.split("\n## ", 1)[0]


def test_every_fault_is_listed() -> None:
    assert re.findall(r"^\| `(\w+)` \|", _section("Faults"), re.MULTILINE) == faults.names()


def test_every_operator_with_the_librarys_kernels_is_listed() -> None:
    assert torch_atb.Operation is not None
    text = " ".join(_section("Programs written for torch_atb").split())
    listed = re.search(r"kernels are the library's for ([^.]+)\.", text)
    assert listed is not None
    names = [f"{name.strip()}Operation" for name in listed[1].replace(" and ", ", ").split(",")]
    known = [name for name in operator_specs if operator_specs.get(name).plan.__module__ != generic]
    assert names == sorted(known)
