"""Tables of the vendor's cases: every column as the format says, and bad lines alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from vendor.cases import CASES, CaseError, TensorCase, read_cases, read_table
from vendor.outcome import Disagreement, Outcome, Side

HEAD = (
    "CaseNum|CaseName|OpName|OpParam|InNum|InDType|InFormat|InShape|OutNum|OutDType|OutFormat|"
    "OutShape|DataGenType|DataGenRange|InTensorFile|OutTensorFile|TestType|TestLevel|FromModel|"
    "SocVersion|ExpectedError"
)
SUM = (
    '7|Add|ElewiseOperation_1_2|{"elewiseType":8}|2|float16; float16|nd;nd|2,3;1,3|1|float16|nd|'
    "2,3|random;one|-2,2;0,0||||||Ascend910B, Ascend310P|NO_ERROR"
)


def table(folder: Path, *lines: str, name: str = "elewise.csv") -> Path:
    """A checkout with one table."""
    path = folder / CASES / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join((HEAD, *lines)) + "\n", encoding="utf-8")
    return path


def test_a_case_has_the_tensors_parameters_and_chips_of_its_line(tmp_path: Path) -> None:
    (case,) = read_table(table(tmp_path, SUM, "  "))
    assert (case.label, case.operator) == ("elewise 7", "ElewiseOperation")
    assert case.params == {"elewiseType": 8}
    assert case.inputs == (
        TensorCase("float16", "nd", (2, 3)),
        TensorCase("float16", "nd", (1, 3)),
    )
    assert case.outputs == (TensorCase("float16", "nd", (2, 3)),)
    assert (case.generators, case.ranges) == (("random", "one"), ("-2,2", "0,0"))
    assert case.is_for("Ascend310P")
    assert not case.is_for("Ascend950")
    assert case.passes


@pytest.mark.parametrize(
    ("expected", "stage", "status", "passes"),
    [
        ("NO_ERROR", "", "NO_ERROR", True),
        ("S:NO_ERROR", "S", "NO_ERROR", False),
        ("I:ERROR_INVALID_TENSOR_DIM", "I", "ERROR_INVALID_TENSOR_DIM", False),
    ],
)
def test_the_expected_error_is_a_stage_and_a_status(
    tmp_path: Path, expected: str, stage: str, status: str, passes: bool
) -> None:
    (case,) = read_table(table(tmp_path, SUM.replace("NO_ERROR", expected)))
    assert (case.stage, case.status, case.passes) == (stage, status, passes)


def test_columns_go_by_name_and_missing_ones_are_empty(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\ufeffOpName|CaseNum|CaseName|SocVersion|InNum\nX|1|a||\n", "utf-8")
    (case,) = read_table(path)
    assert (case.operator, case.number, case.chips) == ("X", "1", ())
    assert case.is_for("Ascend910B")
    assert not case.is_for("Ascend910A")


def test_parameters_may_be_quoted_after_spaces(tmp_path: Path) -> None:
    (case,) = read_table(table(tmp_path, SUM.replace('{"elewiseType":8}', '  "{""axis"":[1]}"')))
    assert case.params == {"axis": [1]}


def test_without_a_generator_numbers_are_customized_between_minus_5_and_5(tmp_path: Path) -> None:
    (case,) = read_table(table(tmp_path, SUM.replace("random;one|-2,2;0,0", "|")))
    assert (case.generators, case.ranges) == (("customize",) * 2, ("-5,5",) * 2)


def test_no_inputs_are_no_tensors_whatever_the_other_columns_have(tmp_path: Path) -> None:
    (case,) = read_table(table(tmp_path, SUM.replace("|2|float16; float16|", "|0|float16|")))
    assert case.inputs == ()


def test_a_bad_line_is_an_error_only_where_it_is_looked_at(tmp_path: Path) -> None:
    bad = SUM.replace("2,3;1,3", "2,x;1,3").replace('{"elewiseType":8}', "[8]")
    first, second = read_table(table(tmp_path, bad, SUM))
    assert second.params == {"elewiseType": 8}
    with pytest.raises(CaseError, match="no list of numbers: '2,x'"):
        _ = first.inputs
    with pytest.raises(CaseError, match="no JSON object"):
        _ = first.params
    with pytest.raises(CaseError, match="InFormat has 1 of 2 tensors"):
        _ = next(read_table(table(tmp_path, SUM.replace("|nd;nd|", "|nd|")))).inputs


def test_what_is_listed_beyond_the_number_of_tensors_is_ignored(tmp_path: Path) -> None:
    (case,) = read_table(
        table(tmp_path, SUM.replace("|2|float16; float16|", "|1|float16; float16|"))
    )
    assert case.inputs == (TensorCase("float16", "nd", (2, 3)),)
    assert case.generators == ("random",)


def test_cases_of_all_tables_are_read_but_not_of_the_example(tmp_path: Path) -> None:
    table(tmp_path, SUM)
    table(tmp_path, SUM, name="testcase_example.csv")
    table(tmp_path, SUM.replace("Elewise", "Linear"), name="linear.csv")
    assert [case.label for case in read_cases(tmp_path)] == ["elewise 7", "linear 7"]
    assert [case.label for case in read_cases(tmp_path, ["LinearOperation"])] == ["linear 7"]


def test_what_is_not_shown_to_be_anothers_fault_is_ours() -> None:
    assert Disagreement("X", "x 1", "0.5 off").side is Side.OURS
    with pytest.raises(ValueError, match="what shows"):
        Disagreement("X", "x 1", "0.5 off", Side.VENDOR)


def test_an_outcome_on_record_is_the_same_outcome() -> None:
    outcome = Outcome()
    outcome.agree("X")
    outcome.agree("X")
    outcome.skip("Y", "too large")
    outcome.disagreed.append(Disagreement("Z", "z 1", "NaN", Side.VENDOR, "it divides by 0"))
    assert Outcome.recorded(outcome.record()) == outcome
    assert outcome.operators == ["X", "Y", "Z"]
