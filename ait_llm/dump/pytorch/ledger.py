"""The ledger of a PyTorch capture: what was saved, what was not, and whether the run finished.

The format is that of the probe (``docs/formats.md``): a header, one line for each captured call,
and a seal.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ait_llm import __version__
from ait_llm.dump.pytorch.writer import make_folder

_STATES = ("saved", "described", "empty", "failed", "dropped")


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Ledger:
    """Appends to one ledger file; safe to use from several threads.

    Args:
        path: the file; an earlier one is replaced.
        device: device text of the process, such as ``cpu`` or ``npu0``.
        options: settings of the capture, for the header.
    """

    def __init__(self, path: Path, device: str, options: Mapping[str, Any]) -> None:
        make_folder(path.parent)
        self._file = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o640
        )
        self._states: Counter[str] = Counter()
        self._tensors = 0
        self._bytes = 0
        self._lock = threading.Lock()
        self._write(
            {
                "kind": "header",
                "schema": 1,
                "producer": "torch",
                "version": __version__,
                "device": device,
                "pid": os.getpid(),
                "host": platform.node(),
                "time": _now(),
                "executable": sys.executable,
                "arguments": sys.argv,
                "options": dict(options),
                "environment": {
                    "python": platform.python_version(),
                    "torch": str(torch.__version__),
                    **{
                        name: os.environ[name]
                        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")
                        if name in os.environ
                    },
                },
            }
        )

    def operation(self, line: Mapping[str, Any]) -> None:
        """Append the line of one captured call."""
        with self._lock:
            self._states[line["state"]] += 1
            self._tensors += line.get("tensors", 0)
            self._bytes += line.get("bytes", 0)
        self._write({"kind": "op", **line})

    def note(self, text: str, **facts: Any) -> None:
        """Append a remark that concerns the whole capture."""
        self._write({"kind": "note", "text": text, **facts})

    def seal(self, end: str) -> None:
        """Append the last line and close the file."""
        self._write(
            {
                "kind": "seal",
                "time": _now(),
                "end": end,
                "operations": sum(self._states.values()),
                **{state: self._states[state] for state in _STATES},
                "tensors": self._tensors,
                "files": self._tensors,
                "bytes": self._bytes,
            }
        )
        os.close(self._file)

    def _write(self, line: Mapping[str, Any]) -> None:
        data = (json.dumps(line, separators=(",", ":")) + "\n").encode()
        with self._lock:
            os.write(self._file, data)
