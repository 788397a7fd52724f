"""Fetching files before they are opened: an object store answers late, but many at a time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from queue import SimpleQueue

from ait_llm.storage.places import staged, staged_files, tree_of
from ait_llm.storage.tree import RemoteTensorFile

_THREADS = 8
_MAX_SHARE = 0.25  # of the cache that may be filled before its files are used
_MAX_BYTES = 1 << 30
_FOLLOWING = 32  # files


class _Fetcher:
    """Threads that bring files; those still waiting are of no interest when the program ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: SimpleQueue[RemoteTensorFile] = SimpleQueue()
        self._threads = 0
        self._underway = 0  # bytes

    def add(self, file: RemoteTensorFile) -> bool:
        """Ask for a file; False if that is too much at a time."""
        with self._lock:
            if file.asked:
                return True
            limit = min(file.tree.cache.limit * _MAX_SHARE, _MAX_BYTES)
            if self._underway + file.size > limit:
                return False
            self._underway += file.size
            file.asked = True
            self._queue.put(file)
            if self._threads < _THREADS:
                self._threads += 1
                # not a pool, which would finish all that waits before the program may end
                name = f"ait-fetch_{self._threads}"
                threading.Thread(target=self._run, name=name, daemon=True).start()
        return True

    def _run(self) -> None:
        while True:
            file = self._queue.get()
            with contextlib.suppress(Exception):  # who opens it hears of it
                file.bring()
            with self._lock:
                self._underway -= file.size
                file.asked = False
            del file


_fetcher = _Fetcher()


def prefetch(paths: Iterable[Path | str]) -> None:
    """Start to fetch files that will be opened soon, in their order, and return at once.

    Files that are local or here already are left alone, and so is what would push files out of the
    cache that are still waiting to be used. An error is told when the file is opened.

    Args:
        paths: local paths, as :func:`ait_llm.storage.local_path` and listings below it give them.
    """
    if not staged_files:
        return
    for path in paths:
        file = staged(path)
        if file is not None and not file.here and not _fetcher.add(file):
            return


def expect_values(*paths: Path | str) -> None:
    """Say that all values below these paths will be read, in about the order of their names.

    If they fit well into the cache, whole files are fetched where else headers would be first, each
    with those that follow it. Paths that are local are left alone.
    """
    if not staged_files:
        return
    trees = {id(tree): tree for path in paths if (tree := tree_of(path)) is not None}.values()
    size = sum(file.size for tree in trees for file in tree.files)
    if all(size <= tree.cache.limit // 2 for tree in trees):
        for tree in trees:
            tree.follow = _fetch_following


def _fetch_following(file: RemoteTensorFile) -> None:
    for following in file.tree.files[file.place + 1 : file.place + 1 + _FOLLOWING]:
        if not following.here and not _fetcher.add(following):
            return


def _after_fork() -> None:
    """A child has none of the threads."""
    global _fetcher
    _fetcher = _Fetcher()


os.register_at_fork(after_in_child=_after_fork)
