"""Tables of statistics that the graph engine writes in place of values."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from ait_llm.core import DType
from ait_llm.dumps.model import Role
from ait_llm.errors import FormatError
from ait_llm.formats import Statistics
from ait_llm.formats.ge_types import GE_FORMATS, ge_type_of
from ait_llm.formats.opening import read_small

_MAX_BYTES = 16 << 20
_FORMAT_CODES = {name: code for code, name in GE_FORMATS.items()}


@dataclass(frozen=True, slots=True)
class Recorded:
    """One row: a tensor without values.

    Attributes:
        role, index: which tensor.
        dtype: element type, UNDEFINED if its name is not known.
        format: layout, ND if its name is not known.
        shape: dims.
        statistics: the numbers; the two counts of infinities are added.
    """

    role: Role
    index: int
    dtype: DType
    format: int
    shape: tuple[int, ...]
    statistics: Statistics


def read_statistics(path: Path) -> tuple[Recorded, ...]:
    """The rows of a table, inputs first.

    Raises:
        FormatError: it is not such a table.
    """
    data = read_small(path, _MAX_BYTES)
    lines = data.decode("utf-8-sig", "replace").splitlines()
    found = []
    try:
        rows = csv.reader(lines, skipinitialspace=True)
        names = [_column(cell) for cell in next(rows, [])]
        if "inputoutput" not in names or "index" not in names:
            raise FormatError(path, "is not a table of statistics")
        for cells in rows:
            if cells:
                found.append(_recorded(dict(zip(names, cells, strict=True))))
    except (KeyError, ValueError, OverflowError, csv.Error):
        raise FormatError(path, f"line {len(found) + 2} is damaged") from None
    return tuple(sorted(found, key=lambda row: (row.role, row.index)))


def _column(cell: str) -> str:
    return "".join(character for character in cell.lower() if character.isalnum())


def _recorded(row: dict[str, str]) -> Recorded:
    side = row["inputoutput"].strip().lower()
    if side not in ("input", "output"):
        raise ValueError(side)
    inf = [_count(row.get(name)) for name in ("negativeinfcount", "positiveinfcount")]
    dims = row.get("shape", "").strip(' []()"')
    return Recorded(
        role="in" if side == "input" else "out",
        index=int(row["index"]),
        dtype=ge_type_of(row.get("datatype", "")),
        format=_FORMAT_CODES.get(row.get("format", "").strip().lower(), 2),
        shape=tuple(int(dim) for dim in dims.replace(";", ",").replace("x", ",").split(",") if dim),
        statistics=Statistics(
            min=_number(row.get("minvalue")),
            max=_number(row.get("maxvalue")),
            mean=_number(row.get("avgvalue")),
            l2norm=_number(row.get("l2norm")),
            nan=_count(row.get("nancount")),
            inf=None if None in inf else sum(count or 0 for count in inf),
        ),
    )


def _number(cell: str | None) -> float | None:
    text = (cell or "").strip().lower()
    return None if text in ("", "na", "n/a", "none", "-") else float(text)


def _count(cell: str | None) -> int | None:
    number = _number(cell)
    return None if number is None else int(number)
