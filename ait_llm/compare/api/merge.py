"""Communication of all ranks in one workbook, from the tables of each rank."""

from __future__ import annotations

import csv
import math
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ait_llm.compare.api.columns import CONSISTENT, DIFFERENCES, METRICS, Mode, metric_columns
from ait_llm.compare.api.settings import read_yaml
from ait_llm.compare.api.tables import Sheets
from ait_llm.core import whole_number
from ait_llm.core.optional import import_optional
from ait_llm.errors import FormatError, UsageError
from ait_llm.formats.opening import open_regular
from ait_llm.report.files import make_folder
from ait_llm.report.workbooks import workbook

_NAME = re.compile(r"compare_result_rank(\d+)(?:-rank\d+)?_(\d{14})\.(csv|xlsx)")
_NUMBERS = re.compile(r"(\d+)")
_MAX_WORKBOOK = 2 << 30
# What tells nothing by itself; the maxima of both sides are shown in its place.
_WITHOUT_VALUE = frozenset({"N/A", "unsupported", "Nan", "None", ""})
_GROUP = "torch.ProcessGroup"
_NAME_COLUMN, _DTYPE, _MINE, _GOLDEN = "NPU Name", "NPU Dtype", "NPU max", "Bench max"


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """The manual's ``config.yaml``.

    Attributes:
        apis: names of calls, or beginnings of them that end at a dot.
        columns: what to collect; empty for every metric of the tables.
    """

    apis: tuple[str, ...]
    columns: tuple[str, ...] = ()

    def wants(self, name: str) -> bool:
        """True for a row of one of the calls."""
        return any(name == api or name.startswith(f"{api}.") for api in self.apis)


@dataclass(frozen=True, slots=True)
class Merged:
    """What was written.

    Attributes:
        path: the workbook.
        ranks: the ranks in it.
        rows: rows of each sheet.
        problems: what was left out.
    """

    path: Path
    ranks: tuple[int, ...]
    rows: int
    problems: tuple[str, ...]


def read_merge_settings(path: Path) -> MergeSettings:
    """Read the yaml file that says what to collect.

    Raises:
        FormatError: it is no such file.
        MissingDependencyError: PyYAML is not installed.
    """
    content = read_yaml(path, "a configuration of merge-result")
    if not isinstance(content, dict) or not content.get("api"):
        raise FormatError(path, "names no api", "Write 'api:' and a list such as Distributed")
    unknown = set(content) - {"api", "compare_index"}
    if unknown:
        raise FormatError(path, f"has an unknown key {min(map(str, unknown))!r}")
    apis, columns = (content.get(key) or [] for key in ("api", "compare_index"))
    for key, found in (("api", apis), ("compare_index", columns)):
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise FormatError(path, f"{key!r} is not a list of names")
    return MergeSettings(tuple(apis), tuple(columns))


def merge_results(folder: Path, output: Path, settings: MergeSettings, stamp: str) -> Merged:
    """Collect the rows of some calls from the tables of all ranks.

    One sheet per metric, one row per name, one column per rank; a name that a rank does not have
    leaves its cell empty. What has no value is shown as ``NPU:{max}  Bench:{max}``; a process group
    as its ranks.

    Args:
        folder: holds ``compare_result_rank{N}_{time}.csv`` or ``.xlsx``; the newest of each rank
            counts.
        output: folder of ``multi_ranks_compare_merge_{stamp}.xlsx``.
        settings: what to collect.
        stamp: time in the name.

    Raises:
        FormatError: a table cannot be read or has not the columns.
        UsageError: there are no tables of at least two ranks, or they do not fit together.
        MissingDependencyError: openpyxl is not installed.
    """
    tables = _newest(folder)
    if len(tables) < 2 and any(folder.glob("compare_result_step*_rank*")):
        raise UsageError(
            f"{folder}: holds tables of several steps, which are not merged; "
            "compare the folder of one step with all its ranks"
        )
    if len(tables) < 2:
        raise UsageError(
            f"{folder}: holds compare_result_rank*_*.csv or .xlsx of {len(tables)} ranks; "
            "at least two are needed"
        )
    columns: tuple[str, ...] = settings.columns
    rows: dict[str, dict[int, Mapping[str, Any]]] = {}
    mode: Mode | None = None
    for rank, path in tables.items():
        for row in _rows(path):
            found = _mode(path, row)
            if mode is not None and found != mode:
                raise UsageError(f"{folder}: {path.name} was made in another mode than the others")
            mode = found
            name = str(row.get(_NAME_COLUMN))
            if settings.wants(name):
                rows.setdefault(name, {})[rank] = row
    if mode is None:
        raise UsageError(f"{folder}: the tables have no rows")
    known = metric_columns(mode)
    columns = columns or known
    unknown = [column for column in columns if column not in known]
    if unknown:
        raise UsageError(f"{unknown[0]!r} is no column of these tables; known: {', '.join(known)}")
    problems = [f"no rank has {api}" for api in settings.apis if not _is_found(api, rows)]
    make_folder(output)
    path = output / f"multi_ranks_compare_merge_{stamp}.xlsx"
    _write(path, columns, rows, tuple(tables))
    return Merged(path, tuple(tables), len(rows), tuple(problems))


def _is_found(api: str, names: Mapping[str, Any]) -> bool:
    return any(MergeSettings((api,)).wants(name) for name in names)


def _newest(folder: Path) -> dict[int, Path]:
    """The newest table of each rank; csv before xlsx, which is slower to read."""
    found: dict[int, tuple[str, bool, Path]] = {}
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise FormatError(folder, f"cannot be listed ({error.strerror})") from None
    for path in paths:
        name = _NAME.fullmatch(path.name)
        if name is not None:
            entry = (name[2], name[3] == "csv", path)
            found[int(name[1])] = max(found.get(int(name[1]), entry), entry)
    return {rank: found[rank][2] for rank in sorted(found)}


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    if path.suffix == ".csv":
        with open_regular(path) as raw:
            lines = (line.decode("utf-8", "replace") for line in raw)
            try:
                yield from csv.DictReader(lines)
            except csv.Error as error:
                raise FormatError(path, f"is not a table that can be read ({error})") from None
        return
    openpyxl = import_optional("openpyxl", "reading xlsx tables", "xlsx")
    try:
        _check_size(path)
        book = openpyxl.load_workbook(path, read_only=True)
        for sheet in book:
            cells = iter(sheet.iter_rows(values_only=True))
            header = [str(cell) for cell in next(cells, ())]
            for row in cells:
                yield dict(zip(header, row, strict=False))
        book.close()
    except FormatError:
        raise
    except Exception as error:  # noqa: BLE001  # zip, XML and openpyxl raise almost any type
        raise FormatError(path, f"is not a workbook that can be read ({error})") from None


def _check_size(path: Path) -> None:
    """Refuse a workbook that unpacks to more than any table has."""
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size > _MAX_WORKBOOK:
        raise FormatError(path, f"unpacks to {size} bytes, more than {_MAX_WORKBOOK}")


def _mode(path: Path, row: Mapping[str, Any]) -> Mode:
    if METRICS[0] in row:
        return "tensor"
    if DIFFERENCES[0] in row:
        return "statistics"
    if "NPU MD5" in row:
        raise UsageError(f"{path}: is a table of checksums, which have nothing to collect")
    raise FormatError(path, "has not the columns of a table of compare")


def _write(
    path: Path,
    columns: Sequence[str],
    rows: Mapping[str, Mapping[int, Mapping[str, Any]]],
    ranks: Sequence[int],
) -> None:
    with workbook(path) as book:
        for column in columns:
            sheet = Sheets(book, column, (_NAME_COLUMN, *(f"rank{rank}" for rank in ranks)))
            for name in sorted(rows, key=_order):
                by_rank = rows[name]
                sheet.add([name, *(_cell(by_rank.get(rank), column) for rank in ranks)])


def _order(name: str) -> list[tuple[int, int, str]]:
    """Names by function, then number of the call."""
    parts = ((part, whole_number(part)) for part in _NUMBERS.split(name))
    return [(0, 0, part) if number is None else (1, number, "") for part, number in parts]


def _cell(row: Mapping[str, Any] | None, column: str) -> Any:
    if row is None:
        return ""
    if row.get(_DTYPE) == _GROUP:
        return str(row.get(_MINE))
    value = row.get(column)
    text = "" if value is None else str(value).strip()
    if text in _WITHOUT_VALUE:
        return f"NPU:{row.get(_MINE)}  Bench:{row.get(_GOLDEN)}"
    if column == CONSISTENT or text.endswith("%"):
        return text
    try:
        number = float(text)
    except ValueError:
        return text
    if not math.isfinite(number):
        return text
    return int(number) if number.is_integer() and "." not in text else number
