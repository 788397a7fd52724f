"""Where the tables differ from msprobe's on purpose."""

from __future__ import annotations

import csv
from pathlib import Path

import openpyxl
import pytest
from api_dumps import call, tensor, write_dump
from click.testing import CliRunner

from ait_llm.cli.main import ait
from ait_llm.compare.api.run import compare_api_dumps
from ait_llm.compare.api.settings import ApiOptions
from ait_llm.compare.api.tables import csv_table, xlsx_table

LINEAR = "Functional.linear.0.forward"


@pytest.mark.parametrize(("style", "result"), [("manual", "Warning"), ("release", "error")])
def test_an_infinite_relative_error_is_beyond_the_limit(
    tmp_path: Path, style: str, result: str
) -> None:
    paths = [
        write_dump(tmp_path / side, {LINEAR: call([tensor()], [tensor(values)])})
        for side, values in (("golden", [0.0, 0.0]), ("mine", [0.0, 3.0]))
    ]
    options = ApiOptions(style=style)  # type: ignore[arg-type]
    outcome = compare_api_dumps(paths[1], paths[0], tmp_path, "1", options, formats=["csv"])
    with outcome.pairs[0].files[0].open(newline="", encoding="utf-8") as file:
        row = list(csv.DictReader(file))[1]
    assert (row["NormRelativeErr"], row["Result"]) == ("inf", result)
    assert outcome.exit_code() == 1


def test_infinities_of_other_sign_are_at_other_places(tmp_path: Path) -> None:
    name = f"{LINEAR}.output.0.pt"
    paths = [
        write_dump(
            tmp_path / side,
            {LINEAR: call([], [tensor([1.0, 2.0], name=name)])},
            task="tensor",
            tensors={name: [1.0, value]},
        )
        for side, value in (("golden", float("inf")), ("mine", float("-inf")))
    ]
    outcome = compare_api_dumps(paths[1], paths[0], tmp_path, "1", ApiOptions(), formats=["csv"])
    blamed = outcome.pairs[0].blamed
    assert blamed is not None
    assert "NaN or Inf at one place where the other side differs" in blamed.judged.reason
    with outcome.pairs[0].files[0].open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert row["Err_message"].startswith("The Position of inf or nan")


def test_a_cell_that_looks_like_a_formula_is_text(tmp_path: Path) -> None:
    evil = "=HYPERLINK(1)"
    with csv_table(tmp_path / "a.csv", ["a", "b"]) as table:
        table.add([evil, -1.5])
    assert (tmp_path / "a.csv").read_text("utf-8").splitlines()[1] == f"'{evil},-1.5"
    with xlsx_table(tmp_path / "a.xlsx", ["a"]) as sheet:
        sheet.add([evil])
    cell = openpyxl.load_workbook(tmp_path / "a.xlsx").active["A2"]
    assert (cell.value, cell.data_type) == (evil, "s")


def test_modes_that_do_not_go_together_are_one_sentence_and_2(tmp_path: Path) -> None:
    records = {LINEAR: call([tensor()], [tensor()])}
    checked = {LINEAR: call([tensor(md5="00000001")], [tensor(md5="00000002")])}
    golden = write_dump(tmp_path / "golden", checked)
    mine = write_dump(tmp_path / "mine", records)
    words = ["llm", "compare", "-gp", str(golden), "-mp", str(mine), "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(ait, words)
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert "one has checksums only" in result.output


def test_the_first_difference_of_two_files_is_found(tmp_path: Path) -> None:
    golden, mine = (
        write_dump(tmp_path / side, {LINEAR: call([tensor()], [tensor([1.0, value])])})
        for side, value in (("golden", 1.0), ("mine", 5.0))
    )
    words = ["llm", "compare", "-gp", str(golden), "-mp", str(mine), "-o", str(tmp_path), "-da"]
    result = CliRunner().invoke(ait, words)
    assert result.exit_code == 1
    assert f"the first difference is in {LINEAR}" in result.output
