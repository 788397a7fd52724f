"""Times in the names of result tables."""

from __future__ import annotations

import time
from pathlib import Path

from ait_llm.report.writing import STAMP_FORMAT


def free_table_stamp(folder: Path) -> str:
    """The time now, or the next second that no table in the folder has yet."""
    now = time.time()
    while True:
        stamp = time.strftime(STAMP_FORMAT, time.localtime(now))
        if not any(folder.glob(f"*_{stamp}.*")):
            return stamp
        now += 1
