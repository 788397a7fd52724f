"""``ait llm compare`` and ``merge-result`` on API-level dumps."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from api_dumps import call, tensor, write_dump
from click.testing import CliRunner, Result
from msprobe_samples import sample

from ait_llm.cli.api_options import TABLES
from ait_llm.cli.main import ait
from ait_llm.compare.api.run import FORMATS

LINEAR = "Functional.linear.0.forward"


def run(*words: object) -> Result:
    return CliRunner().invoke(ait, ["llm", *map(str, words)])


def dumps(tmp_path: Path, mine: float = 2.0) -> tuple[Path, Path]:
    """Golden and my dump, which differ in one output unless mine is 2."""
    return (
        write_dump(tmp_path / "golden", {LINEAR: call([tensor()], [tensor([1.0, 2.0])])}),
        write_dump(
            tmp_path / "mine",
            {LINEAR: call([tensor()], [tensor([1.0, mine])])},
            stacks={"0": [[LINEAR], ["File model.py, line 3, in forward, \n F.linear()"]]},
        ),
    )


def rows(folder: Path) -> list[dict[str, str]]:
    (path,) = folder.glob("compare_result*.csv")
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_two_json_files_are_compared_and_agree(tmp_path: Path) -> None:
    golden, mine = dumps(tmp_path)
    result = run("compare", "-gp", golden, "-mp", mine, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("ait llm compare: PASS: 2 PASS")
    suffixes = sorted(path.suffix for path in (tmp_path / "out").iterdir())
    assert suffixes == [".csv", ".txt", ".xlsx"]


def test_a_failing_row_is_named_with_advice(tmp_path: Path) -> None:
    golden, mine = dumps(tmp_path, 9.0)
    result = run("compare", "-gp", golden, "-mp", mine, "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert f"the first row that fails is {LINEAR}.output.0" in result.output


def of_two_steps(root: Path, last: float = 2.0) -> Path:
    for step, value in enumerate((2.0, last)):
        record = {LINEAR: call([tensor()], [tensor([1.0, value])])}
        write_dump(root, record, step=step)
    return root


def test_each_step_is_written_to_a_table_of_its_own(tmp_path: Path) -> None:
    golden, mine = of_two_steps(tmp_path / "golden"), of_two_steps(tmp_path / "mine", 9.0)
    result = run("compare", "-gp", golden, "-mp", mine, "-o", tmp_path / "out", "--format", "csv")
    assert result.exit_code == 1
    assert f"step1, rank0: the first row that fails is {LINEAR}.output.0" in result.output
    names = sorted(path.name[:28] for path in (tmp_path / "out").glob("compare_result*.csv"))
    assert names == ["compare_result_step0_rank0_2", "compare_result_step1_rank0_2"]


def test_the_first_difference_over_several_steps_names_the_step(tmp_path: Path) -> None:
    golden, mine = of_two_steps(tmp_path / "golden"), of_two_steps(tmp_path / "mine", 9.0)
    result = run("compare", "-gp", golden, "-mp", mine, "-o", tmp_path / "out", "-da")
    assert result.exit_code == 1
    assert f"step 1, rank 0: the first difference is in {LINEAR}" in result.output


def test_tables_of_several_steps_are_not_merged_as_ranks(tmp_path: Path) -> None:
    golden, mine = of_two_steps(tmp_path / "golden"), of_two_steps(tmp_path / "mine")
    run("compare", "-gp", golden, "-mp", mine, "-o", tmp_path / "out", "--format", "csv")
    settings = tmp_path / "merge.yaml"
    settings.write_text("api: [Functional]\ncompare_index: [Cosine]\n", encoding="utf-8")
    words = ("-i", tmp_path / "out", "-o", tmp_path / "all", "-config", settings)
    result = run("merge-result", *words)
    assert result.exit_code == 2
    assert "compare the folder of one step" in result.output


def test_the_file_of_the_manual_may_have_comments(tmp_path: Path) -> None:
    golden, mine = dumps(tmp_path)
    path = tmp_path / "compare.json"
    path.write_text(
        f'{{"npu_path": "{mine}",  # mine\n"bench_path": "{golden}", // golden\n'
        '"is_print_compare_log": true /* a line per row */}',
        encoding="utf-8",
    )
    result = run("compare", "-i", path, "-o", tmp_path / "out", "--compare-only")
    assert result.exit_code == 0, result.output
    assert not list((tmp_path / "out").glob("advisor*"))


def test_call_stacks_are_shown_where_they_were_captured(tmp_path: Path) -> None:
    golden, mine = dumps(tmp_path)
    run("compare", "-gp", golden, "-mp", mine, "-o", tmp_path / "out")
    found = rows(tmp_path / "out")
    assert "line 3, in forward" in found[0]["NPU_Stack_Info"]
    assert found[1]["NPU_Stack_Info"] == "N/A"


@pytest.mark.parametrize(("flags", "shown"), [((), False), (("-s",), True)])
def test_a_given_file_of_stacks_counts_with_s_only(
    tmp_path: Path, flags: tuple[str, ...], shown: bool
) -> None:
    golden, mine = dumps(tmp_path)
    path = tmp_path / "compare.json"
    given = {
        "npu_path": str(mine),
        "bench_path": str(golden),
        "stack_path": str(mine.parent / "stack.json"),
    }
    path.write_text(json.dumps(given), encoding="utf-8")
    run("compare", "-i", path, "-o", tmp_path / "out", *flags)
    assert ("NPU_Stack_Info" in rows(tmp_path / "out")[0]) is shown


def test_all_ranks_of_a_step_are_compared_at_once(tmp_path: Path) -> None:
    root = sample("dist_stat")
    step = ("-gp", root / "golden" / "step0", "-mp", root / "target" / "step0")
    result = run("compare", *step, "-o", tmp_path, "--json")
    tables = json.loads(result.stdout)["tables"]
    assert [table["rank"] for table in tables] == ["rank0", "rank1"]
    assert sum(tables[1]["counts"].values()) == 403


def test_the_first_difference_names_rank_and_call(tmp_path: Path) -> None:
    root = sample("dist_stat")
    step = ("-gp", root / "golden" / "step0", "-mp", root / "target" / "step0")
    result = run("compare", *step, "-o", tmp_path, "-da")
    assert result.exit_code == 1
    assert "rank 1: the first difference is in Functional.linear.3.forward" in result.output


def test_merge_result_writes_a_workbook(tmp_path: Path) -> None:
    root = sample("dist_stat")
    step = ("-gp", root / "golden" / "step0", "-mp", root / "target" / "step0")
    run("compare", *step, "-o", tmp_path / "tables", "--format", "csv")
    merge = ("-i", tmp_path / "tables", "-o", tmp_path / "out", "-config", root / "merge.yaml")
    result = run("merge-result", *merge)
    assert result.exit_code == 0, result.output
    assert len(list((tmp_path / "out").glob("multi_ranks_compare_merge_*.xlsx"))) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "is not an object"),
        ('{"npu_path": "a"}', "needs 'bench_path'"),
        ('{"npu_path": 1, "bench_path": "b"}', "needs 'npu_path'"),
        ('{"npu_path": "a", "bench_path": "b", "npu": 1}', "unknown key 'npu'"),
    ],
)
def test_a_wrong_file_of_the_manual_is_one_sentence_and_2(
    tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "compare.json"
    path.write_text(content, encoding="utf-8")
    result = run("compare", "-i", path, "-o", tmp_path / "out")
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert message in result.output


def test_a_row_of_golden_answers_as_often_as_a_file_of_names_says(tmp_path: Path) -> None:
    golden = {"Torch.gelu.0.forward": call([], [tensor([1.0, 2.0])])}
    calls = [f"NPU.npu_gelu.{number}.forward" for number in range(2)]
    mine = {name: call([], [tensor([1.0, 2.0 + place])]) for place, name in enumerate(calls)}
    names = tmp_path / "names.yaml"
    lines = [f"{name}.output.0: Torch.gelu.0.forward.output.0\n" for name in calls]
    names.write_text("".join(lines), encoding="utf-8")
    sides = (write_dump(tmp_path / "g", golden), write_dump(tmp_path / "m", mine))
    paths = ("-gp", sides[0], "-mp", sides[1], "-o", tmp_path / "out", "-dm", names)
    result = run("compare", *paths, "--format", "csv")
    assert result.exit_code == 1, result.output  # the second one is off
    found = [(row["NPU Name"], row["Bench Name"]) for row in rows(tmp_path / "out")]
    assert found == [(f"{name}.output.0", "Torch.gelu.0.forward.output.0") for name in calls]


def test_wrong_combinations_are_one_sentence_and_2(tmp_path: Path) -> None:
    golden, mine = dumps(tmp_path)
    mapping = tmp_path / "map.yaml"
    mapping.write_text("a.0: b.0\n", encoding="utf-8")
    both = ("-gp", golden, "-mp", mine, "-o", tmp_path / "out")
    for words in (
        ("compare", *both, "-i", mapping),
        ("compare", "-gp", golden),
        ("compare", *both, "-f", "-dm", mapping),
        ("compare", *both, "-dm", golden.parent),
        ("merge-result", "-i", tmp_path, "-o", tmp_path, "-config", mapping),
    ):
        result = run(*words)
        assert (result.exit_code, result.output.count("\n")) == (2, 1), result.output


def test_a_malformed_dump_is_one_sentence_with_its_place(tmp_path: Path) -> None:
    golden, mine = dumps(tmp_path)
    mine.write_text(mine.read_text(encoding="utf-8").replace('"Max":', '"Max"'), encoding="utf-8")
    result = run("compare", "-gp", golden, "-mp", mine, "-o", tmp_path / "out")
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert str(mine) in result.output
    assert "line 1" in result.output
    assert not list((tmp_path / "out").glob("compare_result*"))


def with_metric(tmp_path: Path, text: str, *words: object) -> Result:
    """Compare real data with a metric of the user's own."""
    path = tmp_path / "own.py"
    path.write_text(f"import numpy as np\n\n\n{text}", encoding="utf-8")
    root = sample("zoo_tensor")
    sides = ("-gp", root / "golden" / "step0", "-mp", root / "target" / "step0")
    return run("compare", *sides, "-o", tmp_path / "out", "-alg", f"{path}:largest", *words)


def test_a_metric_of_the_users_own_has_a_column_after_the_built_in_ones(tmp_path: Path) -> None:
    text = "def largest(g: np.ndarray, m: np.ndarray):\n    return float(abs(m - g).max()), ''"
    result = with_metric(tmp_path, text)
    assert result.exit_code == 1, result.output
    found = rows(tmp_path / "out")
    names = list(found[0])
    assert names[names.index("largest") - 1] == "Five Thousandths Err Ratio"
    measured = [row for row in found if row["largest"] != "unsupported"]
    same = [
        row
        for row in measured
        if float(row["largest"]) == pytest.approx(float(row["MaxAbsErr"]), rel=1e-4, abs=1e-6)
    ]
    assert len(same) > 80
    assert {row["largest"] for row in found if row["Cosine"] == "N/A"} == {"unsupported"}


def test_a_metric_that_fails_on_a_tensor_is_told_in_its_row(tmp_path: Path) -> None:
    text = (
        "def largest(golden: np.ndarray, mine: np.ndarray):\n    return 1 / (golden.size % 2), ''"
    )
    assert with_metric(tmp_path, text).exit_code == 1
    told = [
        row for row in rows(tmp_path / "out") if "largest: ZeroDivisionError" in row["Err_message"]
    ]
    assert told
    assert {row["largest"] for row in told} == {"unsupported"}


def test_a_metric_may_not_be_called_as_a_column(tmp_path: Path) -> None:
    text = "def largest(g: np.ndarray, m: np.ndarray):\n    return 1.0, ''\n"
    path = tmp_path / "own.py"
    path.write_text(
        f"import numpy as np\n\n\n{text.replace('largest', 'Cosine')}", encoding="utf-8"
    )
    golden, mine = dumps(tmp_path)
    both = ("-gp", golden, "-mp", mine, "-o", tmp_path / "out")
    result = run("compare", *both, "-alg", f"{path}:Cosine")
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert "there is a column 'Cosine' already" in result.output


def test_the_tables_that_are_offered_are_those_that_can_be_written() -> None:
    assert tuple(FORMATS) == TABLES


def test_the_default_tables_are_those_that_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ait_llm.cli.api_options.find_spec", lambda _name: None)
    golden, mine = dumps(tmp_path)
    result = run("compare", "-gp", golden, "-mp", mine, "-o", tmp_path / "out", "--compare-only")
    assert result.exit_code == 0, result.output
    assert [path.suffix for path in (tmp_path / "out").iterdir()] == [".csv"]
