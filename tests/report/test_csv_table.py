"""The manual's csv: its columns, its cell formats, and nothing left out."""

from __future__ import annotations

import csv
import math
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from report_builder import comparison, decoder_report, not_finite, record, report, unreadable

from ait_llm.core import DType
from ait_llm.core.comparison import Origin, Report, SideSummary, Verdict
from ait_llm.report.csv_table import (
    COLUMNS,
    COMPILED_COLUMNS,
    number_cell,
    safe_cell,
    write_csv,
)


def written(value: Report, folder: Path) -> list[dict[str, str]]:
    (path,) = write_csv(value, folder / "report.csv")
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_columns_are_those_of_the_manual(tmp_path: Path) -> None:
    write_csv(report(), tmp_path / "report.csv")
    assert (tmp_path / "report.csv").read_text() == (
        "token_id,data_id,golden_data_path,golden_dtype,golden_shape,golden_max_value,"
        "golden_min_value,golden_mean_value,my_data_path,my_dtype,my_shape,my_max_value,"
        "my_min_value,my_mean_value,cosine_similarity,max_relative_error,mean_relative_error,"
        "max_absolute_error,mean_absolute_error,kl_divergence,relative_euclidean_distance,"
        "cmp_fail_reason\n"
    )
    assert len(COLUMNS) == 22


def test_compiled_graphs_add_columns_behind_those_of_the_manual(tmp_path: Path) -> None:
    mine = record(
        "MulCast_1",
        op_type="AutomaticBufferFusionOp",
        path="/dump/AutomaticBufferFusionOp.MulCast_1.9.6.1732533825012131",
        role="out",
        index=1,
        step=4,
        graph="graph_3_2",
        graph_step=2,
        rank=1,
        parts=("Mul", "Cast_1"),
    )
    golden = record("mul_5", path="/fx/mul_5-aten.mul.Tensor.OUTPUT.0.20241125.npy", role="out")
    item = replace(comparison(0.25, mine=mine, golden=golden), relation="fused")
    origin = Origin("MulCast_1", "", "AutomaticBufferFusionOp", 4, index=0)
    (row,) = written(replace(report(item), origins=(origin,)), tmp_path)
    assert tuple(row) == (*COLUMNS, *COMPILED_COLUMNS)
    assert row["my_data_path"].endswith(".1732533825012131,outputs,1")
    assert row["golden_data_path"].endswith(".npy")
    wanted = {
        "rank": "1", "graph": "graph_3_2", "step": "2", "call": "0", "token_id": "4",
        "ge_op_name": "MulCast_1", "ge_op_type": "AutomaticBufferFusionOp",
        "fused_from": "Mul + Cast_1", "fx_node": "mul_5", "side": "output", "index": "1",
        "match_kind": "fused", "suspect": "1",
    }  # fmt: skip
    assert {name: row[name] for name in wanted} == wanted


def test_a_row_has_the_manual_s_cell_formats(tmp_path: Path) -> None:
    item = comparison(0.25, mine=record(step=3, dtype=DType.BFLOAT16, shape=(1, 4, 8)))
    (row,) = written(report(item), tmp_path)
    assert row["token_id"] == "3"
    assert row["data_id"] == "0"
    assert row["golden_data_path"] == "/golden/q_proj/output.pth"
    assert row["my_dtype"] == "torch.bfloat16"
    assert row["my_shape"] == "[1, 4, 8]"
    assert row["golden_max_value"] == "2.5"
    assert row["golden_mean_value"] == "0.125"
    assert row["cosine_similarity"] == "0.9375"
    assert row["max_relative_error"] == "2.0"
    assert row["kl_divergence"] == ""
    assert row["cmp_fail_reason"] == (
        "FAIL: relative Euclidean distance 0.25 exceeds 0.01; kl_divergence: not a distribution"
    )


def test_a_type_that_torch_lacks_has_its_own_name(tmp_path: Path) -> None:
    (row,) = written(report(comparison(mine=record(dtype=DType.INT4))), tmp_path)
    assert row["my_dtype"] == "int4"


def test_every_comparison_is_a_row_whatever_became_of_it(tmp_path: Path) -> None:
    lonely = comparison(golden=None, verdict=Verdict.SKIPPED, reason="no counterpart", values={})
    mismatch = comparison(verdict=Verdict.ERROR, reason="data shape doesn't match.", values={})
    rows = written(report(comparison(), lonely, mismatch, unreadable(), not_finite()), tmp_path)
    assert [row["data_id"] for row in rows] == ["0", "1", "2", "3", "4"]
    assert rows[1]["golden_data_path"] == rows[1]["golden_dtype"] == rows[1]["golden_shape"] == ""
    assert rows[1]["cmp_fail_reason"].startswith("SKIPPED: no counterpart")
    assert rows[2]["cmp_fail_reason"].startswith("ERROR: data shape doesn't match.")
    assert "the file ends early" in rows[3]["cmp_fail_reason"]
    assert rows[4]["max_absolute_error"] == "inf"
    assert rows[4]["mean_absolute_error"] == ""


def test_a_failure_without_a_reason_names_the_limits_it_missed(tmp_path: Path) -> None:
    (row,) = written(report(comparison(0.25, reason="", missing={})), tmp_path)
    assert row["cmp_fail_reason"] == "FAIL: relative_euclidean_distance 0.25 over 0.01"


def test_rows_keep_the_order_of_the_report(tmp_path: Path) -> None:
    value = decoder_report(layers=3, steps=2)
    rows = written(value, tmp_path)
    assert [row["my_data_path"] for row in rows] == [
        item.mine.path for item in value.comparisons if item.mine
    ]


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_numbers_read_back_exactly_and_nan_is_empty(value: float) -> None:
    cell = number_cell(value)
    assert (cell == "") if math.isnan(value) else (float(cell) == value)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_name_becomes_a_formula(start: str) -> None:
    assert safe_cell(start + "cmd|' /C calc'!A0")[0] == "'"


@settings(max_examples=50)
@given(st.text(st.characters(exclude_categories=[])))
@example("a\rb\n=c")
def test_any_reason_makes_one_readable_row(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    item = comparison(verdict=Verdict.ERROR, reason=text or "x", values={}, missing={})
    (row,) = written(report(item), tmp_path_factory.getbasetemp())
    assert row["cmp_fail_reason"].startswith("ERROR: ")
    assert row["data_id"] == "0"


def test_statistics_that_are_not_numbers_are_empty(tmp_path: Path) -> None:
    item = comparison(my_summary=SideSummary(None, math.nan, math.inf, None))
    (row,) = written(report(item), tmp_path)
    assert (row["my_max_value"], row["my_min_value"], row["my_mean_value"]) == ("", "", "inf")


def test_the_group_may_read_the_file_and_others_may_not(tmp_path: Path) -> None:
    (path,) = write_csv(report(), tmp_path / "report.csv")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
