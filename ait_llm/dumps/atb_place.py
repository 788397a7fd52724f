"""Which part of which ATB dump a path means.

Three layouts are known: ours and msit's (``ait_dump``, ``msit_dump_{time}``: tensors in
``tensors/``), msprobe's (``atb_dump_data``: tensors in ``data/``, graphs in ``info/``), and that of
the first probes, which put ``{device}_{PID}`` straight into the output directory.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ait_llm.dumps.atb_tree import subfolders
from ait_llm.errors import FormatError

ROOT_NAME = re.compile(r"(?:ait_dump|msit_dump)(?:_.*)?|atb_dump_data")
PROCESS_NAME = re.compile(r"(-1|0|[1-9][0-9]{0,8})_(0|[1-9][0-9]{0,18})")
STEP_NAME = re.compile(r"0|[1-9][0-9]{0,18}")
_OPERATION_NAME = re.compile(r"([0-9]{1,19})_.+")
_MSPROBE_ROOT = "atb_dump_data"
# what only an ATB capture writes into its root
_PARTS = (
    "tensors",
    "tiling",
    "layer",
    "model",
    "operation_io_tensors",
    "kernel_io_tensors",
    "cpu_profiling",
    "statistics",
)


@dataclass(frozen=True, slots=True)
class AtbPlace:
    """An ATB dump and the part of it that was asked for.

    Attributes:
        root: the dump; nothing outside of it is ever read.
        tensors: folder of the ``{device}_{PID}`` folders; it may be missing.
        graphs: folder of ``layer`` and ``model``.
        process: only this ``(device, pid)``, or None for all.
        step: only this execution count, or None for all.
        prefix: only operations within this id; empty for all.
    """

    root: Path
    tensors: Path
    graphs: Path
    process: tuple[int, int] | None = None
    step: int | None = None
    prefix: tuple[int, ...] = ()


def find_place(path: Path) -> AtbPlace | None:
    """Recognise an ATB dump, whichever of its folders is given.

    Args:
        path: an existing folder.

    Returns:
        None if it is not part of an ATB dump.

    Raises:
        FormatError: it holds several dumps, or cannot be listed.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100  # resolve() would follow links
    return _below(path) or _at_root(path) or _inside(path) or _bare(path)


def _below(path: Path) -> AtbPlace | None:
    """The output directory of a run."""
    roots = [path / match[0] for match in subfolders(path, ROOT_NAME)]
    places = [place for root in sorted(roots) if (place := _at_root(root)) is not None]
    if len(places) > 1:
        names = ", ".join(place.root.name for place in places)
        raise FormatError(path, f"holds {len(places)} dumps ({names})", "Give one of them")
    return places[0] if places else None


def _at_root(path: Path) -> AtbPlace | None:
    if path.name == _MSPROBE_ROOT:
        return AtbPlace(path, path / "data", path / "info")
    here = {match[0] for match in subfolders(path, re.compile(r"[a-z_]+"))}
    unnamed = ROOT_NAME.fullmatch(path.name) is None
    if here.intersection(_PARTS) if unnamed else (here.intersection(_PARTS) or here <= {"ledger"}):
        if unnamed and not here & {"tensors", "ledger", "operation_io_tensors"}:
            return None  # a folder that happens to be called "model" does not make a dump
        return AtbPlace(path, path / "tensors", path)
    return None


def _inside(path: Path) -> AtbPlace | None:
    """The tensors folder of a dump, or a process, step or operation in it."""
    for root in path.parents:
        first, *rest = path.relative_to(root).parts
        if first == "tensors" and not rest and not subfolders(path, PROCESS_NAME):
            return None
        if first == "tensors" or (first == "data" and root.name == _MSPROBE_ROOT):
            graphs = root if first == "tensors" else root / "info"
            return _select(AtbPlace(root, root / first, graphs), path, rest)
    return None


def _bare(path: Path) -> AtbPlace | None:
    """``{device}_{PID}`` folders that lie in no dump: of an early probe, or copied out."""
    for levels, tensors in enumerate((path, *path.parents[:2])):
        parts = path.relative_to(tensors).parts
        process = parts[0] if parts else _first_process(tensors)
        if process is not None and _holds_operations(tensors / process):
            place = AtbPlace(tensors, tensors, tensors)
            return _select(place, path, list(parts)) if levels else place
    return None


def _first_process(path: Path) -> str | None:
    matches = subfolders(path, PROCESS_NAME)
    return matches[0][0] if matches else None


def _holds_operations(process: Path) -> bool:
    if PROCESS_NAME.fullmatch(process.name) is None or not process.is_dir():
        return False
    return any(
        subfolders(process / match[0], _OPERATION_NAME) for match in subfolders(process, STEP_NAME)
    )


def _select(place: AtbPlace, path: Path, parts: list[str]) -> AtbPlace | None:
    """Narrow a place to ``[process, step, operation...]`` below its tensors folder."""
    if not parts:
        return place
    process = PROCESS_NAME.fullmatch(parts[0])
    if process is None:
        return None
    if len(parts) > 1 and STEP_NAME.fullmatch(parts[1]) is None:
        return None
    operations = [_OPERATION_NAME.fullmatch(part) for part in parts[2:]]
    if operations and operations[-1] is None and parts[-1] in ("before", "after"):
        operations.pop()
    prefix = tuple(int(match[1]) for match in operations if match is not None)
    if len(prefix) != len(operations):
        raise FormatError(path, "is not the folder of an operation")
    return AtbPlace(
        place.root,
        place.tensors,
        place.graphs,
        (int(process[1]), int(process[2])),
        int(parts[1]) if len(parts) > 1 else None,
        prefix,
    )
