"""The folders of one execution count: which operations and kernels lie in them.

Only directory listings are read: no file is opened and none is asked for its size, so that a
hundred thousand tensors are listed in about a second. Links to directories are not followed.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ait_llm.dumps.model import Phase
from ait_llm.errors import FormatError

PARAMS_FILE = "op_param.json"
TENSOR_FILE = re.compile(r"(in|out)tensor([0-9]{1,9})(?:_([A-Za-z0-9_]+))?\.bin")
PHASES: tuple[Phase, ...] = ("before", "after")
_OPERATION_FOLDER = re.compile(r"([0-9]{1,19})_(.+)", re.DOTALL)
_MAX_DEPTH = 1000  # paths end at 4096 bytes
_GRAPH_WITHOUT_NAME = "GraphOperation"
_KERNEL_NAME = re.compile(r".*(Kernel|Tactic)")


@dataclass(slots=True)
class Folder:
    """One ``{id}_{name}`` folder.

    Attributes:
        path: absolute path.
        id: the ids from the top-level operation down to here.
        name: operation type or kernel name.
        files: names of the tensor files by phase.
        has_params: an ``op_param.json`` lies in it.
        children: folders within, by id.
    """

    path: str
    id: tuple[int, ...]
    name: str
    files: dict[Phase, list[str]] = field(default_factory=dict)
    has_params: bool = False
    children: list[Folder] = field(default_factory=list)

    @property
    def has_named_tensors(self) -> bool:
        """True if a file carries the operator's own tensor name, which only operations' do."""
        return any(
            (match := TENSOR_FILE.fullmatch(name)) is not None and match[3] is not None
            for names in self.files.values()
            for name in names
        )


def scan(step_folder: Path) -> list[Folder]:
    """The top-level operations of one execution count, by id, with everything below them.

    Raises:
        FormatError: a folder cannot be read, or folders nest deeper than any path can be.
    """
    top: list[Folder] = []
    pending: list[Folder] = []
    for entry in _entries(os.fspath(step_folder)):
        child = _operation_folder(entry, ())
        if child is not None:
            top.append(child)
            pending.append(child)
    while pending:
        folder = pending.pop()
        if len(folder.id) > _MAX_DEPTH:
            raise FormatError(folder.path, f"lies more than {_MAX_DEPTH} operations deep")
        for entry in _entries(folder.path):
            name = entry.name
            if name in PHASES:
                if entry.is_dir(follow_symlinks=False):
                    folder.files[name] = [
                        sys.intern(file.name)
                        for file in _entries(entry.path)
                        if _is_tensor_file(file)
                    ]
            elif name == PARAMS_FILE:
                folder.has_params = True
            else:
                child = _operation_folder(entry, folder.id)
                if child is not None:
                    folder.children.append(child)
                    pending.append(child)
        folder.children.sort(key=_by_id)
    top.sort(key=_by_id)
    return top


def split_kernels(
    folder: Folder, known_members: frozenset[tuple[int, ...]] | None
) -> tuple[list[Folder], list[Folder]]:
    """Tell the members of a graph from the kernels of an operation among a folder's children.

    A folder name does not say which it is, so evidence decides, the surest first: the graph that
    the run reported; parameters or operator tensor names, which only operations have; how ATB
    names kernels and built-in operations.

    Args:
        folder: the operation.
        known_members: ids of all operations in the reported graph around it, None if not reported.

    Returns:
        Operations and kernels.
    """
    children = folder.children
    if not children:
        return [], []
    if known_members is not None and folder.id in known_members:
        operations = [child for child in children if child.id in known_members]
        return operations, [child for child in children if child.id not in known_members]
    if folder.has_params or folder.has_named_tensors:
        return [], children
    if any(child.has_params or child.children or child.has_named_tensors for child in children):
        return children, []
    if all(_KERNEL_NAME.fullmatch(child.name) for child in children):
        return [], children
    built_in = folder.name.endswith("Operation") and folder.name != _GRAPH_WITHOUT_NAME
    return ([], children) if built_in else (children, [])


def subfolders(path: Path, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    """Names of the folders directly in ``path`` that match a pattern as a whole.

    Raises:
        FormatError: the folder cannot be read.
    """
    found = []
    for entry in _entries(os.fspath(path)):
        match = pattern.fullmatch(entry.name)
        if match is not None and entry.is_dir(follow_symlinks=False):
            found.append(match)
    return found


def subfolders_if_any(path: Path, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    """Like :func:`subfolders`; nothing if ``path`` does not exist."""
    return subfolders(path, pattern) if path.is_dir() else []


def walk(folders: list[Folder]) -> Iterator[Folder]:
    """The folders and everything below them, parents first, by id."""
    pending = folders[::-1]
    while pending:
        folder = pending.pop()
        yield folder
        pending += reversed(folder.children)


def _operation_folder(entry: os.DirEntry[str], parent: tuple[int, ...]) -> Folder | None:
    match = _OPERATION_FOLDER.fullmatch(entry.name)
    if match is None or not entry.is_dir(follow_symlinks=False):
        return None
    return Folder(entry.path, (*parent, int(match[1])), match[2])


def _is_tensor_file(entry: os.DirEntry[str]) -> bool:
    return _is_tensor_name(entry.name) and not entry.is_dir(follow_symlinks=False)


@functools.lru_cache(maxsize=4096)  # most folders hold the same names
def _is_tensor_name(name: str) -> bool:
    return TENSOR_FILE.fullmatch(name) is not None


def _by_id(folder: Folder) -> tuple[int, str]:
    return folder.id[-1], folder.name


def _entries(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except OSError as error:
        raise FormatError(path, f"cannot be listed: {error.strerror}") from None
