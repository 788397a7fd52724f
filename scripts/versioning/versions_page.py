"""What was run with which versions, as a page of Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from checks import CHECKS

_HEAD = """# Versions

`scripts/versions` builds the wheel, installs it into an environment for each row, and runs the
commands below from an empty folder; it also wrote this page, do not edit it. Releases of PyTorch
are those of the package index; without a GPU they run on the processor.

| Python | PyTorch | NumPy | result |
| --- | --- | --- | --- |
"""
_COMMANDS = """
## What runs in each

| | command | ends with |
| --- | --- | --- |
"""


def as_page(rows: Sequence[Mapping[str, Any]]) -> str:
    """The whole page."""
    lines = [_HEAD.rstrip("\n")]
    for row in rows:
        cells = (row["python"], row["torch"], row["numpy"], _result(row))
        lines.append(f"| {' | '.join(cells)} |")
    lines.append(_COMMANDS.rstrip("\n"))
    for check in CHECKS:
        words = " ".join(f'"{word}"' if " " in word else word for word in check.words)
        named = f", and names {check.origin}" if check.origin else ""
        lines.append(f"| {check.name} | `ait llm {words}` | {check.code}{named} |")
    return "\n".join(lines) + "\n"


def _result(row: Mapping[str, Any]) -> str:
    if row["missing"]:
        return f"not run: {row['missing']}"
    if not row["failed"]:
        return f"all {row['passed']} pass"
    return "; ".join((f"{row['passed']} pass", *row["failed"]))
