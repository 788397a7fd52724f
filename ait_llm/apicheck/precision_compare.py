"""Two devices against each other: the details tables of both, by ratios of their errors.

Each device was checked against a CPU run. Where the device under test errs by more than a multiple
of what the trusted device errs, it is at fault; where both err alike, the function is just hard.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ait_llm.apicheck.outcome import BLANK, ERROR, PASS, SKIP, Status, joined, worst
from ait_llm.apicheck.standards import error_ratio
from ait_llm.apicheck.tables import METRIC_COLUMNS, RESULT_COLUMNS, free_stamp
from ait_llm.errors import FormatError
from ait_llm.formats.opening import read_small
from ait_llm.judge.api_limits import RATIOS, class_of, limits_of
from ait_llm.report.csv_table import safe_cell
from ait_llm.report.files import make_folder, replacing

# Headers of the ratio and of its verdict, by metric.
_RATIO_COLUMNS = {
    "small_share": ("小值域错误比值", "小值域判定结果"),
    "rmse": ("均方根误差比值", "均方根误差判定结果"),
    "max_relative": ("相对误差最大值比值", "相对误差最大值判定结果"),
    "mean_relative": ("相对误差平均值比值", "相对误差平均值判定结果"),
    "balance": ("误差均衡性比值", "误差均衡性判定结果"),
}
_BENCHMARK, _BINARY = "标杆比对法", "二进制一致法"
# Ratio of the error balance from which its column says so; the verdict does not depend on it.
_BALANCE = 2.0
_UNEQUAL = METRIC_COLUMNS["unequal"]
_COLUMNS = (
    "API Name",
    *(name for pair in _RATIO_COLUMNS.values() for name in pair),
    *("inf/nan错误率", "inf/nan判定结果", "相对误差错误率", "相对误差判定结果"),
    *("绝对误差错误率", "绝对误差判定结果", _UNEQUAL, "二进制一致错误率判定结果"),
    *("ULP误差平均值", "ULP误差大于阈值占比", "ULP误差大于阈值占比比值", "ULP误差判定结果"),
    *("双千指标", "双千指标判定结果", "比对结果", "比对算法", "Message"),
)
_NEEDED = ("API Name", "DEVICE Dtype", "Shape", "Status", "Message", *METRIC_COLUMNS.values())
_FLOATS = ("torch.float16", "torch.bfloat16", "torch.float32")
_NOT_JUDGED = ("torch.float64", "torch.complex64", "torch.complex128")
_NAME = re.compile(r"(.+\.\d+)\.(forward|backward)\.output\.[0-9.]+")
_MAX_BYTES = 1 << 30

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RowResult:
    """One output on both devices.

    Attributes:
        name: ``Functional.linear.0.forward.output.0``.
        status: its verdict.
        message: why.
        values: cells by header.
    """

    name: str
    status: Status
    message: str = ""
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PrecisionOutcome:
    """What a comparison of two devices says.

    Attributes:
        results: name, forward, backward and message of each call.
        rows: each output.
        files: the tables.
    """

    results: tuple[tuple[str, Status, Status, str], ...]
    rows: tuple[RowResult, ...]
    files: tuple[Path, ...]

    def exit_code(self, *, allow_skip: bool = False) -> int:
        """0: all well; 1: an API errs; 3: something could not be compared."""
        if any(row.status == ERROR for row in self.rows):
            return 1
        return 3 if not allow_skip and any(row.status == SKIP for row in self.rows) else 0


def compare_precision(npu: Path, gpu: Path, output: Path) -> PrecisionOutcome:
    """Compare the details tables of two devices and write what came of it.

    Args:
        npu: of the device under test.
        gpu: of the device that is trusted.
        output: folder for ``api_precision_compare_{result,details}_{time}.csv``.

    Raises:
        FormatError: a table is none of an accuracy check.
        UsageError: a table cannot be written.
    """
    mine, trusted = _read(npu), _read(gpu)
    rows = [_compare(name, row, trusted.get(name)) for name, row in mine.items()]
    rows += [
        RowResult(name, SKIP, f"{npu.name} does not have it") for name in trusted.keys() - mine
    ]
    results = tuple(_by_call(rows))
    make_folder(output)
    stamp = free_stamp(output)
    files = (
        output / f"api_precision_compare_result_{stamp}.csv",
        output / f"api_precision_compare_details_{stamp}.csv",
    )
    _write(
        files[0],
        ("API Name", *RESULT_COLUMNS[1:]),
        [(safe_cell(each[0]), *each[1:3], safe_cell(each[3])) for each in results],
    )
    _write(files[1], _COLUMNS, [_cells(row) for row in rows])
    return PrecisionOutcome(results, tuple(rows), files)


def _compare(name: str, mine: Row, trusted: Row | None) -> RowResult:
    dtype = mine["DEVICE Dtype"].strip()
    if trusted is None:
        return RowResult(name, SKIP, "the other table does not have it")
    if not dtype or mine["Status"] == SKIP or dtype in _NOT_JUDGED:
        why = mine["Message"].strip() or f"outputs of {dtype or 'no type'} are not compared"
        return RowResult(name, SKIP, why)
    if trusted["Status"] == SKIP:
        return RowResult(name, SKIP, f"the trusted device: {trusted['Message'].strip()}")
    if dtype not in _FLOATS:
        return _compare_bits(name, mine)
    return _compare_ratios(name, dtype, mine, trusted)


def _compare_bits(name: str, mine: Row) -> RowResult:
    share = _number(mine[_UNEQUAL])
    if share is None:  # dropouts, and what is no tensor
        passed = mine["Status"] == PASS
        return RowResult(name, PASS if passed else ERROR, mine["Message"].strip())
    status: Status = PASS if share == 0 else ERROR
    values = {_UNEQUAL: mine[_UNEQUAL], "二进制一致错误率判定结果": status, "比对算法": _BINARY}
    return RowResult(name, status, "" if share == 0 else f"{share:.3%} of them differ", values)


def _compare_ratios(name: str, dtype: str, mine: Row, trusted: Row) -> RowResult:
    match = _NAME.fullmatch(name)
    api = match[1].split(".")[-2] if match else ""
    limits = RATIOS[class_of(api)]
    values: dict[str, str] = {"比对算法": _BENCHMARK}
    reasons: list[str] = []
    judged = 0
    for metric, (ratio_column, status_column) in _RATIO_COLUMNS.items():
        pair = [_number(row[METRIC_COLUMNS[metric]]) for row in (mine, trusted)]
        if pair[0] is None or pair[1] is None:
            continue
        ratio = _ratio(pair[0], pair[1], limits_of(dtype).floor)
        limit = limits.get(metric, _BALANCE)
        is_over = math.isnan(ratio) or ratio > limit
        judged += metric in limits
        values[ratio_column] = f"{ratio:.14f}"
        values[status_column] = ERROR if is_over else PASS
        if is_over and metric in limits:
            reasons.append(f"{metric} is {ratio:.3g} times the trusted device's, over {limit:g}")
    if not judged:
        # too few metrics: a shape or type was wrong, or a dropout was judged by its zeros
        status: Status = PASS if mine["Status"] == PASS else ERROR
        return RowResult(name, status, mine["Message"].strip())
    errors = [_number(row[METRIC_COLUMNS["max_absolute"]]) or 0.0 for row in (mine, trusted)]
    if math.isinf(errors[0]) and not math.isinf(errors[1]):
        reasons.append("elements that are not finite differ from golden on this device only")
    return RowResult(name, ERROR if reasons else PASS, "; ".join(reasons), values)


def _ratio(mine: float, trusted: float, floor: float) -> float:
    """NaN where the ratio is not defined and that is no sign of agreement."""
    if math.isinf(mine) and mine == trusted:
        return 1.0
    if not (math.isfinite(mine) and math.isfinite(trusted)):
        return 1.0 if math.isnan(mine) and math.isnan(trusted) else math.nan
    return error_ratio(mine, trusted, floor)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _by_call(rows: Sequence[RowResult]) -> Iterator[tuple[str, Status, Status, str]]:
    calls: dict[str, dict[str, list[RowResult]]] = {}
    for row in rows:
        match = _NAME.fullmatch(row.name)
        name, direction = (match[1], match[2]) if match else (row.name, "forward")
        calls.setdefault(name, {"forward": [], "backward": []})[direction].append(row)
    for name, sides in calls.items():
        found = {side: worst([row.status for row in sides[side]]) for side in sides}
        reasons = {
            side: next((row.message for row in sides[side] if row.status == found[side]), "")
            for side in sides
        }
        message = joined(reasons["forward"], reasons["backward"])
        yield name, found["forward"], found["backward"], message


def _cells(row: RowResult) -> list[str]:
    given = {
        "API Name": safe_cell(row.name),
        "比对结果": row.status,
        "Message": safe_cell(row.message),
        **{column: safe_cell(text) for column, text in row.values.items()},
    }
    return [given.get(column, BLANK) for column in _COLUMNS]


def _read(path: Path) -> dict[str, Row]:
    raw = read_small(path, _MAX_BYTES)
    table = csv.DictReader(raw.decode("utf-8-sig", "replace").splitlines(keepends=True))
    try:
        columns = table.fieldnames or ()
        lacking = [name for name in _NEEDED if name not in columns]
        if lacking:
            raise FormatError(
                path,
                f"lacks the column {lacking[0]}",
                "Give an accuracy_checking_details_TIME.csv of ait llm api-check",
            )
        return {row["API Name"]: row for row in table if None not in row.values()}
    except csv.Error as error:
        raise FormatError(path, f"is not a table that can be read ({error})") from None


def _write(path: Path, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    with replacing(path) as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(columns)
        table.writerows(rows)
