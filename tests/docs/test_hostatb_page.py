"""docs/hostatb.md lists what there is, no more and no less."""

from __future__ import annotations

import re
from pathlib import Path

import ait_llm.hostatb as torch_atb
from ait_llm.hostatb.faults import faults
from ait_llm.hostatb.spec import operator_specs

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "hostatb.md"


def _section(title: str) -> str:
    text = _PAGE.read_text("utf-8").split(f"## {title}\n", 1)[1]
    return text.split("\n## ", 1)[0]


def test_every_fault_is_listed() -> None:
    assert re.findall(r"^\| `(\w+)` \|", _section("Faults"), re.MULTILINE) == faults.names()


def test_every_executable_operator_is_listed() -> None:
    assert torch_atb.Operation is not None
    listed = re.search(r"can be executed: ([^.]+)\.", _section("Programs written for torch_atb"))
    assert listed is not None
    names = [f"{name.strip()}Operation" for name in listed[1].split(",")]
    assert names == operator_specs.names()
