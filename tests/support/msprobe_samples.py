"""Captures that the released msprobe wrote, unpacked once for all tests of a session."""

from __future__ import annotations

import atexit
import functools
import shutil
import tarfile
import tempfile
from pathlib import Path

ARCHIVES = Path(__file__).parents[1] / "data" / "msprobe"
NAMES = tuple(sorted(path.name.removesuffix(".tar.xz") for path in ARCHIVES.glob("*.tar.xz")))


def sample(name: str) -> Path:
    """Folder with ``golden``, ``target`` and ``compare`` of an archive; do not write to it."""
    return _unpacked(name) / name


@functools.cache
def _unpacked(name: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="ait-msprobe-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder
