"""A browser for pages, and a place for pictures of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One Chromium for all tests; each page has a profile of its own in it."""
    chromium = Browser(tmp_path_factory.mktemp("profile"))
    yield chromium
    chromium.close()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Where pictures of pages go: the folder that ``AIT_LLM_PICTURES`` names, to be looked at."""
    folder = Path(os.environ.get("AIT_LLM_PICTURES") or tmp_path / "pictures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
