"""What the functions of ptdbg write: folders, names, lines and arrays."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from ait_llm import open_dump
from ait_llm.dump.api import PrecisionDebugger
from ait_llm.dump.ptdbg.files import DumpFiles
from ait_llm.dumps import PtdbgDump
from ait_llm.errors import UsageError
from ait_llm.ptdbg import (
    acc_cmp_dump,
    register_hook,
    set_dump_path,
    set_dump_switch,
    unregister_hook,
)


class Small(nn.Module):
    """A program with functions, methods, operators, a tuple and a nested list."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.lstm = nn.LSTM(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.inner(x)).permute(1, 0) + 1
        largest, _ = torch.max(x, 0)
        out, _ = self.lstm(x.t().reshape(1, 3, 4))
        return largest.sum() + out.sum()


@pytest.fixture
def model() -> Small:
    torch.manual_seed(7)
    return Small()


def run(model: nn.Module, path: Path, tag: str = "ptdbg_dump", **switch: Any) -> Path:
    """Dump one forward and backward pass; the folder of the rank."""
    set_dump_path(path, dump_tag=tag)
    register_hook(model, acc_cmp_dump)
    set_dump_switch("ON", **switch)
    model(torch.linspace(-1, 1, 12).reshape(3, 4)).backward()
    set_dump_switch("OFF")
    unregister_hook()
    return path.parent / f"{tag}_v2.0" / "rank0"


def lines(file: Path) -> dict[str, list[Any]]:
    """The lines by their first field, read without our reader."""
    return {(fields := json.loads(text))[0]: fields for text in file.read_text().splitlines()}


def test_layout_is_that_of_the_guide(model: Small, tmp_path: Path) -> None:
    folder = run(model, tmp_path / "npu_dump.pkl", tag="conv")
    assert folder == tmp_path / "conv_v2.0" / "rank0"
    assert sorted(path.name for path in folder.iterdir()) == ["npu_dump", "npu_dump.pkl"]
    written = {path.stem for path in (folder / "npu_dump").iterdir()}
    assert written == set(lines(folder / "npu_dump.pkl"))
    assert (folder / "npu_dump.pkl").stat().st_mode & 0o777 == 0o640
    assert (folder / "npu_dump").stat().st_mode & 0o777 == 0o750


def test_items_of_one_result_several_results_and_nested_lists(model: Small, tmp_path: Path) -> None:
    found = lines(run(model, tmp_path / "a.pkl") / "a.pkl")
    assert "Tensor_permute_0_forward_output" in found
    assert "Torch_max_0_forward_output.0" in found
    assert "VF_lstm_0_forward_input.1.0" in found
    assert "VF_lstm_0_forward_input.1.1" in found
    assert "Functional_linear_0_backward_input.0" in found


def test_lines_hold_name_mark_type_shape_and_three_numbers(model: Small, tmp_path: Path) -> None:
    folder = run(model, tmp_path / "a.pkl")
    name = "Functional_relu_0_forward_input.0"
    fields = lines(folder / "a.pkl")[name]
    values = np.load(folder / "a" / f"{name}.npy")
    expected = model.inner(torch.linspace(-1, 1, 12).reshape(3, 4)).detach().numpy()
    assert np.array_equal(values, expected)
    assert fields[:5] == [name, 1, [], "torch.float32", [3, 4]]
    assert fields[5] == pytest.approx([expected.max(), expected.min(), expected.mean()])


def test_only_floating_tensors_with_dims_unless_the_filter_is_off(
    model: Small, tmp_path: Path
) -> None:
    filtered = lines(run(model, tmp_path / "a.pkl") / "a.pkl")
    everything = lines(run(model, tmp_path / "b.pkl", filter_switch="OFF") / "b.pkl")
    more = {name: fields for name, fields in everything.items() if name not in filtered}
    assert all(fields[3].startswith("torch.float") for fields in filtered.values())
    assert more["Torch_max_0_forward_output.1"][3:5] == ["torch.int64", [3]]
    assert more["Tensor_permute_0_forward_input.1"][3:] == ["<class 'int'>", "[]", [1, 1, 1]]
    assert more["Tensor_sum_0_forward_output"][4] == []


def test_our_reader_reads_it(model: Small, tmp_path: Path) -> None:
    folder = run(model, tmp_path / "a.pkl", filter_switch="OFF", mode="api_stack")
    dump = open_dump(tmp_path)
    assert isinstance(dump, PtdbgDump)
    calls = list(dump.calls())
    assert {value.item for call in calls for value in call.values} | {
        f"{call.name}_stack_info" for call in calls if call.has_stack
    } == set(lines(folder / "api_stack_a.pkl"))
    assert all(call.has_stack == (call.direction == "forward") for call in calls)


def test_stacks_name_the_program_first_and_never_the_tool(model: Small, tmp_path: Path) -> None:
    folder = run(model, tmp_path / "a.pkl", mode="api_stack")
    _, frames = lines(folder / "api_stack_a.pkl")["Functional_relu_0_forward_stack_info"]
    path, number, function, code = frames[0]
    assert (path, function) == (__file__, "forward")
    assert number.isdecimal()
    assert code == "x = functional.relu(self.inner(x)).permute(1, 0) + 1"
    assert not any("ait_llm/dump" in frame[0] for frame in frames)


def calls(folder: Path, name: str = "a.pkl") -> list[str]:
    found = [item.split("_input")[0].split("_output")[0] for item in lines(folder / name)]
    return list(dict.fromkeys(found))


def test_mode_list(model: Small, tmp_path: Path) -> None:
    scope = ["Tensor_permute_0_forward", "Functional_relu_0_backward"]
    assert calls(run(model, tmp_path / "a.pkl", mode="list", scope=scope)) == scope


def test_mode_range(model: Small, tmp_path: Path) -> None:
    scope = ["Functional_relu_0_forward", "Torch_max_0_forward"]
    assert calls(run(model, tmp_path / "a.pkl", mode="range", scope=scope)) == [
        "Functional_relu_0_forward",
        "Tensor_permute_0_forward",
        "Tensor___add___0_forward",
        "Torch_max_0_forward",
    ]


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        (["Tensor_permute_0"], ["Tensor_permute_0_forward"]),
        (
            ["Tensor_permute_0_forward", "Tensor___add___0_forward"],
            ["Tensor_permute_0_forward", "Tensor___add___0_forward"],
        ),
    ],
)
def test_mode_stack_writes_stacks_alone(
    model: Small, tmp_path: Path, scope: list[str], expected: list[str]
) -> None:
    folder = run(model, tmp_path / "a.pkl", mode="stack", scope=scope)
    assert list(lines(folder / "a.pkl")) == [f"{name}_stack_info" for name in expected]
    assert not (folder / "a").exists()


def test_mode_api_list_looks_for_parts_of_names_in_any_case(model: Small, tmp_path: Path) -> None:
    folder = run(model, tmp_path / "a.pkl", mode="api_list", api_list=["ReLU"])
    assert calls(folder) == ["Functional_relu_0_forward", "Functional_relu_0_backward"]


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_dump_mode_keeps_one_direction(model: Small, tmp_path: Path, direction: str) -> None:
    found = calls(run(model, tmp_path / "a.pkl", dump_mode=direction))
    assert found
    assert all(name.endswith(direction) for name in found)


def test_numbers_count_calls_outside_of_the_window_too(tmp_path: Path) -> None:
    set_dump_path(tmp_path / "a.pkl")
    register_hook(nn.ReLU(), acc_cmp_dump)
    torch.relu(torch.ones(2))
    set_dump_switch("ON")
    torch.relu(torch.ones(2))
    set_dump_switch("OFF")
    torch.relu(torch.ones(2))
    set_dump_switch("ON")
    torch.relu(torch.ones(2))
    found = calls(tmp_path / "ptdbg_dump_v2.0" / "rank0")
    assert found == ["Torch_relu_1_forward", "Torch_relu_3_forward"]


def test_inputs_are_those_before_a_call_in_place(tmp_path: Path) -> None:
    set_dump_path(tmp_path / "a.pkl")
    register_hook(nn.ReLU(), acc_cmp_dump)
    set_dump_switch("ON")
    torch.ones(2).add_(2)
    folder = tmp_path / "ptdbg_dump_v2.0" / "rank0" / "a"
    assert np.load(folder / "Tensor_add__0_forward_input.0.npy").tolist() == [1, 1]
    assert np.load(folder / "Tensor_add__0_forward_output.npy").tolist() == [3, 3]


def test_types_that_numpy_lacks_are_widened_and_named_as_they_are(tmp_path: Path) -> None:
    set_dump_path(tmp_path / "a.pkl")
    register_hook(nn.ReLU(), acc_cmp_dump)
    set_dump_switch("ON")
    torch.relu(torch.tensor([1.5, -2], dtype=torch.bfloat16))
    folder = tmp_path / "ptdbg_dump_v2.0" / "rank0"
    name = "Torch_relu_0_forward_input.0"
    assert lines(folder / "a.pkl")[name][3] == "torch.bfloat16"
    assert np.load(folder / "a" / f"{name}.npy").dtype == np.float32


def test_an_operator_that_leaves_it_to_the_other_side_is_no_call(tmp_path: Path) -> None:
    class Other:
        def __radd__(self, other: Any) -> str:
            return "other"

    set_dump_path(tmp_path / "a.pkl")
    register_hook(nn.ReLU(), acc_cmp_dump)
    set_dump_switch("ON")
    assert torch.ones(2) + Other() == "other"
    torch.relu(torch.ones(2))
    folder = tmp_path / "ptdbg_dump_v2.0" / "rank0"
    assert calls(folder) == ["Torch_relu_0_forward"]
    assert not list((folder / "a").glob("*add*"))


def test_a_call_that_raises_keeps_its_inputs(tmp_path: Path) -> None:
    set_dump_path(tmp_path / "a.pkl")
    register_hook(nn.ReLU(), acc_cmp_dump)
    set_dump_switch("ON")
    with pytest.raises(RuntimeError):
        torch.matmul(torch.ones(2, 3), torch.ones(2, 3))
    torch.relu(torch.ones(2))
    found = lines(tmp_path / "ptdbg_dump_v2.0" / "rank0" / "a.pkl")
    assert "Torch_matmul_0_forward_input.1" in found
    assert "Torch_relu_0_forward_output" in found


def test_everything_is_put_back(model: Small, tmp_path: Path) -> None:
    before = [torch.relu, functional.relu, functional.relu.__code__, torch.Tensor.__add__]
    run(model, tmp_path / "a.pkl")
    assert before == [torch.relu, functional.relu, functional.relu.__code__, torch.Tensor.__add__]


def test_what_was_written_survives_the_end_of_the_process(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import os, sys, torch
        from torch import relu
        from ait_llm.ptdbg import *
        set_dump_path(sys.argv[1])
        register_hook(torch.nn.ReLU(), acc_cmp_dump)
        set_dump_switch("ON")
        relu(torch.ones(2))
        os.kill(os.getpid(), 9)
        """
    )
    path = tmp_path / "a.pkl"
    done = subprocess.run([sys.executable, "-c", program, path], check=False)
    assert done.returncode == -9
    assert list(lines(tmp_path / "ptdbg_dump_v2.0" / "rank0" / "a.pkl")) == [
        "Torch_relu_0_forward_input.0",
        "Torch_relu_0_forward_output",
    ]


def test_forked_children_write_nothing(tmp_path: Path) -> None:
    set_dump_path(tmp_path / "a.pkl")
    register_hook(nn.ReLU(), acc_cmp_dump)
    set_dump_switch("ON")
    child = os.fork()
    if not child:
        torch.relu(torch.ones(2))
        os._exit(0)
    os.waitpid(child, 0)
    assert not lines(tmp_path / "ptdbg_dump_v2.0" / "rank0" / "a.pkl")


def test_the_rank_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "5")
    for given, expected in ((None, 5), (2, 2)):
        set_dump_path(tmp_path / "a.pkl")
        register_hook(nn.ReLU(), acc_cmp_dump, rank=given)
        set_dump_switch("ON")
        unregister_hook()
        assert (tmp_path / "ptdbg_dump_v2.0" / f"rank{expected}" / "a.pkl").exists()


def test_windows_of_several_modes_keep_their_files(tmp_path: Path) -> None:
    set_dump_path(tmp_path / "a.pkl")
    register_hook(nn.ReLU(), acc_cmp_dump)
    for mode in ("all", "api_stack", "all"):
        set_dump_switch("ON", mode=mode)
        torch.relu(torch.ones(2))
        set_dump_switch("OFF")
    folder = tmp_path / "ptdbg_dump_v2.0" / "rank0"
    assert calls(folder) == ["Torch_relu_0_forward", "Torch_relu_2_forward"]
    assert calls(folder, "api_stack_a.pkl")[0] == "Torch_relu_1_forward"


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = DumpFiles(tmp_path / "a.pkl")
    files.line(["first"])
    write = os.write

    def half(file: int, data: bytes) -> int:
        if len(data) < 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[: len(data) - 4])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(OSError, match="No space left"):
            files.line(["second"])
    files.line(["third"])
    assert list(lines(tmp_path / "a.pkl")) == ["first", "third"]


def test_a_second_dump_needs_its_own_path(tmp_path: Path) -> None:
    set_dump_path(tmp_path / "a.pkl")
    register_hook(nn.ReLU(), acc_cmp_dump)
    with pytest.raises(UsageError, match="set_dump_path comes before register_hook, and once"):
        set_dump_path(tmp_path / "b.pkl")


def test_values_are_those_of_precision_debugger(model: Small, tmp_path: Path) -> None:
    """The same program under the other interface, item by item."""
    folder = run(model, tmp_path / "a.pkl")
    debugger = PrecisionDebugger(dump_path=f"{tmp_path}/api", task="tensor")
    try:
        debugger.start()
        model(torch.linspace(-1, 1, 12).reshape(3, 4)).backward()
        debugger.stop()
        debugger.step()
    finally:
        PrecisionDebugger._reset()
    expected = {
        re.sub(
            r"^(\w+)\.(\w+)\.(\d+)\.(\w+)\.", r"\1_\2_\3_\4_", f"{call.name}.{tensor.ir_name}"
        ): tensor
        for call in open_dump(tmp_path / "api").operations()
        for tensor in call.tensors
    }
    found = {path.stem: np.load(path) for path in (folder / "a").iterdir()}
    shared = 0
    for item, values in found.items():
        other = expected.get(item) or expected.get(f"{item}.0")
        if other is not None:  # not what the other one leaves out as of low risk
            assert np.array_equal(values, other.numpy())
            shared += 1
    assert shared > len(found) / 2
