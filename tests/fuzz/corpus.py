"""Files that reach code of a reader in their own way: few and small enough for the repository."""

from __future__ import annotations

import io
import lzma
import os
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from engine import Target, prepare
from seeds import DATA

from ait_llm.errors import AitError

FOLDER = DATA / "fuzz"
MAX_FILE = 4096  # bytes of one
MAX_FILES = 16  # of a reader
MAX_TOTAL = 16 << 10  # bytes of all of a reader's
_OURS = f"{os.sep}ait_llm{os.sep}"

Line = tuple[CodeType, int, int]  # from one line of a function to another


def kept(name: str) -> list[bytes]:
    """The files of a reader in the repository."""
    path = FOLDER / f"{name}.tar.xz"
    if not path.is_file():
        return []
    with tarfile.open(path) as archive:
        files = (archive.extractfile(member) for member in archive.getmembers())
        return [file.read() for file in files if file is not None]


def keep(target: Target, found: Path) -> int:
    """Choose some of what was found, and write them into the repository; how many."""
    files = {path.read_bytes() for path in found.iterdir() if path.stat().st_size <= MAX_FILE}
    chosen = _chosen(target, sorted(files, key=lambda data: (len(data), data)))
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for number, data in enumerate(chosen):
            member = tarfile.TarInfo(f"{number:02}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{target.name}.tar.xz").write_bytes(lzma.compress(content.getvalue()))
    return len(chosen)


def _chosen(target: Target, files: list[bytes]) -> list[bytes]:
    """Those that together go most ways which the good files do not go, the richest first."""
    with tempfile.TemporaryDirectory(prefix="ait-fuzz-") as name:
        folder = Path(name).resolve() / "inside" / "folder"
        folder.mkdir(parents=True)
        before = Path.cwd()
        os.chdir(folder)
        try:
            prepare(target, folder)
            known: set[Line] = set()
            for data in target.corpus:
                known |= _ways(lambda data=data: _read(target, folder, data))
            ways = {data: _ways(lambda data=data: _read(target, folder, data)) for data in files}
        finally:
            os.chdir(before)
    chosen: list[bytes] = []
    room = MAX_TOTAL
    while len(chosen) < MAX_FILES:
        fitting = [data for data in ways if len(data) <= room and ways[data] - known]
        if not fitting:
            break
        best = max(fitting, key=lambda data: (len(ways[data] - known), -len(data)))
        chosen.append(best)
        known |= ways.pop(best)
        room -= len(best)
    return chosen


def _read(target: Target, folder: Path, data: bytes) -> None:
    path = folder / target.file
    path.write_bytes(data)
    try:
        target.read(path)
    except AitError:
        return
    except Exception:  # noqa: BLE001  # a finding, which its own run reports
        return


def _ways(work: Callable[[], None]) -> set[Line]:
    """The steps from line to line that our code takes."""
    found: set[Line] = set()

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        if _OURS not in frame.f_code.co_filename:
            return None
        last = 0

        def step(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal last
            if event == "line":
                found.add((frame.f_code, last, frame.f_lineno))
                last = frame.f_lineno
            return step

        return step

    sys.settrace(enter)
    try:
        work()
    finally:
        sys.settrace(None)
    return found
