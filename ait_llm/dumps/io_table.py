"""The operation and kernel tables of an ATB dump: one row per execution of a leaf operation.

``|`` separates the 21 columns, ``;`` the tensors within one and ``,`` the dims of a shape; nothing
is quoted. Names are those of the current library or ACL's (``ACL_FLOAT16``) of older ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ait_llm.core import DType, OpId
from ait_llm.dumps.atb_tree import subfolders_if_any
from ait_llm.errors import FormatError
from ait_llm.formats.names import format_code
from ait_llm.formats.opening import open_regular

_HEADER = (
    "CaseNum|CaseName|OpName|OpParam|InNum|InDType|InFormat|InShape|OutNum|OutDType|OutFormat|"
    "OutShape|DataGenType|DataGenRange|InTensorFile|OutTensorFile|TestType|TestLevel|FromModel|"
    "SocVersion|ExpectedError"
)
COLUMNS = tuple(_HEADER.split("|"))
_FILE = re.compile(r"(?:operation|kernel)_tensors_([0-9]{1,19})\.csv")
_NAME = re.compile(r"(.*?)((?:_[0-9]{1,19})+)")
_MAX_LINE_BYTES = 16 << 20
_UNKNOWN_FORMAT = -1


@dataclass(frozen=True, slots=True)
class IoTensor:
    """A tensor of a row.

    Attributes:
        dtype: element type, UNDEFINED for an empty optional tensor.
        format: ATB format code, -1 if undefined.
        shape: dims.
        file: path as written by the run, which may have been on another machine; None if blank.
    """

    dtype: DType
    format: int
    shape: tuple[int, ...]
    file: str | None


@dataclass(frozen=True, slots=True)
class IoRow:
    """One execution of an operation or kernel.

    Attributes:
        line: line in the file, 1-based.
        name: as written (``LinearOperation_0_1_0``, or a kernel's ``MatMulOperation``).
        type: the name without ids.
        op_id: the ids, None for kernels.
        params_text: the parameters as written.
        inputs, outputs: the tensors.
        soc: the chip; empty where the table does not say, or names several.
    """

    line: int
    name: str
    type: str
    op_id: OpId | None
    params_text: str
    inputs: tuple[IoTensor, ...]
    outputs: tuple[IoTensor, ...]
    soc: str = ""

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters; empty where the library printed none or something that is not JSON."""
        try:
            params = json.loads(self.params_text)
        except (ValueError, RecursionError):
            return MappingProxyType({})  # "<mangled name> can not be printed"
        return MappingProxyType(params if isinstance(params, dict) else {})


@dataclass(frozen=True, slots=True)
class IoTable:
    """A table file.

    Attributes:
        pid: the process.
        step: execution count.
        path: the file.
    """

    pid: int
    step: int
    path: Path

    def rows(self) -> Iterator[IoRow]:
        """The rows in the order of execution; a last line that was cut off is left out.

        Raises:
            FormatError: not such a table, or a damaged line.
        """
        return read_io_table(self.path)


def list_io_tables(folder: Path) -> list[IoTable]:
    """All tables below ``operation_io_tensors`` or ``kernel_io_tensors``, by process and step."""
    tables = [
        IoTable(int(process[0]), int(match[1]), path)
        for process in subfolders_if_any(folder, re.compile(r"[0-9]{1,19}"))
        for path in (folder / process[0]).glob("*.csv")
        if (match := _FILE.fullmatch(path.name)) is not None
    ]
    return sorted(tables, key=lambda table: (table.pid, table.step))


def read_io_table(path: Path) -> Iterator[IoRow]:
    """Stream the rows of a table, see :meth:`IoTable.rows`."""
    with open_regular(path) as file:
        line = 0
        while raw := file.readline(_MAX_LINE_BYTES + 1):
            line += 1
            if len(raw) > _MAX_LINE_BYTES:
                raise FormatError(path, f"line {line} is longer than {_MAX_LINE_BYTES} bytes")
            if not raw.endswith(b"\n") and line > 1:
                return  # the process was killed while writing it
            try:
                fields = raw.decode("utf-8").rstrip("\r\n").split("|")
            except UnicodeDecodeError:
                raise FormatError(path, f"line {line} is not text") from None
            if line == 1:
                if tuple(field.strip() for field in fields) != COLUMNS:
                    raise FormatError(path, "is not an operation table, its header is different")
            elif fields != [""]:
                yield _row(path, line, fields)


def _row(path: Path, line: int, fields: list[str]) -> IoRow:
    if len(fields) != len(COLUMNS):
        raise FormatError(path, f"line {line} has {len(fields)} columns, not {len(COLUMNS)}")
    row = dict(zip(COLUMNS, fields, strict=True))
    name = row["OpName"].strip()
    match = _NAME.fullmatch(name)
    return IoRow(
        line=line,
        name=name,
        type=match[1] if match else name,
        op_id=OpId.parse(match[2][1:]) if match else None,
        params_text=row["OpParam"],
        inputs=_tensors(path, line, row, "In"),
        outputs=_tensors(path, line, row, "Out"),
        soc="" if "," in row["SocVersion"] else row["SocVersion"].strip(),
    )


def _tensors(path: Path, line: int, row: Mapping[str, str], side: str) -> tuple[IoTensor, ...]:
    count_text = row[f"{side}Num"].strip() or "0"
    if not re.fullmatch(r"[0-9]{1,6}", count_text):
        raise FormatError(path, f"line {line} has no number in {side}Num")
    count = int(count_text)
    dtypes = _split(path, line, row, f"{side}DType", count)
    formats = _split(path, line, row, f"{side}Format", count)
    shapes = _split(path, line, row, f"{side}Shape", count)
    files = row[f"{side}TensorFile"].split(";")
    if len(files) != count:
        files = [""] * count  # blank in the first versions
    try:
        return tuple(
            IoTensor(_dtype(dtype), _format(form), _shape(shape), file.strip() or None)
            for dtype, form, shape, file in zip(dtypes, formats, shapes, files, strict=True)
        )
    except ValueError as error:
        raise FormatError(path, f"line {line}: {error}") from None


def _split(path: Path, line: int, row: Mapping[str, str], column: str, count: int) -> list[str]:
    fields = row[column].split(";") if count else []
    if len(fields) != count:
        raise FormatError(path, f"line {line} has {len(fields)} entries in {column}, not {count}")
    return [field.strip() for field in fields]


def _dtype(text: str) -> DType:
    return DType.from_label(text) if text else DType.UNDEFINED


def _format(text: str) -> int:
    return _UNKNOWN_FORMAT if text in ("", "unknown") else format_code(text)


def _shape(text: str) -> tuple[int, ...]:
    if not text:
        return ()
    if not re.fullmatch(r"[0-9]{1,19}(,[0-9]{1,19})*", text):
        raise ValueError(f"shape {text[:40]!r} is not numbers joined by ','")
    return tuple(int(dim) for dim in text.split(","))
