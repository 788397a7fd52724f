"""Results, messages, colours and advice as the manual describes them."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from api_dumps import call, scalar, tensor, write_dump

from ait_llm.compare.api.outcome import Outcome
from ait_llm.compare.api.run import compare_api_dumps
from ait_llm.compare.api.settings import ApiOptions
from ait_llm.core.comparison import Verdict

Rows = list[dict[str, str]]
LINEAR = "Functional.linear.0.forward"


def compared(
    tmp_path: Path,
    golden: Mapping[str, Any],
    mine: Mapping[str, Any],
    *,
    task: str = "statistics",
    values: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {}),
    formats: tuple[str, ...] = ("csv",),
    **options: Any,
) -> tuple[Rows, Outcome]:
    """Rows of the csv table and what came of it."""
    paths = [
        write_dump(tmp_path / side, records, task=task, tensors=tensors)
        for side, records, tensors in zip(("golden", "mine"), (golden, mine), values, strict=True)
    ]
    outcome = compare_api_dumps(
        paths[1], paths[0], tmp_path / "out", "1", ApiOptions(jobs=1, **options), formats=formats
    )
    with outcome.pairs[0].files[0].open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file)), outcome


def one(x: Any, y: Any, **more: Any) -> dict[str, Any]:
    """One linear call."""
    return {LINEAR: call([tensor(x, **more)], [tensor(y, **more)])}


def test_a_relative_error_above_one_half_is_a_warning(tmp_path: Path) -> None:
    rows, outcome = compared(tmp_path, one([1, 2], [1, 2]), one([1, 2], [1, 3.5]))
    assert [row["Result"] for row in rows] == ["", "Warning"]
    assert rows[1]["Err_message"] == "Need double check api accuracy."
    assert rows[1]["MaxRelativeErr"] == "75.0%"
    assert outcome.exit_code() == 1


RELU = {"Torch.relu.0.forward": call([tensor([-1, 2])], [tensor([0, 2])])}


def test_what_only_mine_has_is_never_passed_over(tmp_path: Path) -> None:
    plain = one([1, 2], [-1, 2])
    rows, outcome = compared(tmp_path, plain, plain | RELU)
    assert rows[2]["Result"] == "N/A"
    assert rows[2]["Err_message"] == "No bench data matched."
    assert outcome.counts[Verdict.FAIL] == 0
    assert (outcome.exit_code(), outcome.exit_code(allow_skip=True)) == (3, 0)


def test_what_only_golden_has_is_listed(tmp_path: Path) -> None:
    plain = one([1, 2], [-1, 2])
    rows, outcome = compared(tmp_path, plain | RELU, plain)
    assert [row["Bench Name"] for row in rows[2:]] == [
        "Torch.relu.0.forward.input.0",
        "Torch.relu.0.forward.output.0",
    ]
    assert outcome.exit_code() == 3


@pytest.mark.parametrize(
    ("mine", "reached"),
    [
        ([1.0, 2.0, 3.0, 4.0], "Yes"),
        ([1.0005, 2.0, 3.0, 4.0], "Yes"),
        ([1.9, 2.0, 3.0, 4.0], "No"),  # cosine 0.98, 0.9 away
        ([1.0, 2.0, 3.0, 5.5], "No"),  # cosine above 0.99, but more than 1 away
        ([-1.0, -2.0, -3.0, -4.0], "No"),
        ([float("nan"), 2.0, 3.0, 4.0], "No"),
    ],
)
def test_accuracy_follows_the_rules_of_the_manual(
    tmp_path: Path, mine: list[float], reached: str
) -> None:
    names = {"name": f"{LINEAR}.output.0.pt"}
    golden = [1.0, 2.0, 3.0, 4.0]
    record = {LINEAR: call([], [tensor(golden, **names)])}
    rows, _ = compared(
        tmp_path,
        record,
        record,
        task="tensor",
        values=({names["name"]: golden}, {names["name"]: mine}),
    )
    assert rows[0]["Accuracy Reached or Not"] == reached


def test_other_shapes_are_unmatched_and_fail(tmp_path: Path) -> None:
    name = f"{LINEAR}.output.0.pt"
    rows, outcome = compared(
        tmp_path,
        {LINEAR: call([], [tensor([1, 2], name=name)])},
        {LINEAR: call([], [tensor([1, 2, 3], name=name)])},
        task="tensor",
        values=({name: [1.0, 2.0]}, {name: [1.0, 2.0, 3.0]}),
    )
    assert rows[0]["Accuracy Reached or Not"] == "Unmatched"
    assert rows[0]["Cosine"] == "shape unmatched"
    assert rows[0]["Err_message"] == "Shape of NPU and bench Tensor do not match. Skipped."
    assert outcome.exit_code() == 1


def test_a_file_that_is_gone_is_told_and_not_passed(tmp_path: Path) -> None:
    name = f"{LINEAR}.output.0.pt"
    record = {LINEAR: call([], [tensor([1, 2], name=name)])}
    rows, outcome = compared(
        tmp_path, record, record, task="tensor", values=({name: [1.0, 2.0]}, {})
    )
    assert rows[0]["Err_message"] == f"Dump file: {name} not found or read failed."
    assert outcome.exit_code() == 3


def test_a_file_name_that_leads_out_of_the_data_is_refused(tmp_path: Path) -> None:
    record = {LINEAR: call([], [tensor([1, 2], name="../../secret.pt")])}
    rows, outcome = compared(tmp_path, record, record, task="tensor")
    assert "outside of its data" in rows[0]["Err_message"]
    assert outcome.exit_code() == 3


def test_checksums_pass_or_differ(tmp_path: Path) -> None:
    golden = {LINEAR: call([tensor(md5="aa")], [tensor(md5="bb")])}
    mine = {LINEAR: call([tensor(md5="aa")], [tensor(md5="cc")])}
    rows, outcome = compared(tmp_path, golden, mine)
    assert [row["Result"] for row in rows] == ["Pass", "Different"]
    assert outcome.exit_code() == 1


def test_backward_calls_match_in_order_whatever_their_numbers(tmp_path: Path) -> None:
    golden = {f"Functional.linear.{n}.backward": call([], [tensor([n])]) for n in (0, 1)}
    mine = {f"Functional.linear.{n}.backward": call([], [tensor([n - 2])]) for n in (2, 3)}
    rows, _ = compared(tmp_path, golden, mine)
    assert [row["Bench Name"] for row in rows] == [
        "Functional.linear.0.backward.output.0",
        "Functional.linear.1.backward.output.0",
    ]


def test_fuzzy_matching_finds_shifted_calls_and_says_so(tmp_path: Path) -> None:
    golden = {f"Torch.relu.{n}.forward": call([], [tensor([n + 1])]) for n in (0, 1)}
    mine = {f"Torch.relu.{n}.forward": call([], [tensor([n])]) for n in (1, 2)}
    rows, outcome = compared(tmp_path, golden, mine, fuzzy=True)
    assert [row["Bench Name"] for row in rows] == [
        "Torch.relu.0.forward.output.0",
        "Torch.relu.1.forward.output.0",
    ]
    assert "Fuzzy matching data" in rows[0]["Err_message"]
    assert outcome.exit_code() == 0


def test_a_table_of_names_pairs_what_no_rule_would(tmp_path: Path) -> None:
    golden = {"Torch.gelu.0.forward": call([], [tensor([1, 2])])}
    mine = {"NPU.npu_gelu.0.forward": call([], [tensor([1, 2], "torch.int64")])}
    table = {"NPU.npu_gelu.0.forward.output.0": "Torch.gelu.0.forward.output.0"}
    rows, outcome = compared(tmp_path, golden, mine, table=table)
    assert (len(rows), rows[0]["Bench Name"]) == (1, "Torch.gelu.0.forward.output.0")
    assert outcome.exit_code() == 0


@pytest.mark.parametrize(
    ("golden", "mine", "colour", "why"),
    [
        (([1, 2], [1, 2]), ([1, 2], [1, 2e11]), "red", "maximum absolute error exceeds 1e+10"),
        (([1, 2], [1, 2]), ([1, 2], [1, 3.5]), "red", "maximum relative error exceeds 0.5"),
        (
            ([1, 2], [1, 100]),
            ([1, 4], [1, 130]),
            "yellow",
            "with the output larger by an order of magnitude",
        ),
        (
            ([1, 2], [1, 2]),
            ([1, 2], [1, 2.4]),
            "yellow",
            "The output's maximum relative error exceeds 0.1",
        ),
        (([1, 2], [1, 2]), ([1, 2], [1, 2.1]), "", ""),
    ],
)
def test_suspicious_rows_have_colours_and_reasons(
    tmp_path: Path, golden: Any, mine: Any, colour: str, why: str
) -> None:
    rows, outcome = compared(
        tmp_path, one(*golden), one(*mine), highlight=True, formats=("csv", "xlsx")
    )
    assert why in rows[1]["Err_message"]
    book = openpyxl.load_workbook(outcome.pairs[0].files[1])
    fill = book.worksheets[0].cell(3, 1).fill
    codes = {"red": "FFFF0000", "yellow": "FFFFFF00"}
    assert (fill.start_color.rgb if fill.fill_type else "") == codes.get(colour, "")
    book.close()


def test_not_a_number_is_red(tmp_path: Path) -> None:
    bad = tensor([1, 2]) | {"Max": float("nan")}
    rows, _ = compared(
        tmp_path, one([1, 2], [1, 2]), {LINEAR: call([tensor([1, 2])], [bad])}, highlight=True
    )
    assert "maximum or minimum is nan, -inf, or inf" in rows[1]["Err_message"]


@pytest.mark.parametrize(
    ("record", "hint"),
    [
        ("Functional.gelu.0.forward", "forward computation"),
        ("Functional.gelu.0.backward", "backward computation"),
        ("Torch.matmul.0.forward", "seed_all(mode=True)"),
    ],
)
def test_advice_names_the_first_row_that_fails(tmp_path: Path, record: str, hint: str) -> None:
    golden = {record: call([tensor([1, 2])], [tensor([1, 2])])}
    mine = {record: call([tensor([1, 2])], [tensor([1, 9])])}
    _, outcome = compared(tmp_path, golden, mine)
    text = outcome.pairs[0].files[-1].read_text(encoding="utf-8")
    assert text.startswith(f"Line: 1\nSuspect Nodes: {record}.output.0\nExpert Advice: ")
    assert hint in text


def test_advice_of_a_clean_table_says_so(tmp_path: Path) -> None:
    _, outcome = compared(tmp_path, one([1, 2], [1, 2]), one([1, 2], [1, 2]))
    text = outcome.pairs[0].files[-1].read_text(encoding="utf-8")
    assert text.startswith("Line: NA\nSuspect Nodes: NA\nExpert Advice: All data")
    assert outcome.exit_code() == 0


def test_scalars_that_differ_are_compared_too(tmp_path: Path) -> None:
    golden = {LINEAR: call([tensor()], [tensor()], eps=scalar(1e-6))}
    mine = {LINEAR: call([tensor()], [tensor()], eps=scalar(1e-5))}
    rows, outcome = compared(tmp_path, golden, mine)
    assert rows[1]["Result"] == "Warning"
    assert outcome.exit_code() == 1


def test_a_whole_number_beyond_all_floats_ends_no_comparison_with_an_error(tmp_path: Path) -> None:
    crafted = scalar(1.0) | {"value": 10**400}
    golden = {LINEAR: call([tensor()], [tensor()], eps=crafted)}
    mine = {LINEAR: call([tensor()], [tensor()], eps=scalar(1e-5))}
    _, outcome = compared(tmp_path, golden, mine)
    assert outcome.exit_code() == 3  # nobody knows what it stands for


@pytest.mark.parametrize(
    ("golden", "mine", "code"),
    [
        (-3.4028234663852886e38, -3.3895313892515355e38, 0),  # float32, bfloat16
        (-65504.0, -math.inf, 0),
        (65504.0, -65504.0, 1),
        (-3.4028234663852886e38, -3.4e38, 1),
        (-65504.0, -1e4, 1),
    ],
)
def test_the_lowest_numbers_of_two_types_are_one(
    golden: float, mine: float, code: int, tmp_path: Path
) -> None:
    sides = ({LINEAR: call([tensor()], [tensor()], eps=scalar(end))} for end in (golden, mine))
    _, outcome = compared(tmp_path, *sides)
    assert outcome.exit_code() == code


def test_single_points_have_a_table_of_their_own(tmp_path: Path) -> None:
    paths = [
        write_dump(tmp_path / side, {"loss.0.debug": tensor([value])}, name="debug.json")
        for side, value in (("golden", 1.0), ("mine", 2.0))
    ]
    outcome = compare_api_dumps(
        paths[1], paths[0], tmp_path / "out", "1", ApiOptions(), formats=["csv"]
    )
    table = outcome.pairs[0].files[0]
    assert table.name == "debug_compare_result_1.csv"
    with table.open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert (row["NPU Name"], row["Result"]) == ("loss.0.debug", "Warning")


def test_a_variable_without_gradient_has_the_name_of_its_record(tmp_path: Path) -> None:
    document = {"loss.0.debug": scalar(7), "loss_grad.0.debug": None, "pair.0.debug": [scalar(1)]}
    paths = [
        write_dump(tmp_path / side, document, name="debug.json") for side in ("golden", "mine")
    ]
    outcome = compare_api_dumps(
        paths[1], paths[0], tmp_path / "out", "1", ApiOptions(), formats=["csv"]
    )
    with outcome.pairs[0].files[0].open(newline="", encoding="utf-8") as file:
        names = [row["NPU Name"] for row in csv.DictReader(file)]
    assert names == ["loss.0.debug", "loss_grad.0.debug", "pair.0.debug.0"]


def test_a_file_that_breaks_off_is_compared_as_far_as_it_goes(tmp_path: Path) -> None:
    golden = write_dump(tmp_path / "golden", one([1, 2], [1, 2]))
    mine = write_dump(tmp_path / "mine", one([1, 2], [1, 2]))
    text = mine.read_text(encoding="utf-8")
    mine.write_text(text.removesuffix("}}") + ', "Torch.relu.0.for', encoding="utf-8")
    outcome = compare_api_dumps(mine, golden, tmp_path / "out", "1", ApiOptions(), formats=["csv"])
    assert outcome.pairs[0].counts[Verdict.PASS] == 2
    assert outcome.exit_code() == 3
    assert str(mine) in outcome.pairs[0].problems[0]


def test_a_message_column_of_the_release_is_a_json_list(tmp_path: Path) -> None:
    rows, _ = compared(tmp_path, one([1, 2], [1, 2]), one([1, 2], [9, 2]), style="release")
    assert json.loads(rows[1]["Err_message"])[0].startswith("error: The NormRelativeErr")
