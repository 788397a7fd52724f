"""Which local path stands for which URL in this process."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import threading
from pathlib import Path

from ait_llm.errors import UsageError
from ait_llm.naming import forget_place, name_place
from ait_llm.storage.addresses import check_characters, is_url, local_part, redacted
from ait_llm.storage.cache import Cache
from ait_llm.storage.remote import Listing, list_remote, open_filesystem
from ait_llm.storage.tree import RemoteTensorFile, Tree

# A part of such a folder is read together with the graphs, tables and ledgers of the whole.
_WHOLE = re.compile(r"(?:ait_dump|msit_dump)(?:_.*)?|atb_dump_data")
_RECORD = re.compile(r".*\.(?:json|pkl|jsonl)")  # names tensors in folders beside it
_COLLAPSED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/[^/]")

_lock = threading.RLock()
_cache: Cache | None = None
_trees: dict[str, Tree] = {}  # by the URL that made it necessary
_numbers = itertools.count()
_given: dict[str, Path] = {}  # by URL as users wrote it, in full or without secrets
# Every copied file by its local path. Empty as long as nothing comes from elsewhere, which is all
# that readers of local files ever ask.
staged_files: dict[str, RemoteTensorFile] = {}


def local_path(place: Path | str) -> Path:
    """The local path that stands for a path or URL; itself for a path.

    Of a ``file://`` URL it is the path in it. A folder elsewhere is listed and its tables are
    fetched the first time; tensors follow when ``ait_llm.formats`` opens them. The same URL, and
    what lies below it, stays the same path until the process ends or :func:`forget` is called.

    Args:
        place: a path, or any URL that fsspec understands.

    Raises:
        StorageError: the URL cannot be reached, holds nothing, or holds unusable names.
        MissingDependencyError: a package for its protocol is not installed.
        UsageError: no such protocol.

    Example:
        >>> from ait_llm.storage import local_path
        >>> str(local_path("file:///tmp/out"))
        '/tmp/out'
    """
    text = str(place)
    if not is_url(text):
        path = Path(place)
        if _COLLAPSED.match(text) and not path.exists():
            raise UsageError(f"{text}: a URL given as a Path loses a slash; give it as text")
        return path
    if (local := local_part(text)) is not None:
        return Path(local).absolute()
    check_characters(text)
    url = text.rstrip("/")
    with _lock:
        found = _known(url)
        if found is None:
            found = _given[url] = _given[redacted(url)] = _stage(url)
    return found


def address(path: Path | str) -> str:
    """The URL that a local path stands for, secrets included; the path itself if for none.

    Another process passes it to :func:`local_path`.
    """
    text = str(path)
    tree = tree_of(path)
    return text if tree is None else tree.url_of(text[len(str(tree.folder)) + 1 :])


def tree_of(path: Path | str) -> Tree | None:
    """The copy of a folder elsewhere that holds a local path; None for any other path."""
    text = str(path)
    for tree in list(_trees.values()):
        folder = str(tree.folder)
        if text == folder or text.startswith(f"{folder}/"):
            return tree
    return None


def staged(path: Path | str) -> RemoteTensorFile | None:
    """The file elsewhere that a local path stands for, None for any other path."""
    if not staged_files:
        return None
    text = str(path)
    found = staged_files.get(text)
    if found is None and _cache is not None and str(_cache.folder) in text:
        found = staged_files.get(os.path.abspath(text))  # noqa: PTH100  links are none of ours
    return found


def is_staging() -> bool:
    """True if something of another place is read in this process."""
    return bool(staged_files)


def forget() -> None:
    """Delete all copies; URLs are listed anew when they are used again.

    Paths that were handed out before cannot be used any more.
    """
    global _cache
    with _lock:
        for tree in _trees.values():
            forget_place(str(tree.named))
        _trees.clear()
        _given.clear()
        staged_files.clear()
        if _cache is not None:
            _cache.remove()
            _cache = None


def cache() -> Cache:
    """The folder of copies of this process; made when it is first needed."""
    global _cache
    with _lock:
        if _cache is None:
            _cache = Cache()
        return _cache


def _known(url: str) -> Path | None:
    """Where a URL is already, by itself or as part of a folder."""
    if (found := _given.get(url)) is not None:
        return found
    for known, path in _given.items():
        if url.startswith(f"{known}/"):
            below = path / url[len(known) + 1 :]
            if path.is_dir() and ".." not in below.parts and below.exists():
                return below
    return None


def _stage(url: str) -> Path:
    filesystem, key = open_filesystem(url)
    parts = _parts(url)
    if parts is None:  # a file system within another, whose paths stand in no URL
        listing = list_remote(filesystem, key, url)
        if listing.is_file:
            return _tree(url, filesystem, [], listing, url).folder / listing.files[0].name
        return _tree(url, filesystem, ["dump"], listing, url).folder
    whole = next((at for at, part in enumerate(parts[1:], 1) if _WHOLE.fullmatch(part)), None)
    if whole is not None and whole + 1 < len(parts):
        above = _above(url, len(parts) - whole - 1)
        root = _known(above)
        if root is None:
            root = _given[above] = _given[redacted(above)] = _stage(above)
        found = root.joinpath(*parts[whole + 1 :])
        if found.exists():
            return found
    listing = list_remote(filesystem, key, url)
    if not listing.is_file:
        return _tree(url, filesystem, parts, listing, url).folder
    name = parts[-1]
    folder_url, folder = _above(url, 1), key.rpartition("/")[0]
    for tree in _trees.values():  # of a file beside this one
        if tree.url == folder_url and str(tree.folder / name) in staged_files:
            return tree.folder / name
    if len(parts) > 2 and (_RECORD.fullmatch(name) or name.endswith(".bin")):
        depth = None if _RECORD.fullmatch(name) else 1  # .bin files may refer to their neighbours
        listing = list_remote(filesystem, folder, folder_url, depth=depth)
    path = _tree(folder_url, filesystem, parts[:-1], listing, url).folder / name
    file = staged_files[str(path)]
    if file.is_table:  # however large: who names it reads it
        file.bring()
        cache().pin(file)
    return path


def _tree(url: str, filesystem: object, parts: list[str], listing: Listing, given: str) -> Tree:
    """Make a tree in a numbered folder of its own, below folders called as those of the URL."""
    numbered = cache().folder / f"{next(_numbers):06d}"
    folder = numbered.joinpath(*parts)
    folder.mkdir(mode=0o700, parents=True)
    tree = Tree(url, filesystem, folder, listing.files, cache())
    shown = redacted(url)
    tail = "/".join(parts)
    if parts and shown.endswith(f"/{tail}"):
        tree.named = str(numbered)
        shown = shown[: -len(tail) - 1]
    try:
        tree.build()
    except BaseException:
        shutil.rmtree(numbered, ignore_errors=True)
        for file in tree.files:
            if file.here:
                cache().let_go(file)
        raise
    name_place(tree.named, shown)
    _trees[given] = tree
    staged_files.update((file.path, file) for file in tree.files)
    return tree


def _parts(url: str) -> list[str] | None:
    """Names of the folders in a URL, without secrets; None if they say not where the files lie."""
    if "::" in url:
        return None
    parts = redacted(url).partition("://")[2].split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        return None
    return parts


def _above(url: str, levels: int) -> str:
    return url.rsplit("/", levels)[0]


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()
    if _cache is not None:
        _cache.after_fork()
    for tree in _trees.values():
        tree.after_fork()


os.register_at_fork(after_in_child=_after_fork)
