"""The page of what ``ait llm invariant`` says of healthy programs and faults."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from invariances_page import Row

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"


@pytest.fixture(autouse=True)
def _bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


@pytest.fixture
def held() -> Row:
    from invariances_page import Row

    return Row("llama/float32/call", "batch", "held", equal=True)


@pytest.fixture
def found() -> Row:
    from invariances_page import Row

    return Row("a mask", "padding-left", "broken", "root.attn.softmax", wanted="root.attn")


def test_an_accused_healthy_program_is_counted_and_shown(held: Row) -> None:
    from invariances_page import Row, page

    text = page([held, Row("gpt2/float32/call", "batch", "broken")], "abc")
    assert "2 programs of 2 families, 1 changes, 1 accused" in text
    assert "| llama/float32/call | equal |" in text
    assert "| gpt2/float32/call | **broken** |" in text


def test_a_fault_is_named_where_the_operator_lies_in_its_module(held: Row, found: Row) -> None:
    from invariances_page import Row, page

    other = Row("a norm", "batch", "broken", "root.mlp", wanted="root.norm")
    missed = Row("a state", "after", "held", wanted="root.mlp")
    text = page([held, found, other, missed], "abc")
    assert "2 of 3 faults found, 1 named" in text
    assert "| a mask | padding-left | broken | yes |" in text
    assert "| a norm | batch | broken | no |" in text


def test_of_rows_that_were_made_again_the_last_counts(
    tmp_path: Path, held: Row, found: Row
) -> None:
    from invariances_page import Row, read

    path = tmp_path / "rows.jsonl"
    again = Row(held.program, held.change, "undecided")
    path.write_text(held.record() + found.record() + again.record(), encoding="utf-8")
    assert read(path) == [again, found]
