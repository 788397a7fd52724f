"""Result tables on disk: csv, and xlsx with colours, both written row by row."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from ait_llm.compare.api.csv_lines import CsvLines
from ait_llm.compare.api.statistics_rules import Cell
from ait_llm.core.optional import import_optional
from ait_llm.naming import escaped
from ait_llm.report.files import replacing
from ait_llm.report.workbooks import workbook

MAX_ROWS = 1_048_500  # of a sheet, a little below what its format allows
_MAX_TEXT = 32_767
_FILLS = {"red": "FFFF0000", "yellow": "FFFFFF00"}


class TableWriter(Protocol):
    """Takes the rows of a table one by one."""

    def add(self, cells: Sequence[Cell], colour: str = "") -> None:
        """Append a row; ``red`` or ``yellow`` marks it where the format has colours."""
        ...


@contextlib.contextmanager
def csv_table(path: Path, columns: Sequence[str]) -> Iterator[TableWriter]:
    """A csv file that appears when it is complete.

    Raises:
        UsageError: it cannot be written.
    """
    with replacing(path) as file:
        table = _Csv(file)
        table.add(columns)
        yield table


@contextlib.contextmanager
def xlsx_table(
    path: Path, columns: Sequence[str], *, title: str = "Sheet", rows_per_sheet: int = MAX_ROWS
) -> Iterator[TableWriter]:
    """A workbook that appears when it is complete; a full sheet is followed by another.

    Raises:
        MissingDependencyError: openpyxl is not installed.
        UsageError: it cannot be written.
    """
    with workbook(path) as book:
        yield Sheets(book, title, columns, rows_per_sheet)


class Sheets:
    """One table on as many sheets as it needs.

    Args:
        book: the workbook.
        title: of the first sheet; further ones get a number.
        columns: the header of each.
        rows_per_sheet: rows of one sheet, its header included.
    """

    def __init__(
        self, book: Any, title: str, columns: Sequence[str], rows_per_sheet: int = MAX_ROWS
    ) -> None:
        styles = import_optional("openpyxl.styles", "writing xlsx tables", "xlsx")
        cells = import_optional("openpyxl.cell", "writing xlsx tables", "xlsx")
        self._new_cell = cells.WriteOnlyCell
        self._fills = {
            name: styles.PatternFill("solid", start_color=code, end_color=code)
            for name, code in _FILLS.items()
        }
        self._book = book
        self._title = title
        self._columns = columns
        self._limit = rows_per_sheet
        self._number = 1
        self._sheet = self._begin(title)
        self._used = 1

    def add(self, cells: Sequence[Cell], colour: str = "") -> None:
        """Append a row."""
        if self._used >= self._limit:
            self._number += 1
            self._sheet = self._begin(f"{self._title} {self._number}")
            self._used = 1
        row = [self._cell(cell) for cell in cells]
        if colour:
            row = [self._filled(cell, colour) for cell in row]
        self._sheet.append(row)
        self._used += 1

    def _begin(self, title: str) -> Any:
        """A new sheet with its header."""
        sheet = self._book.create_sheet(title[:31])
        sheet.freeze_panes = "A2"
        sheet.append(list(self._columns))
        return sheet

    def _cell(self, value: Cell) -> Any:
        if isinstance(value, bool | int | float) and value == value and abs(value) < 1e15:
            return value
        text = escaped(str(value), "\n\t")
        text = text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
        if not text.startswith(("=", "#")):
            return text
        cell = self._new_cell(self._sheet, value=text)
        cell.data_type = "s"  # it would become a formula or an error
        return cell

    def _filled(self, value: Any, colour: str) -> Any:
        cell = value if hasattr(value, "data_type") else self._new_cell(self._sheet, value=value)
        cell.fill = self._fills[colour]
        return cell


class _Csv:
    def __init__(self, file: IO[str]) -> None:
        self._write = file.write
        self._line = CsvLines().line

    def add(self, cells: Sequence[Cell], colour: str = "") -> None:
        """Append a row."""
        del colour
        self._write(self._line(cells))
