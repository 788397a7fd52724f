"""Files converted in other processes, in the order of their sources."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ait_llm.convert.one_file import Conversion, Converted, convert_file
from ait_llm.engine import Engine, Lost, attempt
from ait_llm.naming import shown
from ait_llm.storage import address, local_path

_UNITS_PER_SLOT = 8
_MOST = 64  # files of a unit


@dataclass(frozen=True)
class Request:
    """A conversion, as far as a worker must know it.

    Attributes:
        base: path or URL of the folder of the sources.
        conversion: what is done to each.
        started: time of the file system of the output in ns, before anything was written.
    """

    base: str
    conversion: Conversion
    started: int


def convert_names(request: Request, names: Sequence[str]) -> list[Converted]:
    """Convert files, named by their paths below the base."""
    base, conversion = local_path(request.base), request.conversion
    if attempt() > 1:  # what the first one left is not in the way
        conversion = replace(conversion, own_since=request.started)
    found = []
    for name in names:
        one = convert_file(conversion, base, base / name)
        # a problem may name a copy that only this process has
        found.append(replace(one, problems=[shown(text) for text in one.problems]))
    return found


def convert_elsewhere(
    engine: Engine, conversion: Conversion, base: Path, sources: Sequence[Path]
) -> Generator[Converted, None, None]:
    """Convert files below a folder with an engine; workers must see the output too."""
    size = min(max(len(sources) // (engine.slots * _UNITS_PER_SLOT), 1), _MOST)
    batches = [sources[first : first + size] for first in range(0, len(sources), size)]
    units = tuple(tuple(str(path.relative_to(base)) for path in batch) for batch in batches)
    request = Request(address(base), conversion, _time_of(conversion.output))
    waiting: dict[int, list[Converted]] = {}
    following = 0
    running = engine.run(
        partial(convert_names, request), units, roots=(request.base, str(conversion.output))
    )
    with closing(running) as results:
        for index, answer in results:
            if isinstance(answer, Lost):
                lost = [f"{path}: was not converted: {answer.reason}" for path in batches[index]]
                waiting[index] = [Converted(problems=[text]) for text in lost]
            else:
                waiting[index] = answer
            while following in waiting:
                yield from waiting.pop(following)
                following += 1


def _time_of(folder: Path) -> int:
    """The time in ns by the clock of a folder's file system."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".ait-") as file:
        return Path(file.name).stat().st_mtime_ns
