"""Runs the tests of a module of the vendor's; ``program.py MODULE FILE`` writes how each ended."""

from __future__ import annotations

import json
import sys
import unittest
from pathlib import Path
from typing import Any


class _Record(unittest.TestResult):
    """Of every test its name, and a line of its failure."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[tuple[str, str]] = []

    def addSuccess(self, test: unittest.TestCase) -> None:
        """Of unittest."""
        self.ended.append((test.id(), ""))

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        """Of unittest."""
        super().addError(test, err)
        lines = str(err[1]).strip().splitlines() or [""]
        other = any(line.startswith("Traceback") for line in lines)  # of another process
        self.ended.append((test.id(), f"{err[0].__name__}: {lines[-1 if other else 0]}"))

    addFailure = addError


def main(module: str, record: Path) -> None:
    """Run and write."""
    result = _Record()
    unittest.defaultTestLoader.loadTestsFromName(module).run(result)
    record.write_text(json.dumps(result.ended), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
