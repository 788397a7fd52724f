"""The table of statistics of a step, as the run goes."""

from __future__ import annotations

import os
from itertools import groupby
from pathlib import Path

from ait_llm.dump.folders import make_folder
from ait_llm.dump.held_file import HeldFile
from ait_llm.dump.pytorch.statistics import COLUMNS


class StatisticsTable:
    """``{folder}/{step}/statistics.csv``, one row for each tensor."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows: list[tuple[int, str]] = []
        self._step = -1
        self._file: HeldFile | None = None

    def add(self, step: int, row: str) -> None:
        """Have one more row of CSV for the table of ``step``; :meth:`flush` writes it."""
        self._rows.append((step, row))

    def flush(self) -> None:
        """Hand the rows to the operating system, where they survive this process.

        Raises:
            OSError: they cannot be written; they are lost, and later ones may not be.
        """
        rows, self._rows = self._rows, []
        for step, group in groupby(rows, key=lambda each: each[0]):
            text = "".join(f"{row}\r\n" for _, row in group)
            self._table(step).append(text.encode())

    def close(self) -> None:
        """Close the open table."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _table(self, step: int) -> HeldFile:
        if self._file is None or step != self._step:
            self.close()
            make_folder(self._folder / str(step))
            path = self._folder / str(step) / "statistics.csv"
            self._file = HeldFile(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            self._step = step
            if path.stat().st_size == 0:
                self._file.append((",".join(COLUMNS) + "\r\n").encode())
        return self._file
