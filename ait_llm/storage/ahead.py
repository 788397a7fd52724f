"""Fetching files before they are opened: an object store answers late, but many at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ait_llm.errors import AitError
from ait_llm.storage.places import staged, staged_files
from ait_llm.storage.tree import RemoteTensorFile

_THREADS = 8
_MAX_SHARE = 0.25  # of the cache that may be filled before its files are used

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_underway = 0  # bytes


def prefetch(paths: Iterable[Path | str]) -> None:
    """Start to fetch files that will be opened soon, in their order, and return at once.

    Files that are local or here already are left alone, and so is what would push files out of the
    cache that are still waiting to be used. An error is told when the file is opened.

    Args:
        paths: local paths, as :func:`ait_llm.storage.local_path` and listings below it give them.
    """
    global _pool, _underway
    if not staged_files:
        return
    for path in paths:
        file = staged(path)
        if file is None or file.here:
            continue
        with _lock:
            if file.asked:
                continue
            if _underway + file.size > file.tree.cache.limit * _MAX_SHARE:
                return
            _underway += file.size
            file.asked = True
            if _pool is None:
                _pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="ait-fetch")
            _pool.submit(_bring, file)


def _bring(file: RemoteTensorFile) -> None:
    global _underway
    try:
        with contextlib.suppress(AitError):  # who opens it hears of it
            file.bring()
    finally:
        with _lock:
            _underway -= file.size
            file.asked = False
