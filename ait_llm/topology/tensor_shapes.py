"""Shapes and element types from dumped tensors, for runs without an operation table."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from ait_llm.core import whole_number
from ait_llm.errors import FormatError
from ait_llm.formats import read_header
from ait_llm.topology.graph import Node
from ait_llm.topology.shapes import OperationRow, OperationTable, TensorInfo

TENSOR_DIRECTORY = "tensors"
_FILE = re.compile(r"(in|out)tensor(\d{1,9})(?:_(\w+))?\.bin")
_OPERATION = re.compile(r"(\d{1,19})_(.+)")


def table_from_tensors(topology: Path, root: Node) -> OperationTable | None:
    """Describe the leaves of a topology by the tensors of the first step that was saved.

    Args:
        topology: a ``layer/{PID}/*.json`` or ``model/{PID}/*.json`` file of a dump.
        root: its operations.

    Returns:
        One row for each operation whose folder was found, or None when the dump has no tensors of
        that process. A file that cannot be read leaves its side of the operation undescribed.
    """
    home = topology.absolute().parent
    step = _first_step(home.parent.parent / TENSOR_DIRECTORY, home.name)
    if step is None:
        return None
    folders = cache(_operations)
    rows: dict[str, OperationRow] = {}
    for node in root.leaves():
        folder: Path | None = step
        for number in node.op_id.parts if node.op_id else ():
            folder = folders(folder).get(number) if folder else None
        if folder and folder != step and folder.name.partition("_")[2] == node.op_type:
            rows.setdefault(node.name, _row(folder))
    name = "/".join((TENSOR_DIRECTORY, step.parent.name, step.name))
    return OperationTable(name, int(step.name), rows)


def _first_step(tensors: Path, process: str) -> Path | None:
    """``{device}_{PID}/{step}`` with the lowest step; the first device where there are several."""
    pid = process.rpartition("_")[2]
    for name in sorted(_subfolders(tensors)):
        if name.rpartition("_")[2] == pid:
            found = map(whole_number, _subfolders(tensors / name))
            steps = [step for step in found if step is not None]
            if steps:
                return tensors / name / str(min(steps))
    return None


def _operations(folder: Path) -> dict[int, Path]:
    matches = (_OPERATION.fullmatch(name) for name in _subfolders(folder))
    return {int(found[1]): folder / found[0] for found in matches if found}


def _subfolders(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _row(folder: Path) -> OperationRow:
    # What an operation reads is told best before it ran, what it writes afterwards.
    before, after = _tensors(folder / "before"), _tensors(folder / "after")
    inputs = before["in"] or after["in"]
    outputs = after["out"] or before["out"]
    ports = tuple(name for name, _ in inputs)
    return OperationRow(
        inputs=_infos(path for _, path in inputs),
        outputs=_infos(path for _, path in outputs),
        ports=ports if all(ports) else (),
    )


def _tensors(phase: Path) -> dict[str, list[tuple[str, Path]]]:
    """Names and files of one phase by side; a side with a gap in its numbers is empty."""
    sides: dict[str, dict[int, tuple[str, Path]]] = {"in": {}, "out": {}}
    if phase.is_dir():
        for path in phase.iterdir():
            if found := _FILE.fullmatch(path.name):
                sides[found[1]][int(found[2])] = (found[3] or "", path)
    complete = {side: sorted(files) == list(range(len(files))) for side, files in sides.items()}
    return {
        side: [files[number] for number in sorted(files)] if complete[side] else []
        for side, files in sides.items()
    }


def _infos(paths: Iterable[Path]) -> tuple[TensorInfo, ...]:
    infos = []
    for path in paths:
        try:
            desc = read_header(path).desc
        except FormatError:
            return ()
        infos.append(TensorInfo(desc.dtype, desc.dtype.label, desc.shape or None))
    return tuple(infos)
