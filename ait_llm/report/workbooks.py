"""Workbooks that are streamed to disk, sheet by sheet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ait_llm.core.optional import import_optional
from ait_llm.report.files import replacing


@contextlib.contextmanager
def workbook(path: Path) -> Iterator[Any]:
    """A workbook of openpyxl whose file appears when all sheets are in it.

    Raises:
        MissingDependencyError: openpyxl is not installed.
        UsageError: the file cannot be written.
    """
    openpyxl = import_optional("openpyxl", "writing xlsx reports", "xlsx")
    book = openpyxl.Workbook(write_only=True)
    try:
        yield book
        with replacing(path, binary=True) as file:
            book.save(file)
    except BaseException:
        for sheet in book.worksheets:
            # openpyxl goes on writing where Python takes a sheet away that nobody closed
            with contextlib.suppress(Exception):
                sheet.close()
            with contextlib.suppress(Exception):
                sheet._writer.cleanup()  # the file that its rows are in meanwhile
        raise
