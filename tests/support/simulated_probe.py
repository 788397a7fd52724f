"""Writes what the probe would write, so that the launcher is tested without native code.

A test runs a program that calls this module; it reads the same environment as the probe.
"""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from pathlib import Path
from typing import Any

VARIABLES = ("ATB_DUMP_TYPE", "AIT_PROBE_START_TIME")


class Capture:
    """The files of one traced process."""

    def __init__(self, device: str = "0", pid: int | None = None, host: str | None = None) -> None:
        self.root = Path(os.environ["ATB_OUTPUT_DIR"]) / "ait_dump"
        self.device, self.pid = device, pid or os.getpid()
        self.host = host or platform.node()
        self.ledger = self.root / "ledger" / f"{device}_{self.pid}.jsonl"
        self.ledger.parent.mkdir(parents=True, exist_ok=True)
        self.states: Counter[str] = Counter()
        self.append(
            kind="header",
            schema=1,
            producer="atb_probe",
            device=device,
            pid=self.pid,
            host=self.host,
            options={name: os.environ[name] for name in VARIABLES},
            environment={},
        )

    def append(self, **line: Any) -> None:
        with self.ledger.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def op(self, op: str = "0", step: int = 0, state: str = "saved", **more: Any) -> None:
        self.states[state] += 1
        written = {"tensors": 3, "bytes": 24} if state == "saved" else {}
        line = {
            "type": "Linear",
            "phase": "after",
            "path": f"{self.device}_{self.pid}/{step}/{op}_Linear",
            **written,
        }
        self.append(kind="op", op=op, step=step, state=state, **{**line, **more})

    def seal(self, end: str = "exit", **rows: int) -> None:
        total = sum(self.states.values())
        counts = {name: self.states[name] for name in ("saved", "failed", "dropped")}
        self.append(kind="seal", end=end, operations=total, files=4 * total, rows=rows, **counts)

    def file(self, place: str, text: str = "{}\n") -> Path:
        path = self.root / place.format(pid=self.pid)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def topology(self, level: str, name: str, text: str = "{}\n") -> Path:
        path = self.file(f"{level}/{self.pid}/{name}.json", text)
        if hand_over := os.environ.get("ATB_DUMP_SUB_PROC_INFO_SAVE_PATH"):
            with (Path(hand_over) / "subprocess_info.txt").open("a") as listing:
                listing.write(f"{path}\n")
        return path

    def profiling(self, count: int, text: str, with_pid: bool = False) -> Path:
        start = os.environ["AIT_PROBE_START_TIME"] + (f"_{self.pid}" if with_pid else "")
        return self.file(f"cpu_profiling/{start}/operation_statistic_{count}.txt", text)
