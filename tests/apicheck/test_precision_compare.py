"""Two devices: limits of ratios, and what one table lacks."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from ait_llm.apicheck import compare_precision
from ait_llm.apicheck.tables import DETAIL_COLUMNS, METRIC_COLUMNS
from ait_llm.errors import FormatError
from ait_llm.judge.api_limits import RATIOS

BASE = {
    "cosine": 1.0,
    "max_absolute": 1.0,
    "balance": 0.0,
    "rmse": 0.01,
    "small_share": 0.01,
    "max_relative": 0.01,
    "mean_relative": 0.01,
}


def details(path: Path, rows: dict[str, dict[str, float | str]]) -> Path:
    """A details table; each row has the columns given, and the metrics of BASE if it has none."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, DETAIL_COLUMNS, restval=" ")
        table.writeheader()
        for name, given in rows.items():
            more = {key: value for key, value in given.items() if key in DETAIL_COLUMNS}
            numbers = {
                METRIC_COLUMNS[key]: f"{float(value):.14f}"
                for key, value in given.items()
                if key in METRIC_COLUMNS
            }
            row = {"DEVICE Dtype": "torch.float16", "Shape": "(2,)", "Status": "pass"}
            table.writerow({"API Name": name, **row, **numbers, **more})
    return path


def status(tmp_path: Path, name: str, mine: dict[str, float], trusted: dict[str, float]) -> str:
    sides = [
        details(tmp_path / f"{side}.csv", {name: {**BASE, **given}})
        for side, given in (("npu", mine), ("gpu", trusted))
    ]
    (row,) = compare_precision(*sides, tmp_path / "out").rows
    return row.status


@pytest.mark.parametrize(
    ("name", "api_class"),
    [
        ("Functional.relu.0.forward.output.0", "L0"),
        ("Functional.embedding.3.backward.output.0", "L1"),
        ("Torch.matmul.11.forward.output.0", "L2"),
    ],
)
def test_ratios_are_limited_by_the_class_of_the_function(
    name: str, api_class: str, tmp_path: Path
) -> None:
    for metric, limit in RATIOS[api_class].items():  # type: ignore[index]
        assert status(tmp_path, name, {metric: 0.0099 * limit}, {metric: 0.01}) == "pass"
        assert status(tmp_path, name, {metric: 0.0101 * limit}, {metric: 0.01}) == "error"
        # against nothing the floor of the type counts
        assert status(tmp_path, name, {metric: 2.0**-11 * limit}, {metric: 0.0}) == "pass"


def test_the_balance_is_told_and_not_judged(tmp_path: Path) -> None:
    name = "Functional.relu.0.forward.output.0"
    assert status(tmp_path, name, {"balance": 1.0}, {"balance": 0.0}) == "pass"


def test_what_is_infinite_on_the_device_only_is_an_error(tmp_path: Path) -> None:
    name, infinite = "Functional.relu.0.forward.output.0", {"max_absolute": float("inf")}
    assert status(tmp_path, name, infinite, {}) == "error"
    assert status(tmp_path, name, infinite, infinite) == "pass"
    assert status(tmp_path, name, {"rmse": float("inf")}, {}) == "error"


def test_rows_that_one_table_lacks_and_skipped_ones_are_not_passed(tmp_path: Path) -> None:
    one, two, three = (f"Torch.abs.{i}.forward.output.0" for i in range(3))
    npu = details(tmp_path / "npu.csv", {one: dict(BASE), two: {"Status": "SKIP"}})
    gpu = details(tmp_path / "gpu.csv", {two: dict(BASE), three: dict(BASE)})
    outcome = compare_precision(npu, gpu, tmp_path / "out")
    assert {row.name: row.status for row in outcome.rows} == dict.fromkeys(
        (one, two, three), "SKIP"
    )
    assert (outcome.exit_code(), outcome.exit_code(allow_skip=True)) == (3, 0)


@pytest.mark.parametrize(("share", "expected"), [(0.0, "pass"), (0.001, "error")])
def test_integers_must_be_equal(share: float, expected: str, tmp_path: Path) -> None:
    name = "Torch.argmax.0.forward.output.0"
    row = {"DEVICE Dtype": "torch.int64", "unequal": share}
    sides = [details(tmp_path / f"{side}.csv", {name: row}) for side in ("npu", "gpu")]
    (found,) = compare_precision(*sides, tmp_path / "out").rows
    assert found.status == expected


def test_directions_of_a_call_are_put_together(tmp_path: Path) -> None:
    forward, backward = (f"Torch.exp.0.{each}.output.0" for each in ("forward", "backward"))
    npu = details(tmp_path / "npu.csv", {forward: BASE, backward: {**BASE, "rmse": 1.0}})
    gpu = details(tmp_path / "gpu.csv", {forward: BASE, backward: BASE})
    ((name, first, second, message),) = compare_precision(npu, gpu, tmp_path).results
    assert (name, first, second) == ("Torch.exp.0", "pass", "error")
    assert message.startswith("backward: rmse is 100 times")


def test_another_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(FormatError, match="lacks the column API Name"):
        compare_precision(path, path, tmp_path)
