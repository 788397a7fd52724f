"""Opening files that come from elsewhere: regular files only, and only below a given folder."""

from __future__ import annotations

import functools
import os
import stat
from io import FileIO
from pathlib import Path
from typing import BinaryIO, TypeVar

from ait_llm.errors import FormatError
from ait_llm.storage.places import staged, staged_files
from ait_llm.storage.tree import RemoteTensorFile

# What the tools that we read put into a dump, and which of it holds tensor files and nothing else.
_FLAT = frozenset({"dump_tensor_data"})
_PARTS = _FLAT.union(
    ("tensors", "ledger", "layer", "model", "tiling", "statistics", "cpu_profiling"),
    ("operation_io_tensors", "kernel_io_tensors", "torch_tensors", "fx_tensors", "data", "info"),
    ("dump.json", "debug.json", "stack.json", "construct.json"),
)
_PART_LEVELS = 2

_Path = TypeVar("_Path", Path, str)


def open_regular(path: Path | str) -> BinaryIO:
    """Open a regular file for reading; a pipe or a device is refused instead of waited for.

    Raises:
        FormatError: it does not exist, cannot be read, or is not a regular file.
    """
    return os.fdopen(open_descriptor(path)[0], "rb")


def open_unbuffered(path: Path | str) -> FileIO:
    """Like :func:`open_regular`, for readers that ask for exactly what they need."""
    return os.fdopen(open_descriptor(path)[0], "rb", buffering=0)


def open_descriptor(path: Path | str) -> tuple[int, os.stat_result]:
    """Like :func:`open_regular`, for readers of very many files, where file objects cost too much.

    Returns:
        The descriptor, which the caller closes, and what the system says about the file.

    Raises:
        FormatError: as :func:`open_regular`.
    """
    if staged_files and (copy := staged(path)) is not None:
        return copy.open()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise FormatError(path, f"cannot be read: {reason}") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise FormatError(path, "is not a regular file")
    return descriptor, status


def not_here(path: Path | str) -> RemoteTensorFile | None:
    """A large file elsewhere whose header can be read without fetching it; None for all others."""
    if not staged_files or (copy := staged(path)) is None:
        return None
    # what is on its way is waited for, so that its header does not come twice
    return copy if copy.has_header and not copy.here and not copy.asked else None


def read_small(path: Path | str, limit: int, *, named: Path | None = None) -> bytes:
    """The content of a file that is no longer than ``limit`` bytes.

    No more memory is taken than the file is long: a read of ``limit`` bytes would reserve them all.

    Args:
        path: the file.
        limit: in bytes.
        named: the name of the file in messages, where ``path`` is what a link leads to.

    Raises:
        FormatError: as :func:`open_regular`, or it is longer.
    """
    blamed = path if named is None else named
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise FormatError(blamed, f"is larger than {limit} bytes")
        try:
            return file.read(size)
        except OSError as error:
            raise FormatError(blamed, f"cannot be read: {error.strerror or error}") from None


def contained_file(path: _Path, root: Path) -> _Path | Path:
    """The path itself, or, where it or a folder above it is a link, what that leads to in ``root``.

    Like :func:`contained`, for many files of one tree: following links costs most of it. Folders
    between ``root`` and the file that were no links once are not looked at again.
    """
    text, boundary = str(path), str(root)
    folder = text.rpartition("/")[0]
    if _is_plain(folder, boundary) and not os.path.islink(text):  # noqa: PTH114  Path costs more
        return path
    return contained(Path(path), root)


@functools.lru_cache(maxsize=1 << 14)
def _is_plain(folder: str, root: str) -> bool:
    """True if a folder lies below another one and no part between them is a link."""
    if folder == root:
        return True
    parent, _, name = folder.rpartition("/")
    if not folder.startswith(f"{root}/") or name in ("", ".", ".."):
        return False
    return _is_plain(parent, root) and not os.path.islink(folder)  # noqa: PTH114


def check_parts(root: Path, given: Path) -> None:
    """Check that no part of a dump is a link that leads out of it.

    Only the upper folders are looked at, down to those of the steps; :func:`contained_file` looks
    at the others when a file in them is opened. Links that belong to no part are left alone.

    Args:
        root: the folder of the dump.
        given: what was asked for, the dump or a folder in it; those beside it are not listed.

    Raises:
        FormatError: there is such a link.
    """
    for part in (root / name for name in _PARTS):
        if part.is_symlink():
            contained(part, root)
    start = given if root in given.parents else root
    contained_file(start, root)
    pending = [(os.fspath(start), 0, start != root)]
    while pending:
        folder, depth, is_part = pending.pop()
        try:
            with os.scandir(folder) as entries:
                found = list(entries)
        except OSError:
            continue  # whoever lists it says so
        for entry in found:
            belongs = is_part or entry.name in _PARTS
            if entry.is_symlink():
                if belongs:
                    contained(Path(entry.path), root)
            elif depth < _PART_LEVELS and entry.name not in _FLAT and entry.is_dir():
                pending.append((entry.path, depth + 1, belongs))


def contained(path: Path, root: Path, *, named_in: Path | None = None) -> Path:
    """Check that a file, with all links followed, lies below a folder.

    Args:
        path: the file.
        root: the folder.
        named_in: file in which ``path`` was found, for the message.

    Returns:
        The path to open, with all links followed.

    Raises:
        FormatError: it does not exist or lies elsewhere.
    """
    blamed = path if named_in is None else named_in
    what = "" if named_in is None else f"refers to {str(path.name)!r}, which "
    try:
        resolved = path.resolve(strict=True)
        boundary = root.resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a loop of links
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise FormatError(blamed, f"{what}cannot be read: {reason}") from None
    if not resolved.is_relative_to(boundary):
        raise FormatError(blamed, f"{what or 'is a link that '}lies outside of {root}")
    return resolved
