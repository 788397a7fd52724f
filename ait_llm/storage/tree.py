"""A remote folder as a local tree of placeholders, each replaced when its content is wanted."""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ait_llm.storage.cache import Cache
from ait_llm.storage.placeholders import FILE_MODE, MARKER, make_placeholder, take_place
from ait_llm.storage.remote import RemoteFile, StorageError, explained, open_filesystem
from ait_llm.storage.starts import Starts

# Tables and graphs: read by everything that looks at a dump, in part by readers of plain text.
_TABLES = frozenset(
    (".json", ".jsonl", ".csv", ".txt", ".pbtxt", ".yaml", ".yml", ".pkl", ".prototxt", ".py")
)
_MAX_TABLE_BYTES = 64 << 20
_BATCH_BYTES = 64 << 20  # of small files that are fetched together, in memory
_BATCH_FILES = 256
_SMALL = 256 << 10  # a file for which the way there and back counts more than its bytes
_NEIGHBOURS = 64
_NUMBER = re.compile(r"(\d+)")


class RemoteTensorFile:
    """One file of a tree: a placeholder until it is fetched, and again after it was dropped.

    Attributes:
        tree: the tree that it belongs to.
        remote: the file at the other side.
        path: the local file.
        place: its position among the files of the tree in natural order.
        here: True if the content is.
        asked: True while it waits to be fetched ahead of its use.
    """

    __slots__ = ("asked", "here", "lock", "path", "place", "remote", "tree")

    def __init__(self, tree: Tree, remote: RemoteFile, path: str, place: int) -> None:
        self.tree = tree
        self.remote = remote
        self.path = path
        self.place = place
        self.here = False
        self.asked = False
        self.lock = threading.Lock()

    @property
    def size(self) -> int:
        """In bytes."""
        return self.remote.size

    @property
    def url(self) -> str:
        """What users call it."""
        return self.tree.url_of(self.remote.name)

    @property
    def has_header(self) -> bool:
        """True if it is so large that its header is fetched alone, unless all will be wanted."""
        return self.size > _SMALL and self.tree.follow is None

    @property
    def is_table(self) -> bool:
        """True for text: tables, graphs, records, reports."""
        return os.path.splitext(self.path)[1].lower() in _TABLES  # noqa: PTH122

    def pread(self, length: int, offset: int) -> bytes:
        """Some of its bytes, as ``os.pread``, of a file that is not fetched for that.

        Raises:
            StorageError: they cannot be fetched.
        """
        return self.tree.starts.read(self, length, offset)

    def cut_off(self, present: int, expected: int) -> StorageError:
        """What is wrong if not all bytes arrived."""
        return StorageError(
            self.url,
            f"{present:,} bytes arrived of {expected:,} that the listing promises",
            "The connection broke or the file changed meanwhile; try again",
        )

    def open(self) -> tuple[int, os.stat_result]:
        """A descriptor of the content, fetched if need be, and what the system says about it.

        Raises:
            StorageError: it cannot be fetched.
        """
        if self.tree.follow is not None:
            self.tree.follow(self)
        with self.lock:
            self._bring()
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self.tree.cache.touch(self)
        return descriptor, os.fstat(descriptor)

    def bring(self) -> None:
        """Fetch the content if it is not here.

        Raises:
            StorageError: it cannot be fetched.
        """
        with self.lock:
            self._bring()

    def drop(self) -> bool:
        """Put a placeholder in its place; whoever has it open keeps the content."""
        if not self.lock.acquire(blocking=False):
            return False
        try:
            temporary = self.tree.temporary()
            make_placeholder(temporary, self.size, self.remote.changed)
            take_place(temporary, self.path)
            self.here = False
        except OSError:  # it stays as it is
            return False
        finally:
            self.lock.release()
        return True

    def accept(self, data: bytes) -> None:
        """Take content that was fetched together with others; the lock is held."""
        if len(data) != self.size:
            raise self.cut_off(len(data), self.size)

        def write(target: str) -> None:
            Path(target).write_bytes(data)

        self._replace(write)

    def _bring(self) -> None:
        if self.here:
            return
        if self.size <= _SMALL:
            self.tree.bring_neighbours(self)
        else:
            filesystem = self.tree.filesystem
            self._replace(lambda target: filesystem.get_file(self.remote.key, target))

    def _replace(self, write: Callable[[str], None]) -> None:
        """Let ``write`` make a file that takes the place of the placeholder if it is whole."""
        temporary = self.tree.temporary()
        with self.tree.cache.room_for(self.size, self.url):
            try:
                write(temporary)
                status = os.stat(temporary)  # noqa: PTH116
                if status.st_size != self.size:
                    raise self.cut_off(status.st_size, self.size)
                os.chmod(temporary, FILE_MODE)  # noqa: PTH101
                os.utime(temporary, ns=(self.remote.changed, self.remote.changed))
                take_place(temporary, self.path)
            except BaseException as error:
                Path(temporary).unlink(missing_ok=True)
                if isinstance(error, StorageError) or not isinstance(error, Exception):
                    raise
                raise explained(self.url, error) from None
        self.here = True
        self.tree.cache.keep(self)


def _stand_in(file: RemoteTensorFile) -> None:
    """Make what lies in the place of a file until it is fetched; an empty one is there at once."""
    if file.size > 0:
        make_placeholder(file.path, file.size, file.remote.changed)
        return
    descriptor = os.open(file.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE)
    os.utime(descriptor, ns=(file.remote.changed, file.remote.changed))
    os.close(descriptor)
    file.here = True


class Tree:
    """The local copy of a remote folder, or of one file and its neighbours.

    Args:
        url: what users call the folder, with its secrets.
        path: the folder within the file system.
        filesystem: of fsspec.
        folder: the local folder; it must exist and be empty.
        files: the listing.
        cache: what keeps the size of all copies in bounds.
    """

    def __init__(
        self,
        url: str,
        filesystem: Any,
        folder: Path,
        files: Iterable[RemoteFile],
        cache: Cache,
    ) -> None:
        self.url = url
        self.folder = folder
        self.named = str(folder)  # the local folder that messages call by another name
        self.cache = cache
        self.follow: Callable[[RemoteTensorFile], None] | None = None  # told of each that is opened
        self._filesystem = filesystem
        self._pid = os.getpid()
        ordered = sorted(files, key=lambda file: _natural(file.name))
        self.files = [
            RemoteTensorFile(self, file, f"{folder}/{file.name}", place)
            for place, file in enumerate(ordered)
        ]
        self.starts = Starts(self.files)
        self._incoming = Path(tempfile.mkdtemp(prefix="incoming-", dir=cache.folder))
        self._numbers = iter(range(1 << 62))

    @property
    def filesystem(self) -> Any:
        """The file system; another one in a process that was forked since."""
        if self._pid != os.getpid():
            self._filesystem, _ = open_filesystem(self.url)
            self._pid = os.getpid()
        return self._filesystem

    def after_fork(self) -> None:
        """A child has no thread that could hold a lock."""
        self.starts.after_fork()
        for file in self.files:
            file.lock = threading.Lock()

    def url_of(self, name: str) -> str:
        """What users call a file."""
        return f"{self.url}/{name}" if name else self.url

    def temporary(self) -> str:
        """The name of a new file on the same disk, outside of the tree."""
        return f"{self._incoming}/{os.getpid()}-{next(self._numbers)}"

    def build(self) -> None:
        """Make the placeholders and fetch the tables.

        Raises:
            StorageError: a table cannot be fetched, or the copies have no room.
        """
        made: set[str] = {str(self.folder)}
        at_once = []
        for file in self.files:
            parent = file.path.rpartition("/")[0]
            if parent not in made:
                os.makedirs(parent, 0o700, exist_ok=True)  # noqa: PTH103
                made.add(parent)
            try:
                _stand_in(file)
            except OSError as error:
                raise explained(file.url, error) from None
            if not file.here and (
                file.size < len(MARKER) or (file.is_table and file.size <= _MAX_TABLE_BYTES)
            ):
                at_once.append(file)
        batch: list[RemoteTensorFile] = []
        size = 0
        for file in at_once:
            if batch and (size + file.size > _BATCH_BYTES or len(batch) == _BATCH_FILES):
                self._bring_together(batch)
                batch, size = [], 0
            batch.append(file)
            size += file.size
        self._bring_together(batch)
        for file in at_once:  # plain readers of text open them at any time
            self.cache.pin(file)

    def bring_neighbours(self, wanted: RemoteTensorFile) -> None:
        """Fetch a small file, whose lock is held, and those small ones that follow it."""
        batch = [wanted]
        for file in self.files[wanted.place + 1 : wanted.place + _NEIGHBOURS]:
            if file.size <= _SMALL and not file.here and file.lock.acquire(blocking=False):
                if file.here:
                    file.lock.release()
                else:
                    batch.append(file)
        try:
            self._fetch(batch)
        finally:
            for file in batch[1:]:
                file.lock.release()

    def _bring_together(self, files: Sequence[RemoteTensorFile]) -> None:
        for file in files:
            file.lock.acquire()
        try:
            self._fetch(files, all_needed=True)
        finally:
            for file in files:
                file.lock.release()

    def _fetch(self, files: Sequence[RemoteTensorFile], *, all_needed: bool = False) -> None:
        """Fetch small files, whose locks are held, at the same time; the first is needed."""
        if not files:
            return
        try:
            contents = self.filesystem.cat_ranges(
                [file.remote.key for file in files],
                [0] * len(files),
                [file.size for file in files],
                on_error="return",
            )
        except Exception as error:  # noqa: BLE001  each storage raises its own types
            raise explained(files[0].url, error) from None
        for file, content in zip(files, contents, strict=True):
            needed = all_needed or file is files[0]
            if isinstance(content, BaseException):
                if needed:
                    raise explained(file.url, content)
            elif needed or len(content) == file.size:
                file.accept(bytes(content))


def _natural(name: str) -> list[object]:
    """Sort key with numbers by value: ``2_Add`` before ``10_Add``."""
    return [int(part) if place % 2 else part for place, part in enumerate(_NUMBER.split(name))]
