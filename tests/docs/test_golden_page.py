"""docs/golden-operators.md: its example runs, its table names the operators it is about."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from ait_llm.opcheck.golden import golden_ops

_TEXT = (Path(__file__).resolve().parents[2] / "docs" / "golden-operators.md").read_text("utf-8")


def test_the_example_prints_what_the_page_shows() -> None:
    code, shown = re.findall(r"```(?:python)?\n(.*?)```", _TEXT, re.DOTALL)[:2]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue() == shown


def test_every_collective_operator_is_named() -> None:
    row = next(line for line in _TEXT.splitlines() if line.startswith("| AllGather"))
    named = {f"{name.strip()}Operation" for name in row.split("|")[1].split(",")}
    known = {name for name in golden_ops if golden_ops.get(name).compute_ranks is not None}
    assert named == known
