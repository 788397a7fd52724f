"""Tables of ptdbg's dumps: columns, pairs, limits, messages and advice."""

from __future__ import annotations

import csv
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ait_llm.errors import FormatError, UsageError
from ait_llm.ptdbg import compare, compare_distributed, parse

HEADER = (
    "NPU Name,Bench Name,NPU Tensor Dtype,Bench Tensor Dtype,NPU Tensor Shape,Bench Tensor Shape,"
    "Cosine,MaxAbsErr,NPU max,NPU min,NPU mean,Bench max,Bench min,Bench mean,"
    "Accuracy Reached or Not,Err_message"
)
STACK = [["/home/u/train.py", "31", "forward", "x = x.permute(1)"], ["/t.py", "8", "main", "m(x)"]]


def dump(path: Path, calls: dict[str, dict[str, Any]], *, stack: bool = False) -> Path:
    """Write a dump; items are arrays, or lines that have no file."""
    path.with_suffix("").mkdir(parents=True)
    lines = []
    for call, items in calls.items():
        for part, value in items.items():
            name = f"{call}_{part}"
            if isinstance(value, list):
                lines.append([name, 1, [], *value])
                continue
            array = np.asarray(value, np.float32)
            np.save(path.with_suffix("") / f"{name}.npy", array)
            numbers = [float(array.max()), float(array.min()), float(array.mean())]
            lines.append([name, 1, [], "torch.float32", list(array.shape), numbers])
        if stack:
            lines.append([f"{call}_stack_info", STACK])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def compared(mine: Path, golden: Path, output: Path, **options: Any) -> list[dict[str, str]]:
    paths = {
        "npu_pkl_path": str(mine),
        "bench_pkl_path": str(golden),
        "npu_dump_data_dir": str(mine.with_suffix("")),
        "bench_dump_data_dir": str(golden.with_suffix("")),
    }
    with compare(paths, output, **options).open(newline="") as file:
        return list(csv.DictReader(file))


X = np.linspace(-1, 1, 12).reshape(3, 4)


def test_columns_and_values_of_a_row(tmp_path: Path) -> None:
    golden = dump(tmp_path / "gpu.pkl", {"Torch_relu_0_forward": {"input.0": X}})
    mine = dump(tmp_path / "npu.pkl", {"Torch_relu_0_forward": {"input.0": X + 0.25}})
    (row,) = compared(mine, golden, tmp_path / "out")
    assert ",".join(row) == HEADER
    x, y = np.float32(X).ravel().astype(float), np.float32(X + 0.25).ravel().astype(float)
    cosine = float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))
    assert float(row["Cosine"]) == pytest.approx(cosine, abs=1e-9)
    assert float(row["MaxAbsErr"]) == pytest.approx(0.25)
    assert (row["NPU max"], row["Bench max"]) == ("1.25", "1.0")
    assert row["Accuracy Reached or Not"] == "No"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (X, "Yes"),
        (X + 1e-5, "Yes"),
        (X[::-1], "No"),
        (X * 1e-4, "Yes"),  # far in size, but the guide looks at these two metrics only
        (X[::-1] * 1e-6, "No"),  # small and of another direction
        (X + np.where(X == 1, 1.5, 0), "No"),
        (np.where(X == 1, np.nan, X), "No"),
        (X.reshape(4, 3), "No"),
    ],
)
def test_limits(tmp_path: Path, change: Any, expected: str) -> None:
    scale = 1e-6 if np.abs(change).max() < 1e-5 else 1e-4 if np.abs(change).max() < 1e-3 else 1
    golden = dump(tmp_path / "gpu.pkl", {"Torch_relu_0_forward": {"output": X * scale}})
    mine = dump(tmp_path / "npu.pkl", {"Torch_relu_0_forward": {"output": change}})
    (row,) = compared(mine, golden, tmp_path / "out")
    assert row["Accuracy Reached or Not"] == expected


def test_messages_say_why_there_is_no_metric(tmp_path: Path) -> None:
    calls: dict[str, dict[str, Any]] = {
        "Torch_a_0_forward": {"output": X},
        "Torch_b_0_forward": {"output": 3.0},
        "Torch_c_0_forward": {"output": ["torch.float32", [2], [1, 0, 0.5]]},
        "Torch_d_0_forward": {"output": ["<class 'int'>", "[]", [4, 4, 4]]},
    }
    golden = dump(tmp_path / "gpu.pkl", {**calls, "Torch_a_0_forward": {"output": X.T}})
    rows = compared(dump(tmp_path / "npu.pkl", calls), golden, tmp_path / "out")
    assert [row["Err_message"] for row in rows] == [
        "Shape of NPU and bench Tensor do not match. Skipped.",
        "This tensor is scalar.",
        f"Dump file:{tmp_path}/npu/Torch_c_0_forward_output.npy not found",
        "",
    ]
    assert [row["Accuracy Reached or Not"] for row in rows] == ["No", "Yes", "None", "Yes"]
    assert [row["Cosine"] for row in rows][1:] == ["unsupported"] * 3


def test_scalars_that_differ_are_told(tmp_path: Path) -> None:
    call = "Torch_a_0_forward"
    golden = dump(tmp_path / "gpu.pkl", {call: {"input.1": ["<class 'int'>", "[]", [1, 1, 1]]}})
    mine = dump(tmp_path / "npu.pkl", {call: {"input.1": ["<class 'int'>", "[]", [2, 2, 2]]}})
    (row,) = compared(mine, golden, tmp_path / "out")
    assert (row["Accuracy Reached or Not"], row["NPU max"], row["Bench max"]) == ("No", "2", "1")


def test_calls_of_one_side_are_listed_and_never_reached(tmp_path: Path) -> None:
    golden = dump(tmp_path / "gpu.pkl", {"Torch_b_0_forward": {"output": X}})
    mine = dump(tmp_path / "npu.pkl", {"Torch_a_0_forward": {"output": X}})
    rows = compared(mine, golden, tmp_path / "out")
    assert [(row["NPU Name"], row["Bench Name"]) for row in rows] == [
        ("Torch_a_0_forward_output", "Nan"),
        ("Nan", "Torch_b_0_forward_output"),
    ]
    assert [row["Err_message"] for row in rows] == [
        "No bench data matched.",
        "No NPU data matched.",
    ]
    assert {row["Accuracy Reached or Not"] for row in rows} == {"Nan"}


def test_fuzzy_matching_goes_by_function_and_shape(tmp_path: Path) -> None:
    golden = dump(
        tmp_path / "gpu.pkl",
        {"Torch_a_0_forward": {"output": X[:1]}, "Torch_a_1_forward": {"output": X}},
    )
    mine = dump(tmp_path / "npu.pkl", {"Torch_a_5_forward": {"output": X}})
    rows = compared(mine, golden, tmp_path / "out", fuzzy_match=True)
    assert (rows[0]["Bench Name"], rows[0]["Accuracy Reached or Not"]) == (
        "Torch_a_1_forward_output",
        "Yes",
    )


def test_stacks_need_their_mode_and_have_their_column(tmp_path: Path) -> None:
    calls = {"Torch_a_0_forward": {"input.0": X, "output": X}}
    plain = dump(tmp_path / "gpu.pkl", calls)
    stacked = dump(tmp_path / "api_stack_npu.pkl", calls, stack=True)
    with pytest.raises(UsageError, match="contains stack information, please turn on the stack_m"):
        compared(stacked, plain, tmp_path / "out")
    with pytest.raises(UsageError, match="does not contain stack information, please turn off"):
        compared(plain, stacked, tmp_path / "out", stack_mode=True)
    rows = compared(stacked, plain, tmp_path / "out", stack_mode=True)
    assert [row["NPU_Stack_Info"].count("File") for row in rows] == [2, 0]


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ("Torch_relu_0_forward_input.0", "Check whether the source of this input is right"),
        ("Torch_relu_0_forward_output", "The forward computation of this call is wrong"),
        ("Functional_conv2d_0_forward_output", "may not be deterministic"),
        ("Functional_batch_norm_0_forward_input.1", "Statistics of a batch norm"),
        ("Torch_relu_0_backward_output.0", "The backward computation of this call is wrong"),
    ],
)
def test_advice_names_the_line_and_the_item(tmp_path: Path, item: str, text: str) -> None:
    call, _, part = item.partition("ward_")
    calls = {"Torch_first_0_forward": {"output": X}, f"{call}ward": {part: X}}
    golden = dump(tmp_path / "gpu.pkl", calls)
    mine = dump(tmp_path / "npu.pkl", {**calls, f"{call}ward": {part: -X}})
    compared(mine, golden, tmp_path / "out", suffix="one")
    (advice,) = (tmp_path / "out").glob("advisor_one_*.txt")
    lines = advice.read_text().splitlines()
    assert lines[:2] == ["Line: 3", f"Suspect Nodes: {item}"]
    assert text in advice.read_text()


def test_nothing_to_advise(tmp_path: Path) -> None:
    call = {"Torch_a_0_forward": {"output": X}}
    compared(dump(tmp_path / "a.pkl", call), dump(tmp_path / "b.pkl", call), tmp_path / "out")
    (advice,) = (tmp_path / "out").glob("advisor_*.txt")
    assert "Line: NA" in advice.read_text()
    compared(
        tmp_path / "a.pkl", tmp_path / "b.pkl", tmp_path / "other", auto_analyze=False, suffix="x"
    )
    assert [path.suffix for path in (tmp_path / "other").iterdir()] == [".csv"]


def test_ranks_are_paired_by_number(tmp_path: Path) -> None:
    for side in ("npu", "gpu"):
        for rank in (0, 2, 10):
            calls = {"Torch_a_0_forward": {"output": X + rank}}
            dump(tmp_path / side / f"rank{rank}" / "api_stack_a.pkl", calls, stack=True)
    tables = compare_distributed(tmp_path / "npu", tmp_path / "gpu", tmp_path / "out")
    assert [table.name.rsplit("_", 1)[0] for table in tables] == [
        f"compare_result_rank{rank}-rank{rank}" for rank in (0, 2, 10)
    ]
    assert all("Yes" in table.read_text() for table in tables)


def test_folders_that_do_not_answer_each_other(tmp_path: Path) -> None:
    call = {"Torch_a_0_forward": {"output": X}}
    for folder in ("one/rank0", "two/rank0", "two/rank1"):
        dump(tmp_path / folder / "a.pkl", call)
    arguments = (tmp_path / "one", tmp_path / "two", tmp_path / "out")
    with pytest.raises(UsageError, match=r"has 1 ranks and .* has 2"):
        compare_distributed(*arguments)
    dump(tmp_path / "one" / "rank1" / "a.pkl", call)
    dump(tmp_path / "one" / "rank1" / "b.pkl", call)
    with pytest.raises(UsageError, match=r"rank1: must hold one \.pkl file .* has 2 \.pkl"):
        compare_distributed(*arguments)
    (tmp_path / "one" / "notes.txt").touch()
    with pytest.raises(UsageError, match=r"nothing else, but has notes\.txt"):
        compare_distributed(*arguments)


def test_arguments_that_are_missing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="input_param lacks bench_pkl_path, npu_dump_data_dir"):
        compare({"npu_pkl_path": "a.pkl", "bench_dump_data_dir": "b"}, tmp_path)
    paths = dict.fromkeys(
        ("npu_pkl_path", "bench_pkl_path", "npu_dump_data_dir", "bench_dump_data_dir"), "a.pkl"
    )
    with pytest.raises(FormatError, match="No such file"):
        compare(paths, tmp_path)


def test_rows_are_logged_when_asked_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = dump(tmp_path / "a.pkl", {"Torch_a_0_forward": {"output": X}})
    paths = {
        key: str(path if "pkl" in key else path.with_suffix(""))
        for key in ("npu_pkl_path", "bench_pkl_path", "npu_dump_data_dir", "bench_dump_data_dir")
    }
    with caplog.at_level(logging.INFO, logger="ait_llm"):
        compare({**paths, "is_print_compare_log": True}, tmp_path / "out", auto_analyze=False)
    assert "Torch_a_0_forward_output" in caplog.text


def test_parse_prints_stack_and_statistics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = {"Torch_a_1_forward": {"output": X}, "Torch_b_0_forward": {"output": X}}
    parse(dump(tmp_path / "a.pkl", calls, stack=True), "Torch_a_1_forward")
    assert capsys.readouterr().out.splitlines() == [
        "",
        "Statistic Info: Torch_a_1_forward_output",
        "  shape: [3, 4]",
        "  dtype: torch.float32",
        "  max: 1.0",
        "  min: -1.0",
        f"  mean: {float(np.float32(X).mean())}",
        "",
        "Trace back(Torch_a_1_forward_stack_info):",
        '  File "/t.py", line 8, in main',
        "    m(x)",
        '  File "/home/u/train.py", line 31, in forward',
        "    x = x.permute(1)",
    ]
