"""Shapes and element types of a topology's tensors, from the operation table of the same run."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

from ait_llm.core import DType
from ait_llm.errors import FormatError, UsageError
from ait_llm.formats.opening import open_regular
from ait_llm.topology.graph import Node

TABLE_DIRECTORY = "operation_io_tensors"
_TABLE_NAME = re.compile(r"operation_tensors_(\d+)\.csv")
_COLUMNS = 21
_OP_NAME, _IN_DTYPE, _IN_SHAPE, _OUT_DTYPE, _OUT_SHAPE, _IN_FILE = 2, 5, 7, 9, 11, 14
_PORT = re.compile(r"(?:in|out)tensor\d+_(.+)\.bin")

Dim = int | str  # text where the table holds something that is not a whole number >= 0


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """What the table says of one tensor.

    Attributes:
        dtype: element type; None when the name in the table is unknown.
        dtype_name: that name as written.
        shape: dimensions, or None when the table has none.
    """

    dtype: DType | None
    dtype_name: str
    shape: tuple[Dim, ...] | None


@dataclass(frozen=True, slots=True)
class OperationRow:
    """The tensors of one operation, in its own order.

    ``ports`` are the input names of the operation's definition, where the dump's file names carry
    them.
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    ports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OperationTable:
    """What is known of the tensors of one execution, by operation name.

    Attributes:
        name: where it was read, relative to the dump.
        execution: its number, or None when the source has none.
        rows: by operation name.
    """

    name: str
    execution: int | None
    rows: Mapping[str, OperationRow]


def find_table(topology: Path, choice: Path | str | int | None) -> OperationTable | None:
    """Find and read the table that belongs to a topology file.

    Args:
        topology: a ``layer/{PID}/*.json`` or ``model/{PID}/*.json`` file.
        choice: a table file, an execution number, or None for the lowest number there is.

    Returns:
        The table, or None when nothing was chosen and the run wrote none.

    Raises:
        UsageError: the execution that was asked for has no table.
        FormatError: the table cannot be read.
    """
    if isinstance(choice, (str, Path)):
        return _cached(Path(choice))
    home = topology.absolute().parent
    folder = home.parent.parent / TABLE_DIRECTORY / home.name
    tables = {}
    if folder.is_dir():
        for path in folder.iterdir():
            if found := _TABLE_NAME.fullmatch(path.name):
                tables[int(found.group(1))] = path
    if choice is None:
        return _cached(tables[min(tables)]) if tables else None
    if choice not in tables:
        known = ", ".join(map(str, sorted(tables))) or "none"
        raise UsageError(f"{folder} has no table of execution {choice}; executions: {known}")
    return _cached(tables[choice])


def tensor_infos(root: Node, table: OperationTable) -> dict[str, list[TensorInfo]]:
    """What the table says of each tensor name; several entries are contradictions, first one first.

    A side of an operation counts only when the table has as many tensors as the topology: model
    files drop tensors without a name, and then positions say nothing.
    """
    infos: dict[str, list[TensorInfo]] = {}
    for node in root.leaves():
        row = table.rows.get(node.name)
        if row is None:
            continue
        for names, described in ((node.inputs, row.inputs), (node.outputs, row.outputs)):
            if len(names) != len(described):
                continue
            for name, info in zip(names, described, strict=True):
                known = infos.setdefault(name, [])
                if info not in known:
                    known.append(info)
    return infos


def _cached(path: Path) -> OperationTable:
    """One capture has dozens of topologies and one table: read it once while it is unchanged."""
    try:
        state = path.stat()
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from error
    return _read_table(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=2)
def _read_table(path: Path, _mtime_ns: int, _size: int) -> OperationTable:
    rows: dict[str, OperationRow] = {}
    try:
        with io.TextIOWrapper(
            open_regular(path), encoding="utf-8", errors="replace", newline="\n"
        ) as lines:
            header = next(lines, "").rstrip("\r\n").split("|")
            if len(header) != _COLUMNS or header[_OP_NAME] != "OpName":
                raise FormatError(path, f"the first line has not the {_COLUMNS} columns of a table")
            for line in lines:
                fields = line.rstrip("\r\n").split("|")
                # A killed process leaves a cut line: its operation is simply not described.
                if len(fields) == _COLUMNS and fields[_OP_NAME] not in rows:
                    rows[fields[_OP_NAME]] = _row(fields)
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from error
    found = _TABLE_NAME.fullmatch(path.name)
    return OperationTable(path.name, int(found.group(1)) if found else None, rows)


def _row(fields: list[str]) -> OperationRow:
    inputs = _infos(fields[_IN_DTYPE], fields[_IN_SHAPE])
    files = [PurePosixPath(name).name for name in fields[_IN_FILE].split(";")]
    ports = [found.group(1) for name in files if (found := _PORT.fullmatch(name))]
    return OperationRow(
        inputs,
        _infos(fields[_OUT_DTYPE], fields[_OUT_SHAPE]),
        tuple(ports) if len(ports) == len(inputs) else (),
    )


def _infos(dtypes: str, shapes: str) -> tuple[TensorInfo, ...]:
    if not dtypes.strip():
        return ()
    names = [name.strip() for name in dtypes.split(";")]
    texts = shapes.split(";")
    texts += [""] * (len(names) - len(texts))
    return tuple(_info(name, text) for name, text in zip(names, texts, strict=False))


def _info(dtype_name: str, shape: str) -> TensorInfo:
    try:
        dtype = DType.from_label(dtype_name)
    except ValueError:
        dtype = None
    dims = tuple(_dim(text.strip()) for text in shape.split(",")) if shape.strip() else None
    return TensorInfo(dtype, dtype_name, dims)


def _dim(text: str) -> Dim:
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else text
