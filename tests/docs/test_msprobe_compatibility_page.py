"""docs/msprobe-compatibility.md names tests, and these exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]
_PAGE = (_TESTS.parent / "docs" / "msprobe-compatibility.md").read_text("utf-8")


def test_every_test_that_it_names_exists() -> None:
    names = set(re.findall(r"`(test_\w+)`", _PAGE))
    there = {
        node.name
        for folder in ("compare/api", "cli", "docs", "dump/inject", "e2e")
        for path in (_TESTS / folder).glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    assert len(names) > 20
    assert names <= there


def test_every_difference_is_held_by_a_test() -> None:
    table = _PAGE.partition("## Where both are wrong")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 12
    assert all("`test_" in row for row in rows)
