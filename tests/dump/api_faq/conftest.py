"""One capture at a time: each test ends its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from ait_llm import open_dump, ptdbg
from ait_llm.dump.api import PrecisionDebugger
from ait_llm.dumps.operations import Operation

Captured = Callable[..., dict[str, Operation]]


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(variable, raising=False)
    yield
    PrecisionDebugger._reset()
    ptdbg.unregister_hook()


@pytest.fixture
def captured(tmp_path: Path) -> Captured:
    """Runs a program under ``PrecisionDebugger``; its records by name."""

    def run(
        program: Callable[[], Any], model: nn.Module | None = None, **config: Any
    ) -> dict[str, Operation]:
        path = tmp_path / "dump"
        debugger = PrecisionDebugger(write_config(tmp_path, {"dump_path": str(path), **config}))
        debugger.start(model)
        program()
        debugger.stop()
        debugger.step()
        return {call.name: call for call in open_dump(path).operations()}

    return run


def write_config(folder: Path, content: dict[str, Any]) -> str:
    import json

    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return str(path)
