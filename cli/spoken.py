"""Results in the language of the messages, in the columns that they have in English."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ait_llm.cli.localised import cells, wrapped
from ait_llm.language import current, translate, translated_label

_WIDTH = 100
_FURTHER = 2  # columns by which a line that goes on stands further in
_ROW = re.compile(r"  (\S(?:.*?\S)?)?( {2,})(?=\S)")


@dataclass
class _Row:
    """A line with its label, or without; what goes on in further lines is joined."""

    label: str
    column: int
    text: str
    is_joined: bool = False


def spoken(text: str, width: int = 0) -> str:
    """The lines of a result; English ones as they are.

    A sentence that goes on in the next line is joined before it is translated, and wrapped again.

    Args:
        text: a title, and lines of a label and what it says.
        width: columns at which sentences were wrapped without further indentation; 0 if they
            stand two columns further in where they go on.
    """
    if current() == "en":
        return text
    return "\n".join(_said(row, width or _WIDTH) for row in _rows(text.split("\n"), width))


def _rows(lines: list[str], width: int) -> Iterator[_Row]:
    row: _Row | None = None
    column = length = 0
    for line in lines:
        indent = len(line) - len(line.lstrip(" "))
        word = line.split(" ", indent + 1)[indent] if line.strip() else ""
        full = length + 1 + len(word) > width
        length = len(line)
        goes_on = indent == (column if width else column + _FURTHER) and (full or not width)
        if row is not None and column and goes_on and row.text[-1:] not in ("", "\\"):
            row.text += f" {line.strip()}"
            row.is_joined = True
            continue
        if row is not None:
            yield row
        found = _ROW.match(line) if indent == 2 else None
        if found is not None:
            column = found.end()
            row = _Row(found[1] or "", column, line[column:])
        elif column and indent == column:
            row = _Row("", column, line[column:])
        else:
            row = _Row("", 0, line)
    if row is not None:
        yield row


def _said(row: _Row, width: int) -> str:
    text = translate(row.text)
    if not row.column:
        return text
    first = f"  {translated_label(row.label)}"
    first += " " * max(_FURTHER, row.column - cells(first))
    if not row.label:
        first = " " * row.column
    if not row.is_joined:
        return first + text
    return wrapped(text, width, first, " " * (row.column + _FURTHER))
