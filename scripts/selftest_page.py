#!/usr/bin/env python3
"""Write the tables of ``ait llm opcheck --self-test`` into docs/opcheck-standards.md.

Usage: scripts/selftest_page.py
"""

from __future__ import annotations

from pathlib import Path

from ait_llm.opcheck.selftest.runner import grade
from ait_llm.opcheck.selftest.table import descriptions, page

PAGE = Path(__file__).parents[1] / "docs" / "opcheck-standards.md"


def between(text: str, name: str, content: str) -> str:
    """The page with what stands between two markers replaced."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    head, rest = text.split(begin)
    _, tail = rest.split(end)
    return f"{head}{begin}\n\n{content}\n\n{end}{tail}"


def main() -> None:
    """Grade and write; the page is read last, as grading takes a while."""
    tables = page(grade())
    text = between(PAGE.read_text(), "kinds", descriptions())
    PAGE.write_text(between(text, "self-test", tables))


if __name__ == "__main__":
    main()
