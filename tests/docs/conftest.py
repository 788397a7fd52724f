"""Captures that several pages show are made once."""

from __future__ import annotations

from pathlib import Path

import pytest
from doc_pages import Captures, Shell, own_environment


@pytest.fixture(scope="session")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Captures:
    return Captures(tmp_path_factory.mktemp("captures"))


@pytest.fixture
def shell(tmp_path: Path, captures: Captures) -> Shell:
    """A terminal in an empty folder."""
    return Shell(tmp_path, own_environment(), captures)
