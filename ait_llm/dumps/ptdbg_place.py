"""Which ``.pkl`` files of a ptdbg dump a path means."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ait_llm.dumps.api_place import STEP_NAME
from ait_llm.dumps.ptdbg_lines import SUFFIX, is_text
from ait_llm.errors import FormatError

# ``ptdbg_dump_v2.0``, or the tag that the user gave and the version
VERSION_NAME = re.compile(r".+_v[0-9]+(\.[0-9]+)*")
RANK_NAME = re.compile(r"rank([0-9]{0,9})")


@dataclass(frozen=True, slots=True)
class PtdbgPlace:
    """One file of a ptdbg dump.

    Attributes:
        path: the ``.pkl`` file.
        step: which step, 0 where the folder does not say.
        rank: number of the rank, -1 where the folder names none.
        data: the folder of the ``.npy`` files, where it is not called like the file.
    """

    path: Path
    step: int = 0
    rank: int = -1
    data: Path | None = None

    @property
    def data_folder(self) -> Path:
        """The folder of the ``.npy`` files."""
        return self.path.with_suffix("") if self.data is None else self.data


def find_ptdbg_places(path: Path) -> list[PtdbgPlace]:
    """The files of a dump, by rank, then step.

    Args:
        path: a ``.pkl`` file, or any folder above it: rank, step, tag and version, or that of tags.

    Returns:
        An empty list if the path is no such dump.

    Raises:
        FormatError: a folder cannot be listed.
    """
    path = path.absolute()
    if not path.is_dir():
        return [_place(path)] if path.suffix == SUFFIX else []
    places = list(_below(path, (RANK_NAME, STEP_NAME, VERSION_NAME)))
    return sorted(places, key=lambda each: (each.rank, each.step, each.path.name))


def _below(folder: Path, names: tuple[re.Pattern[str], ...]) -> Iterator[PtdbgPlace]:
    """Files of a folder, else of the folders of ranks, steps and tags in it."""
    found = [each for each in _listed(folder, SUFFIX) if is_text(each)]
    if found:
        yield from map(_place, found)
        return
    for number, pattern in enumerate(names):
        inner = [each for each in _listed(folder) if pattern.fullmatch(each.name)]
        for each in inner:
            yield from _below(each, names[:number])
        if inner:
            return


def _listed(folder: Path, suffix: str = "") -> list[Path]:
    try:
        entries = sorted(each for each in folder.iterdir() if not each.is_symlink())
    except OSError as error:
        raise FormatError(folder, f"cannot be listed ({error.strerror})") from None
    if suffix:
        return [each for each in entries if each.suffix == suffix and each.is_file()]
    return [each for each in entries if each.is_dir()]


def _place(path: Path) -> PtdbgPlace:
    rank = RANK_NAME.fullmatch(path.parent.name)
    folder = path.parent if rank is None else path.parent.parent
    step = STEP_NAME.fullmatch(folder.name)
    return PtdbgPlace(
        path,
        int(step[1]) if step is not None else 0,
        int(rank[1]) if rank is not None and rank[1] else -1,
    )
