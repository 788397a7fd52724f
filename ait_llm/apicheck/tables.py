"""The two tables of a check, written call by call, and taken up again after an interruption."""

from __future__ import annotations

import csv
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast, get_args

from ait_llm.apicheck.metrics import Metrics
from ait_llm.apicheck.outcome import BLANK, ApiResult, OutputResult, Status
from ait_llm.errors import FormatError, UsageError
from ait_llm.formats.opening import read_small
from ait_llm.report.csv_table import safe_cell
from ait_llm.report.files import FILE_MODE, make_folder, replacing
from ait_llm.report.writing import STAMP_FORMAT

RESULT_COLUMNS = ("API name", "Forward Test Success", "Backward Test Success", "Message")

# Headers are those of the ecosystem's tables; other tools look for them.
METRIC_COLUMNS = {
    "cosine": "余弦相似度",
    "max_absolute": "最大绝对误差",
    "hundredth": "双百指标",
    "thousandth": "双千指标",
    "ten_thousandth": "双万指标",
    "unequal": "二进制一致错误率",
    "balance": "误差均衡性",
    "rmse": "均方根误差",
    "small_share": "小值域错误占比",
    "max_relative": "相对误差最大值",
    "mean_relative": "相对误差平均值",
    "nonfinite_share": "inf/nan错误率",
    "relative_share": "相对误差错误率",
    "absolute_share": "绝对误差错误率",
    "max_ulp": "ULP误差最大值",
    "mean_ulp": "ULP误差平均值",
    "ulp_share": "ULP误差大于阈值占比",
}
# Cells of floats that only one standard fills. Readers of the tables take one that is not blank for
# a sign of that standard.
_OF_STANDARD = {
    "binary": ("unequal",),
    "absolute": ("nonfinite_share", "relative_share", "absolute_share"),
    "ulp": ("max_ulp", "mean_ulp", "ulp_share"),
}
DETAIL_COLUMNS = (
    *("API Name", "Bench Dtype", "DEVICE Dtype", "Shape"),
    *METRIC_COLUMNS.values(),
    *("Status", "Message"),
)
_RESULT_NAME = re.compile(r"accuracy_checking_result_(\d{14})(.*)\.csv")
_MAX_BYTES = 1 << 30
_DIRECTION = re.compile(r"\.(?:forward|backward)\.output\.[0-9.]+$")


def free_stamp(folder: Path) -> str:
    """The time now, or the next second of which no table lies in the folder."""
    now = time.time()
    while True:
        stamp = time.strftime(STAMP_FORMAT, time.localtime(now))
        if not any(folder.glob(f"*_{stamp}*.csv")):
            return stamp
        now += 1


def stamp_of(result_file: Path) -> str:
    """The time in the name of a result table.

    Raises:
        UsageError: it is not named like one.
    """
    match = _RESULT_NAME.fullmatch(result_file.name)
    if match is None or not result_file.is_file():
        raise UsageError(
            f"{result_file}: no table of an earlier check; -csv_path takes its "
            "accuracy_checking_result_TIME.csv"
        )
    return match[1]


class Tables:
    """The result and the details table of one ``dump.json``, open for further rows.

    Args:
        folder: where they lie; created if needed.
        stamp: time in their names.
        suffix: rank and step in their names.
        standard: by which outputs are judged.

    Tables that are there already are continued: :attr:`earlier` has their calls, and rows of a call
    that had not been finished are removed.

    Raises:
        UsageError: they cannot be written.
        FormatError: what is there are no such tables.
    """

    def __init__(self, folder: Path, stamp: str, suffix: str, standard: str) -> None:
        make_folder(folder)
        self._standard = standard
        self.result_path = folder / f"accuracy_checking_result_{stamp}{suffix}.csv"
        self.details_path = folder / f"accuracy_checking_details_{stamp}{suffix}.csv"
        self.earlier = _read_results(self.result_path) if self.result_path.exists() else []
        done = {result.name for result in self.earlier}
        _begin(self.result_path, RESULT_COLUMNS, (result_row(each) for each in self.earlier))
        details = _read_rows(self.details_path, DETAIL_COLUMNS)
        kept = [row for row in details if _DIRECTION.sub("", row[0]) in done]
        _begin(self.details_path, DETAIL_COLUMNS, kept)
        self._files: list[IO[str]] = []

    def __enter__(self) -> Tables:
        self._files = [_append(self.details_path), _append(self.result_path)]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file in self._files:
            try:
                file.close()  # writes what the disk did not take, once more
            except OSError as full:
                if error is None:
                    raise self._not_written(full) from full

    def add(self, result: ApiResult) -> None:
        """Write a call. The result comes after the details, so that what it names is whole."""
        details, results = self._files
        try:
            csv.writer(details, lineterminator="\n").writerows(detail_rows(result, self._standard))
            details.flush()
            csv.writer(results, lineterminator="\n").writerow(result_row(result))
            results.flush()
        except OSError as error:
            raise self._not_written(error) from error

    def _not_written(self, error: OSError) -> UsageError:
        return UsageError(
            f"{self.result_path}: cannot be written ({error.strerror}); continue with "
            f"-csv_path {self.result_path} when there is room"
        )


def result_row(result: ApiResult) -> list[str]:
    """One row of the result table."""
    return [safe_cell(result.name), result.forward, result.backward, safe_cell(result.message)]


def detail_rows(result: ApiResult, standard: str = "default") -> Iterator[list[str]]:
    """The rows of a call in the details table: one for each output and gradient."""
    for output in result.outputs:
        yield _detail_row(f"{result.name}.forward.output.{output.place}", output, standard)
    for gradient in result.gradients:
        yield _detail_row(f"{result.name}.backward.output.{gradient.place}", gradient, standard)
    if not result.outputs:
        blanks = [BLANK] * (3 + len(METRIC_COLUMNS))
        name = f"{result.name}.forward.output.0"
        yield [safe_cell(name), *blanks, result.forward, safe_cell(result.message)]


def _detail_row(name: str, output: OutputResult, standard: str) -> list[str]:
    metrics = output.metrics or Metrics()
    hidden: set[str] = set()
    if metrics.cosine is not None or metrics.rmse is not None:  # floats
        others = (fields for name, fields in _OF_STANDARD.items() if name != standard)
        hidden.update(*others)
    numbers = [
        BLANK if field in hidden else _number(getattr(metrics, field)) for field in METRIC_COLUMNS
    ]
    shape = BLANK if output.shape is None else str(output.shape)
    types = (output.golden_dtype or BLANK, output.device_dtype or BLANK)
    head = (safe_cell(name), *map(safe_cell, types), shape)
    return [*head, *numbers, output.status, safe_cell(output.message)]


def _number(value: float | None) -> str:
    return BLANK if value is None else f"{value:.14f}"


def _begin(path: Path, columns: Sequence[str], rows: Any) -> None:
    with replacing(path) as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(columns)
        table.writerows(rows)


def _append(path: Path) -> IO[str]:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, FILE_MODE)
    return os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace", newline="")


def _read_results(path: Path) -> list[ApiResult]:
    known = get_args(Status)
    found = []
    for name, forward, backward, message in _read_rows(path, RESULT_COLUMNS):
        states = [status if status.strip() else BLANK for status in (forward, backward)]
        if not set(states) <= set(known):
            said = ", ".join(repr(each[:20]) for each in states)
            raise FormatError(path, f"says {said} of {name[:80]}, which is no result")
        found.append(ApiResult(name, cast(Status, states[0]), cast(Status, states[1]), message))
    return found


def _read_rows(path: Path, columns: Sequence[str]) -> list[list[str]]:
    """The whole rows of a table; a last one that was cut off is left out."""
    if not path.exists():
        return []
    raw = read_small(path, _MAX_BYTES)
    text = raw[: raw.rfind(b"\n") + 1].decode("utf-8-sig", "replace")
    try:
        rows = list(csv.reader(text.splitlines(keepends=True)))
    except csv.Error as error:
        raise FormatError(path, f"is not a table that can be read ({error})") from None
    if not rows or rows[0] != list(columns):
        raise FormatError(path, f"does not begin with the columns {', '.join(columns[:4])}")
    return [row for row in rows[1:] if len(row) == len(columns)]
