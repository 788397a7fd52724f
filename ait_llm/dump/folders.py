"""Folders of a capture."""

from __future__ import annotations

from pathlib import Path

from ait_llm.errors import UsageError

_ATTEMPTS = 16  # to make a folder while others remove its parents


def refuse_link(folder: Path) -> None:
    """Refuse to capture into a folder that is a link: somebody else may have put it there.

    Raises:
        UsageError: it is one.
    """
    if folder.is_symlink():
        raise UsageError(
            f"{folder} is a link, and a capture does not write through one; remove it, or give the "
            "folder that it leads to with -o"
        )


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
