"""What the processes of an injected capture tell the launcher: one file of lines for each process.

The writing side runs in the program, so it needs nothing but the standard library and never fails.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Report:
    """One line.

    Attributes:
        process: host and id of the process that wrote it.
        event: what happened: ``torch`` was imported, ``model`` was found, ``output`` was returned,
            ``skipped`` or ``failed``.
        facts: what else the line says.
    """

    process: str
    event: str
    facts: dict[str, Any]


def report(event: str, **facts: Any) -> None:
    """Append a line for the launcher; without one, or when it has gone, do nothing."""
    folder = os.environ.get("AIT_TORCH_CHANNEL")
    if not folder:
        return
    path = f"{folder}/{os.uname().nodename}_{os.getpid()}.jsonl"
    line = json.dumps({"event": event, **facts}) + "\n"
    with suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


def read_reports(folder: Path) -> Iterator[Report]:
    """Every line of every process; a line that was cut off is left out."""
    for path in sorted(folder.glob("*.jsonl")):
        for text in path.read_text("utf-8", "replace").splitlines():
            try:
                line = json.loads(text)
                yield Report(path.stem, line.pop("event"), line)
            except (ValueError, KeyError, AttributeError):
                continue
