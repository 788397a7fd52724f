"""Where the folders of a dump of the graph engine lie, whichever of them is given.

``[worldsize{W}_global_rank{R}/]{time}/{device}/{model_name}/{model_id}/{step}/`` below the folder
that the run was given. The time folder, 14 digits, is what marks the tree.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ait_llm.dumps.ge_names import HASHED_NAME, MAPPING_FILE, STATISTICS_SUFFIX, parse_name
from ait_llm.errors import FormatError

RANK_FOLDER = re.compile(r"worldsize([0-9]{1,9})_global_rank([0-9]{1,9})")
TIME_FOLDER = re.compile(r"(?:19|20)[0-9]{12}")
_PRINT = re.compile(r"dynamo_(original|optimized)_graph_[0-9]+.*\.py")
GRAPH_FILE = re.compile(r"dynamo_(original|optimized)_graph_([0-9]+).*\.(txt|pbtxt)")
_BUILD_FILE = re.compile(r"ge_proto_.*_(?:PreRunAfterBuild|Build)\.txt")
_NUMBER = re.compile(r"[0-9]{1,18}")
_MODEL = re.compile(r"graph_([0-9]{1,9})(?:_.*)?")
_BELOW_TIME = 4  # device, model, model id, step
_MAX_FOLDERS = 256  # looked into for files of a dump
_MAX_ENTRIES = 50_000  # looked at for a time folder
_DEPTH = 3  # of folders above the time folders


@dataclass(frozen=True, slots=True)
class Unit:
    """One execution of one model: a folder of dump files.

    Attributes:
        path: the folder.
        rank: global rank, None without such a layer.
        time: name of the time folder, empty without one.
        device: device number, -1 if unknown.
        model_name: of the compiled graph, such as ``graph_1_0``; empty if unknown.
        model_id: number of the loaded model, -1 if unknown.
        step: number of the execution.
    """

    path: str
    rank: int | None
    time: str
    device: int
    model_name: str
    model_id: int
    step: int

    @property
    def graph(self) -> int | None:
        """N of ``graph_{N}``, None if the model is called otherwise."""
        match = _MODEL.fullmatch(self.model_name)
        return int(match[1]) if match else None


@dataclass(frozen=True, slots=True)
class GePlace:
    """A dump of the graph engine, or the part of it that was asked for.

    Attributes:
        root: the folder that holds everything; nothing outside of it is read.
        start: the folder whose operations are listed.
        time: the time folder that holds it, None if it lies above or there is none.
    """

    root: Path
    start: Path
    time: Path | None = None


def find_ge_place(path: Path) -> GePlace | None:
    """Recognise a dump of the graph engine.

    Args:
        path: an existing folder: what the run was given, one above it, or any folder in it.

    Returns:
        None if the path is no such dump.
    """
    path = path.absolute()
    place = _within_time(path)
    if place is None:
        is_rank = RANK_FOLDER.fullmatch(path.name) is not None
        place = GePlace(path.parent if is_rank else path, path)
    found = itertools.islice(units(place), _MAX_FOLDERS)
    return place if any(_holds_files(unit.path) for unit in found) else None


def _within_time(path: Path) -> GePlace | None:
    """The place of a time folder, a device, a model, an id or a step."""
    for time in (path, *path.parents)[: _BELOW_TIME + 1]:
        names = path.parts[len(time.parts) :]
        if TIME_FOLDER.fullmatch(time.name) and _is_below_time(names):
            return GePlace(_root_of(time), path, time)
    return None


def units(place: GePlace) -> Iterator[Unit]:
    """The folders of dump files below the start, in no particular order.

    A folder without the layers of a dump is one unit, whose files were copied out of their tree.

    Raises:
        FormatError: a folder cannot be listed.
    """
    start = str(place.start)
    if place.time is not None:
        yield from _below_time(place.time, start)
        return
    times = list(_time_folders(place.start, _DEPTH))
    for time in times:
        yield from _below_time(Path(time), time)
    if not times:
        name = place.start.name
        step = int(name) if _NUMBER.fullmatch(name) else 0
        yield Unit(start, None, "", -1, "", -1, step)


def graph_files(place: GePlace) -> tuple[Path, ...]:
    """Texts of the graphs that were compiled, the original ones first, by number."""
    found = [path for path in _beside(place) if GRAPH_FILE.fullmatch(path.name)]

    def key(path: Path) -> tuple[bool, int, str]:
        match = GRAPH_FILE.fullmatch(path.name)
        assert match is not None
        return match[1] != "original", int(match[2]), path.name

    return tuple(sorted(found, key=key))


def graph_prints(place: GePlace) -> tuple[Path, ...]:
    """Prints of those graphs as Python code, by name."""
    return tuple(sorted(path for path in _beside(place) if _PRINT.fullmatch(path.name)))


def build_graph_files(place: GePlace) -> tuple[Path, ...]:
    """Texts that the engine itself wrote after fusion, by name."""
    return tuple(sorted(path for path in _beside(place) if _BUILD_FILE.fullmatch(path.name)))


def is_file_of_dump(name: str) -> bool:
    """True for the name of a dump file or of a table of statistics."""
    return parse_name(name.removesuffix(STATISTICS_SUFFIX)) is not None


def scan(folder: Path | str) -> list[os.DirEntry[str]]:
    """The entries of a folder.

    Raises:
        FormatError: it cannot be listed.
    """
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise FormatError(folder, f"cannot be listed ({error.strerror})") from error


def _is_below_time(names: tuple[str, ...]) -> bool:
    """True if folders of these names can lie in each other below a time folder."""
    return all(level == 1 or _NUMBER.fullmatch(name) for level, name in enumerate(names))


def _below_time(time: Path, start: str) -> Iterator[Unit]:
    """Units of a time folder that lie below a folder in it."""
    rank = RANK_FOLDER.fullmatch(time.parent.name)
    for path in _folders(start, len(Path(start).parts) - len(time.parts)):
        parts = Path(path).parts[len(time.parts) :]
        yield Unit(
            path=path,
            rank=int(rank[2]) if rank else None,
            time=time.name,
            device=int(parts[0]),
            model_name=parts[1],
            model_id=int(parts[2]),
            step=int(parts[3]),
        )


def _folders(path: str, depth: int) -> Iterator[str]:
    """Folders of steps below one that lies so many levels below its time folder."""
    if depth == _BELOW_TIME:
        yield path
        return
    for entry in scan(path):
        is_number = _NUMBER.fullmatch(entry.name) is not None
        if entry.is_dir(follow_symlinks=False) and (is_number or depth == 1):
            yield from _folders(entry.path, depth + 1)


def _time_folders(path: Path, depth: int) -> Iterator[str]:
    """Time folders below a path; so few entries are looked at that any folder may come."""
    waiting = [str(path)]
    entries_left = _MAX_ENTRIES
    for _ in range(depth):
        deeper = []
        for folder in waiting:
            try:
                entries = scan(folder)
            except FormatError:
                continue  # whoever lists the folder says why
            entries_left -= len(entries) + 1
            if entries_left < 0:
                return
            inner = sorted(e.path for e in entries if e.is_dir(follow_symlinks=False))
            times = [one for one in inner if TIME_FOLDER.fullmatch(one.rpartition("/")[2])]
            for time in times:
                if _has_devices(Path(time)):
                    yield time
            deeper += [one for one in inner if one not in times] if len(inner) < 64 else []
        waiting = deeper


def _has_devices(time: Path) -> bool:
    try:
        return any(
            _NUMBER.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            for entry in scan(time)
        )
    except FormatError:
        return False


def _holds_files(path: str) -> bool:
    """True if dump files lie directly in a folder."""
    try:
        entries = [e.name for e in scan(path) if e.is_file(follow_symlinks=False)]
    except FormatError:
        return False
    if any(is_file_of_dump(name) for name in entries):
        return True
    return MAPPING_FILE in entries and any(HASHED_NAME.fullmatch(name) for name in entries)


def _root_of(time: Path) -> Path:
    parent = time.parent
    return parent.parent if RANK_FOLDER.fullmatch(parent.name) else parent


def _beside(place: GePlace) -> list[Path]:
    """Files above the time folders: in the root, and below it if it was given itself."""
    found: list[Path] = []
    waiting = [place.root]
    if place.start != place.root:
        waiting.append(place.start if place.time is None else place.time.parent)
    for _ in range(_DEPTH):
        deeper = []
        for folder in list(dict.fromkeys(waiting))[:_MAX_FOLDERS]:
            try:
                entries = scan(folder)
            except FormatError:
                continue
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    found.append(Path(entry.path))
                elif entry.is_dir(follow_symlinks=False) and not TIME_FOLDER.fullmatch(entry.name):
                    deeper.append(Path(entry.path))
        waiting = deeper if place.start == place.root else []
    return found
