"""A capture of ptdbg is of the whole process: every test ends its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ait_llm import ptdbg


@pytest.fixture(autouse=True)
def unhooked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(variable, raising=False)
    yield
    ptdbg.unregister_hook()
