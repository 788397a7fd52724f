"""Folders of a capture."""

from __future__ import annotations

from pathlib import Path

_ATTEMPTS = 16  # to make a folder while others remove its parents


def make_folder(folder: Path) -> None:
    """Create a folder and its parents with mode 0750.

    Another process may remove an empty parent at that moment, such as what an earlier run left.
    """
    for _ in range(_ATTEMPTS):
        try:
            _make_parents(folder)
        except FileNotFoundError:
            continue
        return
    _make_parents(folder)


def _make_parents(folder: Path) -> None:
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir(mode=0o750, exist_ok=True)
