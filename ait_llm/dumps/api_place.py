"""Which files of an API dump a path means: steps, ranks, and the JSON files in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ait_llm.errors import FormatError
from ait_llm.formats.opening import contained_file, open_regular

NAMES = ("dump.json", "debug.json")
DATA_FOLDER = "dump_tensor_data"
STEP_NAME = re.compile(r"step([0-9]{1,9})")
# Captures without a distributed group name the process instead of the rank; very old ones, and
# runs on one device, may have neither number.
RANK_NAME = re.compile(r"(rank|proc)([0-9]{0,18})")
_HEAD = re.compile(r'\s*\{\s*"(task|level|framework|dump_data_dir|data)"\s*:')
_HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ApiPlace:
    """One JSON file of an API dump.

    Attributes:
        path: the file.
        step: which step, 0 where the folder does not say.
        rank: number of the rank, -1 where the folder names none.
        pid: process id, 0 where the folder names none.
    """

    path: Path
    step: int = 0
    rank: int = -1
    pid: int = 0

    @property
    def folder(self) -> Path:
        """The folder of the file, which holds its tensors, stacks and construction."""
        return self.path.parent

    @property
    def data_folder(self) -> Path:
        """The folder of the tensor files."""
        return self.folder / DATA_FOLDER


def is_api_dump(path: Path) -> bool:
    """True if a path is an API-level dump: a JSON file, or a folder of a rank, step or run."""
    try:
        return bool(find_api_places(path))
    except FormatError:
        return False


def find_api_places(path: Path) -> list[ApiPlace]:
    """The JSON files of a dump, by rank, then step.

    Args:
        path: a ``dump.json`` or ``debug.json``, the folder it lies in, the folder of a step, or
            that of all steps.

    Returns:
        An empty list if the path is no such dump.

    Raises:
        FormatError: a folder cannot be listed.
    """
    path = path.absolute()
    if not path.is_dir():
        is_one = path.suffix == ".json" and _is_api_json(path)
        return [_place(path)] if is_one else []
    places = list(_in_rank(path))
    if not places:
        for folder in _folders(path, RANK_NAME):
            places += _in_rank(folder)
    if not places:
        for step in _folders(path, STEP_NAME):
            places += _in_rank(step)
            for folder in _folders(step, RANK_NAME):
                places += _in_rank(folder)
    return sorted(places, key=lambda each: (each.rank, each.pid, each.step))


def _in_rank(folder: Path) -> Iterator[ApiPlace]:
    for name in NAMES:
        path = folder / name
        if path.is_file() and _is_api_json(contained_file(path, folder)):
            yield _place(path)


def _place(path: Path) -> ApiPlace:
    step, rank, pid = 0, -1, 0
    parents = [path.parent.name, path.parent.parent.name]
    match = RANK_NAME.fullmatch(parents[0])
    if match is not None:
        number = int(match[2] or 0)
        rank, pid = (number, 0) if match[1] == "rank" else (-1, number)
        parents = parents[1:]
    found = STEP_NAME.fullmatch(parents[0])
    if found is not None:
        step = int(found[1])
    return ApiPlace(path, step, rank, pid)


def _folders(path: Path, names: re.Pattern[str]) -> list[Path]:
    try:
        found = [
            each for each in path.iterdir() if names.fullmatch(each.name) and not each.is_symlink()
        ]
    except OSError as error:
        raise FormatError(path, f"cannot be listed ({error.strerror})") from None
    return sorted((each for each in found if each.is_dir()), key=lambda each: each.name)


def _is_api_json(path: Path) -> bool:
    """True if the file begins like one; an empty one is what a killed process leaves."""
    with open_regular(path) as file:
        head = file.read(_HEAD_BYTES)
    if not head.strip():
        return RANK_NAME.fullmatch(path.parent.name) is not None
    return _HEAD.match(head.decode("utf-8", "replace")) is not None
