"""Which part of an FX dump a path means.

torchair has written four trees over the years, with the same file names in all of them::

    gm_{time}_dump/{step}/                                 until 2024-03, steps from 1
    data_dump/{step}/gm_{time}_dump/                       until 7.1.0, steps from 1
    worldsize{W}_global_rank{R}/graph_{N}/{step}/          since 7.2.0, steps from 0

The third is also accepted without its first folder. Where a run of the old kinds used several
ranks, they share one tree.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ait_llm.errors import FormatError

FILE_NAME = re.compile(
    r"([^-]+)-(.+)\.(INPUT|OUTPUT)\.([0-9]{1,9})(?:\.([0-9]{1,9}))?\.([0-9]{20})\.npy"
)
FOLDER = "fx_tensors"
_RANK = re.compile(r"worldsize([0-9]{1,9})_global_rank([0-9]{1,9})")
_GRAPH = re.compile(r"graph_([0-9]{1,9})")
_MODULE = re.compile(r"gm_([0-9]{20})_dump")
_STEP = re.compile(r"[0-9]{1,18}")
_DATA = re.compile(r"data_dump")
_LAYERS = (_RANK, _GRAPH, _MODULE, _STEP, _DATA)
# Names of the folders of one tree, outermost first; the last folder holds the files.
_TREES: tuple[tuple[re.Pattern[str], ...], ...] = (
    (_RANK, _GRAPH, _STEP),
    (_GRAPH, _STEP),
    (_DATA, _STEP, _MODULE),
    (_STEP, _MODULE),
    (_MODULE, _STEP),
)
# Where a capture puts a tree within the folder it was given: ours, and those of the helpers that
# the manuals name.
_CONTAINERS = (f"ait_dump/{FOLDER}", FOLDER, "msit_fx_dump", "msprobe_fx_dump", "ait_fx_dump")


@dataclass(frozen=True, slots=True)
class FxUnit:
    """One execution of one graph by one rank: a folder of files.

    Attributes:
        folder: where the files lie.
        rank: of the process; 0 where the tree has no ranks.
        graph: N of ``graph_{N}``; in the old trees the place of ``gm_{time}_dump`` by its time,
            counted from 1; None for a folder of files that lies in no tree.
        step: which execution of this graph, from 0.
        step_directory: the number in the folder's name; the old trees count from 1.
    """

    folder: Path
    rank: int
    graph: int | None
    step: int
    step_directory: int


@dataclass(frozen=True, slots=True)
class FxPlace:
    """An FX dump and the part of it that was asked for.

    Attributes:
        root: the folder that holds the tree; nothing outside of it is ever read.
        units: the folders of files, by rank, graph and step.
        below: names of the folders from ``root`` to the one that was asked for.
        ledgers: folder of the ledgers that our own capture writes, whether it exists or not.
    """

    root: Path
    units: tuple[FxUnit, ...]
    below: tuple[str, ...]
    ledgers: Path


def find_fx_place(path: Path) -> FxPlace | None:
    """Recognise an FX dump, whichever of its folders is given.

    Args:
        path: an existing folder: what was given to the capture, one of its rank, graph or step
            folders, or a folder with files of one step.

    Returns:
        None if the path is no such dump.

    Raises:
        FormatError: a folder cannot be listed.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100  # resolve() would follow links
    root = path
    while root.parent != root and any(layer.fullmatch(root.name) for layer in _LAYERS):
        root = root.parent
    # A folder above may be called 3 or data_dump and have nothing to do with the dump.
    for top in _chain(root, path):
        place = _at(top, path)
        if place is not None:
            return place
    for name in _CONTAINERS:
        inner = path / name
        if inner.is_dir() and (place := _at(inner, inner)) is not None:
            return place
        if name.endswith(FOLDER) and inner.is_dir() and _ledger_folder(inner).is_dir():
            return FxPlace(inner, (), (), _ledger_folder(inner))  # nothing was captured
    if _holds_files(path):
        return FxPlace(path, (FxUnit(path, 0, None, 0, 0),), (), path.parent / "ledger")
    return None


def _chain(root: Path, path: Path) -> list[Path]:
    """The folders from ``path`` up to ``root``, outermost first."""
    chain = [path]
    while chain[-1] != root:
        chain.append(chain[-1].parent)
    return chain[::-1]


def _at(root: Path, path: Path) -> FxPlace | None:
    """The units below ``root`` that lie in ``path``; None if there are none."""
    below = path.relative_to(root).parts
    found = [
        _unit(root, names)
        for tree in _TREES
        for names in _folders(root, tree, below)
        if _holds_files(root.joinpath(*names))
    ]
    if not found:
        return None
    return FxPlace(root, _ordered(root, found), below, _ledger_folder(root))


def _folders(
    folder: Path, tree: Sequence[re.Pattern[str]], below: Sequence[str]
) -> Iterator[tuple[str, ...]]:
    """Names of nested folders that follow a tree, restricted to ``below`` where it has names."""
    if not tree:
        if not below:
            yield ()
        return
    for name in below[:1] or subfolders(folder):
        if tree[0].fullmatch(name):
            for rest in _folders(folder / name, tree[1:], below[1:]):
                yield (name, *rest)


def subfolders(folder: Path) -> list[str]:
    """Names of the folders in a folder, links not followed.

    Raises:
        FormatError: it cannot be listed.
    """
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError as error:
        raise FormatError(folder, f"cannot be listed ({error.strerror})") from error


def _holds_files(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(FILE_NAME.fullmatch(entry.name) for entry in entries)
    except OSError as error:
        raise FormatError(folder, f"cannot be listed ({error.strerror})") from error


def _unit(root: Path, names: Sequence[str]) -> tuple[FxUnit, str]:
    """A unit, and the name of its ``gm_{time}_dump`` folder; its graph is numbered later."""
    rank, graph, step, module = 0, None, 0, ""
    for name in names:
        if match := _RANK.fullmatch(name):
            rank = int(match[2])
        elif match := _GRAPH.fullmatch(name):
            graph = int(match[1])
        elif _STEP.fullmatch(name):
            step = int(name)
        elif _MODULE.fullmatch(name):
            module = name
    from_zero = max(0, step - 1) if module else step
    return FxUnit(root.joinpath(*names), rank, graph, from_zero, step), module


def _ordered(root: Path, found: Sequence[tuple[FxUnit, str]]) -> tuple[FxUnit, ...]:
    # Numbered over the whole tree, so that a part of it has the same numbers.
    trees = _TREES[2:] if any(name for _, name in found) else ()
    times = sorted({name for tree in trees for name in _modules(root, tree)})
    units = [
        FxUnit(each.folder, each.rank, times.index(name) + 1, each.step, each.step_directory)
        if name
        else each
        for each, name in found
    ]
    return tuple(sorted(units, key=lambda each: (each.rank, each.graph or 0, each.step)))


def _modules(root: Path, tree: Sequence[re.Pattern[str]]) -> Iterator[str]:
    for names in _folders(root, tree, ()):
        yield from (name for name in names if _MODULE.fullmatch(name))


def _ledger_folder(root: Path) -> Path:
    return root.parent / "ledger" if root.name == FOLDER else root / "ledger"
