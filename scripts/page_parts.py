"""Parts of pages that programs write between two marks, and the commit that they name."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


def replace_part(pages: Iterable[Path], begin: str, end: str, text: str) -> None:
    """Write a text between its marks in each page.

    Raises:
        SystemExit: a page lacks the marks.
    """
    for page in pages:
        before, mark, rest = page.read_text("utf-8").partition(begin)
        _, stop, after = rest.partition(end)
        if not mark or not stop:
            raise SystemExit(f"{page}: the marks of the table are missing")
        page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", "utf-8")


def commit() -> str:
    """The commit that is checked out, in seven digits."""
    command = ["git", "rev-parse", "--short=7", "HEAD"]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()
