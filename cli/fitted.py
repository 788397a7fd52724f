"""Lines of a result in the columns of a terminal; files and pipes get them as they are."""

from __future__ import annotations

import re
import shutil
from typing import TextIO

from ait_llm.cli.localised import cells

NARROWEST, WIDEST = 40, 200
_LABEL = re.compile(r" *(?:\S+(?: \S+)* {2,})?")
_COMMAND = re.compile(
    r"^( +next +|ait (?!llm [\w-]+: ))"
)  # to be copied to a shell, so it stays one line


def columns_of(stream: TextIO, otherwise: int) -> int:
    """The columns of the terminal behind a stream, within reason; ``otherwise`` of a file."""
    if not stream.isatty():
        return otherwise
    return min(max(shutil.get_terminal_size().columns, NARROWEST), WIDEST)


def fitted(text: str, stream: TextIO) -> str:
    """The text with lines that go on below their value where the terminal ends.

    Words, such as paths, and commands stay whole; lines that fit are not touched.
    """
    if not stream.isatty():
        return text
    width = columns_of(stream, 0)
    return "\n".join(piece for line in text.split("\n") for piece in fit_line(line, width))


def fit_line(line: str, width: int) -> list[str]:
    """A line in pieces of at most ``width`` columns, as far as its words allow."""
    pieces: list[str] = []
    if _COMMAND.match(line):
        return [line]
    label = _LABEL.match(line)
    assert label is not None  # it matches the empty text
    hang = min(cells(label.group()), width // 2)
    while cells(line) > width and (cut := _cut(line, width, hang)) is not None:
        pieces.append(line[:cut].rstrip())
        line = " " * hang + line[cut:].lstrip()
    return [*pieces, line]


def _cut(line: str, width: int, hang: int) -> int | None:
    """Where the rest of a line begins; None where it is one word."""
    best, used = None, 0
    for place, letter in enumerate(line):
        used += cells(letter)
        if best is not None and used > width:
            return best
        may_end = used > hang and line[:place].strip() and (letter == " " or cells(letter) > 1)
        if may_end and (used <= width or best is None):
            best = place + 1
    return best if best is not None and best < len(line) else None
