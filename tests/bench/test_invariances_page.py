"""The page of what ``ait llm invariant`` says of healthy programs and faults."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts" / "bench"))

from invariances_page import Row, page, read

HELD = Row("llama/float32/call", "batch", "held", equal=True)
FOUND = Row("a mask", "padding-left", "broken", "root.attn.softmax", wanted="root.attn")


def test_an_accused_healthy_program_is_counted_and_shown() -> None:
    text = page([HELD, Row("gpt2/float32/call", "batch", "broken")], "abc")
    assert "2 programs of 2 families, 1 changes, 1 accused" in text
    assert "| llama/float32/call | equal |" in text
    assert "| gpt2/float32/call | **broken** |" in text


def test_a_fault_is_named_where_the_operator_lies_in_its_module() -> None:
    other = Row("a norm", "batch", "broken", "root.mlp", wanted="root.norm")
    missed = Row("a state", "after", "held", wanted="root.mlp")
    text = page([HELD, FOUND, other, missed], "abc")
    assert "2 of 3 faults found, 1 named" in text
    assert "| a mask | padding-left | broken | yes |" in text
    assert "| a norm | batch | broken | no |" in text


def test_of_rows_that_were_made_again_the_last_counts(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    again = Row(HELD.program, HELD.change, "undecided")
    path.write_text(HELD.record() + FOUND.record() + again.record(), encoding="utf-8")
    assert read(path) == [again, FOUND]
