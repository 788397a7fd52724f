"""How fast a folder's disk takes what a capture writes."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ait_llm.errors import UsageError
from ait_llm.plan.amounts import DEFAULT_BLOCK

PROBE_BYTES = 64 << 20
"""Bytes that are written, and removed again, to measure a disk."""
_PIECE = 4 << 20
_SECONDS = 1.0
ASSUMED_BYTES_PER_SECOND = 500e6
"""What is assumed of a disk that is not measured."""


@dataclass(frozen=True, slots=True)
class Disk:
    """What is known of the disk that a folder is on.

    Attributes:
        free: bytes that are free.
        block: bytes that its file system gives out at a time.
        bytes_per_second: how fast it takes large files.
        measured: False if that is assumed.
    """

    free: int
    block: int = DEFAULT_BLOCK
    bytes_per_second: float = ASSUMED_BYTES_PER_SECOND
    measured: bool = False


def look_at_disk(folder: Path, *, measure: bool = True) -> Disk:
    """Find out about the disk of a folder, which need not exist yet.

    Args:
        folder: where a capture would write.
        measure: write up to :data:`PROBE_BYTES`, for a second at most, and remove them.

    Raises:
        UsageError: the folder cannot be written.
    """
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        usage = shutil.disk_usage(folder)
        block = os.statvfs(folder).f_frsize or DEFAULT_BLOCK
        if not measure or usage.free < 4 * PROBE_BYTES:
            return Disk(usage.free, block)
        return Disk(usage.free, block, _write_speed(folder), measured=True)
    except OSError as error:
        raise UsageError(
            f"the output directory {folder} cannot be written ({error.strerror}); give another "
            "one with -o, or do without measuring it with --no-measure"
        ) from error


def _write_speed(folder: Path) -> float:
    """Bytes per second of one file, up to where they are on the disk."""
    piece = os.urandom(_PIECE)  # some file systems leave out zeros
    with tempfile.TemporaryFile(dir=folder, prefix=".ait_plan_") as file:
        start = time.perf_counter()
        written = 0
        while written < PROBE_BYTES and time.perf_counter() - start < _SECONDS:
            written += file.write(piece)
        file.flush()
        os.fsync(file.fileno())
        return written / max(time.perf_counter() - start, 1e-6)
