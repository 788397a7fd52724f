"""Command lines hold keys and passwords; ledgers hold them only where somebody asked for it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ait_llm.dump.inject.settings import VARIABLE, TorchSettings, injection_environment
from ait_llm.dump.pytorch.ledger import ARGUMENTS_VARIABLE, Ledger

SECRET = "sk-not-for-others"
PRODUCERS = ("torch", "api", "ptdbg", "fx", "inductor", "onnx")


def header(folder: Path, *words: str, producer: str = "torch") -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", list(words))
        ledger = Ledger(folder / "x.jsonl", "cpu", {}, producer=producer)
    ledger.seal("exit")
    line = (folder / "x.jsonl").read_text(encoding="utf-8").splitlines()[0]
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.mark.parametrize("producer", PRODUCERS)
def test_a_ledger_does_not_hold_the_command_line(producer: str, tmp_path: Path) -> None:
    found = header(tmp_path, "run.py", "--api-key", SECRET, producer=producer)
    assert SECRET not in json.dumps(found)
    assert "arguments" not in found
    assert found["program"] == "run.py"


def test_a_ledger_holds_the_command_line_where_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ARGUMENTS_VARIABLE, "1")
    assert header(tmp_path, "run.py", "--seed", "3")["arguments"] == ["run.py", "--seed", "3"]


def test_the_mark_of_a_command_line_tells_programs_apart_and_no_passwords(tmp_path: Path) -> None:
    marks = [header(tmp_path, "run.py", word)["arguments_mark"] for word in ("a", "b", "a")]
    assert marks[0] == marks[2] != marks[1]
    assert len(marks[0]) == 4  # 16 bits fit so many passwords that trying them shows none


def test_the_option_reaches_the_program_and_nothing_else_does(tmp_path: Path) -> None:
    asked = TorchSettings(tmp_path, record_arguments=True)
    found = injection_environment(asked, {}, tmp_path)
    assert found[ARGUMENTS_VARIABLE] == "1"
    assert TorchSettings.from_json(found[VARIABLE]) == asked
    assert ARGUMENTS_VARIABLE not in injection_environment(TorchSettings(tmp_path), {}, tmp_path)
