"""Beginnings and ends of large files, for readers that want headers and no values.

Headers of many files are looked at in the order of their names, so that one request for many is
made instead of many for one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ait_llm.storage.remote import explained

if TYPE_CHECKING:
    from ait_llm.storage.tree import RemoteTensorFile

_START = (64 << 10) + 16  # the largest header of an ATB file; npy has a prefix before as many
_END = 4 << 10  # the directory of an archive with one tensor
_ARCHIVES = (".pt", ".pth", ".zip")
_TOGETHER = 64
_KEPT = 512  # files


class Starts:
    """What is known of the ends of the files of a tree, in memory; the latest few hundred."""

    def __init__(self, files: Sequence[RemoteTensorFile]) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._known: OrderedDict[int, tuple[bytes, bytes]] = OrderedDict()

    def after_fork(self) -> None:
        """A child has no thread that could hold the lock."""
        self._lock = threading.Lock()

    def read(self, file: RemoteTensorFile, length: int, offset: int) -> bytes:
        """Bytes of a file, fewer at its end; as ``os.pread``.

        Raises:
            StorageError: they cannot be fetched.
        """
        stop = min(offset + length, file.size)
        if offset >= stop:
            return b""
        start, end = self._ends(file)
        if stop <= len(start):
            return start[offset:stop]
        first = file.size - len(end)
        if offset >= first:
            return end[offset - first : stop - first]
        return self._ranges([(file, offset, stop)], file)[0]

    def _ends(self, file: RemoteTensorFile) -> tuple[bytes, bytes]:
        with self._lock:
            if (known := self._known.get(file.place)) is not None:
                self._known.move_to_end(file.place)
                return known
            following = self._files[file.place + 1 : file.place + _TOGETHER]
            wanted = [
                file,
                *(
                    other
                    for other in following
                    if other.has_header and not other.here and other.place not in self._known
                ),
            ]
        ranges = []
        for each in wanted:
            ranges.append((each, 0, min(_START, each.size)))
            if each.path.endswith(_ARCHIVES):
                ranges.append((each, max(0, each.size - _END), each.size))
        found = self._ranges(ranges, file)
        ends: dict[int, tuple[bytes, bytes]] = {}
        for (each, begin, stop), data in zip(ranges, found, strict=True):
            if len(data) == stop - begin:
                start = ends[each.place][0] if each.place in ends else data
                ends[each.place] = (start, data if each.place in ends else b"")
        with self._lock:
            self._known.update(ends)
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return ends[file.place]

    def _ranges(
        self, ranges: Sequence[tuple[RemoteTensorFile, int, int]], needed: RemoteTensorFile
    ) -> list[bytes]:
        """Bytes of each range; empty where those of another file than ``needed`` did not come."""
        filesystem = needed.tree.filesystem
        try:
            found = filesystem.cat_ranges(
                [file.remote.key for file, _, _ in ranges],
                [begin for _, begin, _ in ranges],
                [stop for _, _, stop in ranges],
                on_error="return",
            )
        except Exception as error:  # noqa: BLE001  each storage raises its own types
            raise explained(needed.url, error) from None
        contents = []
        for (file, begin, stop), content in zip(ranges, found, strict=True):
            broken = isinstance(content, BaseException)
            if file is needed:
                if broken:
                    raise explained(file.url, content)
                if len(content) != stop - begin:
                    raise file.cut_off(len(content), stop - begin)
            contents.append(b"" if broken else bytes(content))
        return contents
