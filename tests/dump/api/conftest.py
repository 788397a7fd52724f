"""One debugger for each test, and the records that it leaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from api_captures import Captured, Debug

from ait_llm.dump.api import PrecisionDebugger


@pytest.fixture
def dump_path(tmp_path: Path) -> Path:
    return tmp_path / "dump"


@pytest.fixture
def debug(tmp_path: Path, dump_path: Path) -> Iterator[Debug]:
    """Makes the debugger for a configuration; keys of the task's section are ``section={...}``."""

    def make(
        task: str = "statistics",
        level: str = "L1",
        section: dict[str, Any] | None = None,
        **more: Any,
    ) -> type[PrecisionDebugger]:
        config = {
            "task": task,
            "dump_path": str(dump_path),
            "level": level,
            "risk_level": "ALL",
            task: section or {},
            **more,
        }
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        PrecisionDebugger(config_path=str(path))
        return PrecisionDebugger

    PrecisionDebugger._reset()
    yield make
    PrecisionDebugger._reset()


@pytest.fixture
def captured(dump_path: Path) -> Callable[..., Captured]:
    """Reads what was captured; the files are complete after ``stop``."""

    def read(step: int = 0) -> Captured:
        return Captured(dump_path, step)

    return read
