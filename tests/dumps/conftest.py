"""Fixtures of the dump tests."""

from pathlib import Path

import pytest
from dump_builder import DumpBuilder


@pytest.fixture
def builder(tmp_path: Path) -> DumpBuilder:
    return DumpBuilder(tmp_path / "out" / "ait_dump")
