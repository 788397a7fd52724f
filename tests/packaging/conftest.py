"""The wheel is built once."""

from __future__ import annotations

from pathlib import Path

import pytest
from newcomer import built_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return built_wheel(tmp_path_factory.mktemp("wheel"))
