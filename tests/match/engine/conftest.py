"""Small dumps of three nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from compiled_dumps import CompiledRun


@pytest.fixture
def golden(tmp_path: Path) -> CompiledRun:
    return CompiledRun(tmp_path / "golden")


@pytest.fixture
def mine(tmp_path: Path) -> CompiledRun:
    return CompiledRun(tmp_path / "mine")
