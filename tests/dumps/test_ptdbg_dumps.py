"""Dumps of ptdbg: text called ``.pkl`` beside folders of arrays."""

from __future__ import annotations

import contextlib
import json
import math
import pickle
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ait_llm import open_dump
from ait_llm.core import DType
from ait_llm.dumps import PtdbgDump
from ait_llm.dumps.describe import describe
from ait_llm.errors import FormatError

# The lines that the format's description shows.
LINES = """\
["Tensor_permute_1_forward_input.0", 1, [], "torch.float32", [2, 3, 4], [1.25, -0.5, 0.125]]
["Tensor_permute_1_forward_input.1", 1, [], "<class 'int'>", "[]", [0, 0, 0]]
["Tensor_permute_1_forward_output", 1, [], "torch.float32", [3, 2, 4], [1.25, -0.5, 0.125]]
["Tensor_permute_1_forward_stack_info", [["/home/u/train.py", "31", "forward", "x = x.permute(1)"]]]
["VF_lstm_99_forward_input.1.0", 1, ["b20e96b1"], "torch.float16", [3], [1.0, "Nan", 0.1, 2.5]]
["Functional_linear_0_backward_input.0", 1, [], "torch.bfloat16", [2, 4], [0.5, -0.5, 0.0]]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dump of rank 3 with two of its arrays."""
    rank = tmp_path / "dump_path" / "ptdbg_dump_v2.0" / "rank3"
    (rank / "npu_dump").mkdir(parents=True)
    (rank / "npu_dump.pkl").write_text(LINES)
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    np.save(rank / "npu_dump" / "Tensor_permute_1_forward_input.0.npy", values)
    small = np.array([[0.5, -0.5, 0, 1], [2, 3, 4, 5]], np.float32)
    np.save(rank / "npu_dump" / "Functional_linear_0_backward_input.0.npy", small)
    return tmp_path / "dump_path"


def opened(path: Path) -> PtdbgDump:
    dump = open_dump(path)
    assert isinstance(dump, PtdbgDump)
    return dump


PARTS = ["", "ptdbg_dump_v2.0", "ptdbg_dump_v2.0/rank3", "ptdbg_dump_v2.0/rank3/npu_dump.pkl"]


@pytest.mark.parametrize("part", PARTS)
def test_any_part_of_a_dump_opens_it(folder: Path, part: str) -> None:
    calls = list(opened(folder / part).operations())
    assert [call.name for call in calls] == [
        "Tensor_permute_1_forward",
        "VF_lstm_99_forward",
        "Functional_linear_0_backward",
    ]
    assert {call.rank for call in calls} == {3}
    assert [(call.api_name, call.call, call.direction) for call in calls][1:] == [
        ("VF.lstm", 99, "forward"),
        ("Functional.linear", 0, "backward"),
    ]


def test_items_and_what_is_known_of_them(folder: Path) -> None:
    permute, lstm, _ = opened(folder).operations()
    assert [value.item for value in permute.values] == [
        "Tensor_permute_1_forward_input.0",
        "Tensor_permute_1_forward_input.1",
        "Tensor_permute_1_forward_output",
    ]
    assert permute.params == {"input.1": 0}
    assert [tensor.name for tensor in permute.tensors] == ["intensor0", "outtensor0"]
    assert permute.outputs[0].shape == (3, 2, 4)
    (nested,) = lstm.tensors
    found = nested.statistics
    recorded = next(value for value in lstm.values if value.label == "input.1.0")
    assert (nested.ir_name, nested.dtype, recorded.md5) == ("input.1.0", DType.FLOAT16, "b20e96b1")
    assert found is not None
    assert (found.max, found.mean, found.l2norm) == (1.0, 0.1, 2.5)
    assert math.isnan(found.min or 0)


def test_stack_is_that_of_newer_captures(folder: Path) -> None:
    permute, lstm, _ = opened(folder).operations()
    assert permute.stack == ("File /home/u/train.py, line 31, in forward, \n x = x.permute(1)",)
    assert lstm.stack is None


def test_values_are_read_and_others_are_absent(folder: Path) -> None:
    permute, _, _ = opened(folder).operations()
    assert np.array_equal(permute.inputs[0].numpy(), np.arange(24).reshape(2, 3, 4))
    assert permute.inputs[0].payload() is not None
    assert not permute.outputs[0].has_data
    assert permute.outputs[0].payload() is None


def test_the_type_is_that_of_the_text_not_of_the_array(folder: Path) -> None:
    *_, linear = opened(folder).operations()
    (tensor,) = linear.inputs
    assert tensor.dtype is DType.BFLOAT16
    assert tensor.numpy().dtype == ml_dtypes.bfloat16
    assert tensor.numpy().astype(float).tolist() == [[0.5, -0.5, 0, 1], [2, 3, 4, 5]]
    assert tensor.payload() is None


def test_steps_of_later_versions(tmp_path: Path) -> None:
    for step in (0, 2):
        rank = tmp_path / f"ptdbg_dump_v4.0/step{step}/rank0"
        rank.mkdir(parents=True)
        (rank / "dump.pkl").write_text(LINES)
    assert opened(tmp_path).steps == (0, 2)
    assert {call.step for call in opened(tmp_path).operations(step=2)} == {2}


def test_overflow_is_told(folder: Path) -> None:
    path = folder / "ptdbg_dump_v2.0/rank3/npu_dump.pkl"
    path.write_text('["Torch_exp_0_forward_output", 101, [], "torch.float16", [4]]\n')
    (call,) = opened(path).calls()
    assert call.is_overflow
    assert call.operation().outputs[0].statistics is None


def test_the_same_call_of_two_runs_in_one_file_is_two_calls(folder: Path) -> None:
    path = folder / "ptdbg_dump_v2.0/rank3/npu_dump.pkl"
    path.write_text(LINES + LINES)
    calls = list(opened(path).operations())
    assert [len(call.values) for call in calls] == [3, 1, 1, 3, 1, 1]


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "dump.pkl"
    path.write_bytes(pickle.dumps(["Torch_a_0_forward_output"]))
    with pytest.raises(FormatError, match="is a pickle, which is not loaded because it can run"):
        list(opened(path).operations())
    with pytest.raises(FormatError, match="is not a dump"):
        open_dump(tmp_path)


def test_lines_that_two_processes_wrote_are_explained(folder: Path) -> None:
    path = folder / "ptdbg_dump_v2.0/rank3/npu_dump.pkl"
    first, *rest = LINES.splitlines()
    path.write_text("\n".join([first + rest[0], *rest, ""]))
    with pytest.raises(FormatError, match=r"line 1 is not one JSON list: Extra data.*its rank"):
        list(opened(path).operations())


def test_a_line_that_breaks_off_is_told(folder: Path) -> None:
    path = folder / "ptdbg_dump_v2.0/rank3/npu_dump.pkl"
    path.write_text(LINES[:-20])
    dump = opened(folder)
    assert [call.name for call in dump.operations()][-1] == "VF_lstm_99_forward"
    assert "npu_dump.pkl breaks off" in (dump.processes[0].problem or "")
    path.write_text(LINES.rstrip())
    assert opened(folder).processes[0].problem is None


@pytest.mark.parametrize("name", ["../../x_0_forward_output", "/etc/Torch_a_0_forward_input.0"])
def test_files_outside_the_folder_are_refused(folder: Path, name: str) -> None:
    path = folder / "ptdbg_dump_v2.0/rank3/npu_dump.pkl"
    path.write_text(json.dumps([name, 1, [], "torch.float32", [1], [0, 0, 0]]) + "\n")
    (call,) = opened(path).operations()
    with pytest.raises(FormatError, match="which does not lie in"):
        _ = call.values


@pytest.mark.parametrize("line", ["{}", "[]", '["x", 1]', "nonsense", '[["a_0_forward_input"]]'])
def test_lines_of_another_form_are_refused(folder: Path, line: str) -> None:
    path = folder / "ptdbg_dump_v2.0/rank3/npu_dump.pkl"
    path.write_text(f"{LINES}{line}\n")
    with pytest.raises(FormatError, match="line 7"):
        list(opened(path).operations())


def test_listing_shows_calls(folder: Path) -> None:
    rows = list(describe(opened(folder), tensors=True))
    assert (rows[0].name, rows[0].type) == ("Tensor_permute_1_forward", "permute")
    assert rows[2].note == "no data"


ODD = st.recursive(
    st.none() | st.integers(-2, 3) | st.sampled_from(["torch.float16", "<class 'int'>", "Nan"]),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)


@given(fields=st.lists(ODD, max_size=6), part=st.sampled_from(["input.0", "output", "stack_info"]))
@settings(max_examples=80, deadline=None)
def test_no_line_ends_in_another_error(
    tmp_path_factory: pytest.TempPathFactory, fields: list[object], part: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "odd.pkl"
    path.write_text(json.dumps([f"Torch_a_0_forward_{part}", *fields]) + "\n")
    with contextlib.suppress(FormatError):
        for call in opened(path).operations():
            _ = call.stack, dict(call.params), call.phases
            for tensor in call.tensors:
                _ = tensor.dtype, tensor.shape, tensor.statistics, tensor.payload()
