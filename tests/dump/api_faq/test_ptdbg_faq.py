"""The questions of ptdbg's FAQ, each as a test.

What has no test here is answered in docs/migrating.md.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from ait_llm import open_dump
from ait_llm.dump.api.interception import Interception
from ait_llm.dump.ptdbg.overflow import device_flag
from ait_llm.errors import FormatError, MissingDependencyError, UsageError
from ait_llm.ptdbg import (
    acc_cmp_dump,
    compare,
    register_hook,
    set_dump_path,
    set_dump_switch,
    unregister_hook,
)


def begin(folder: Path, name: str = "a.pkl", **options: Any) -> Path:
    """Begin a dump; the folder of its rank."""
    set_dump_path(folder / name)
    register_hook(nn.ReLU(), acc_cmp_dump, **options)
    set_dump_switch("ON")
    return folder / "ptdbg_dump_v2.0" / f"rank{options.get('rank', 0)}"


def items(file: Path) -> list[str]:
    return [json.loads(line)[0] for line in file.read_text().splitlines()]


# Use


def test_use_2_how_is_a_fused_function_of_my_own_dumped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_npu = types.ModuleType("torch_npu")

    def npu_scaled_masked_softmax(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x + mask, -1)

    torch_npu.npu_fused_of_mine = npu_scaled_masked_softmax  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_npu", torch_npu)
    ops = tmp_path / "ops.yaml"
    ops.write_text("torch_npu:\n  - npu_fused_of_mine\n")
    folder = begin(tmp_path, wrap_ops=ops)
    torch_npu.npu_fused_of_mine(torch.ones(2), torch.ones(2))  # type: ignore[attr-defined]
    assert items(folder / "a.pkl")[0] == "NPU_npu_fused_of_mine_0_forward_input.0"


# Frequent questions


def test_1_do_two_dumps_into_one_folder_conflict(tmp_path: Path) -> None:
    """The second replaces the first, with its arrays; another tag keeps both."""
    for function in (torch.exp, torch.relu):
        folder = begin(tmp_path)
        function(torch.ones(2))
        unregister_hook()
    assert items(folder / "a.pkl")[0] == "Torch_relu_0_forward_input.0"
    assert {path.stem for path in (folder / "a").iterdir()} == set(items(folder / "a.pkl"))


def test_2_which_of_several_models_is_given_to_register_hook(tmp_path: Path) -> None:
    """Any of them."""
    first, second = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.GELU())
    set_dump_path(tmp_path / "a.pkl")
    register_hook(first, acc_cmp_dump)
    set_dump_switch("ON")
    second(first(torch.ones(2)))
    found = items(tmp_path / "ptdbg_dump_v2.0" / "rank0" / "a.pkl")
    assert {"Functional_linear_1_forward_output", "Functional_gelu_0_forward_output"} <= set(found)


def test_3_how_are_kernels_dumped(tmp_path: Path) -> None:
    """With dump_mode='acl', which needs an NPU and its configuration."""
    config = tmp_path / "dump.json"
    config.write_text('{"dump": {"dump_path": "./out"}}')
    with pytest.raises(MissingDependencyError, match="writes what the kernels of an NPU compute"):
        register_hook(nn.ReLU(), acc_cmp_dump, dump_mode="acl", dump_config=str(config))


# Errors

TWO_RANKS = textwrap.dedent(
    """
    import os, sys, torch
    import torch.distributed as dist
    from ait_llm.ptdbg import *
    seed_all()
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store",
                            rank=int(sys.argv[2]), world_size=2)
    model = torch.nn.Linear(2, 2)
    set_dump_path(f"{sys.argv[1]}/dump/a.pkl")
    register_hook(model, acc_cmp_dump)
    set_dump_switch("ON")
    model(torch.full((1, 2), float(dist.get_rank()))).sum().backward()
    set_dump_switch("OFF")
    dist.barrier()
    dist.destroy_process_group()
    """
)


def test_error_2_every_rank_has_its_folder_and_its_file(tmp_path: Path) -> None:
    """The rank is that of torch.distributed, so two processes never write one file."""
    ranks = [
        subprocess.Popen([sys.executable, "-c", TWO_RANKS, str(tmp_path), str(rank)])
        for rank in (0, 1)
    ]
    assert [process.wait(120) for process in ranks] == [0, 0]
    for rank in (0, 1):
        calls = list(open_dump(tmp_path / "dump").operations(device=rank))
        linear = next(call for call in calls if call.name == "Functional_linear_0_forward")
        assert linear.inputs[0].numpy().tolist() == [[rank, rank]]
        assert any(call.name.endswith("backward") for call in calls)


def test_error_2_two_processes_that_were_given_one_rank_are_told(tmp_path: Path) -> None:
    """A process holds the lock of the file that it writes."""
    path = begin(tmp_path) / "a.pkl"
    unregister_hook()
    with path.open() as held_by_another:
        fcntl.flock(held_by_another, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match=r"another process writes this file.* rank of each"):
            begin(tmp_path)


def test_error_4_the_overflow_flag_cannot_be_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says to set the device first."""

    class Functions:
        def _check_overflow_npu(self) -> bool:
            return False

        def _clear_overflow_npu(self) -> None:
            raise RuntimeError("NPU error, error code is 107002")

    torch_npu = types.ModuleType("torch_npu")
    torch_npu._C = Functions()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_npu", torch_npu)
    with pytest.raises(RuntimeError, match=r"107002.*torch\.npu\.set_device\(f'npu:\{rank\}'\)"):
        device_flag()


def test_error_5_extra_data_in_a_pkl_file(tmp_path: Path) -> None:
    """The line is named, and where such lines come from."""
    path = tmp_path / "a.pkl"
    path.write_text('["Torch_a_0_forward_input.0", 1, []]["Torch_b_0_forward_input.0", 1, []]\n')
    with pytest.raises(FormatError, match=r"line 1 is not one JSON list: Extra data"):
        list(open_dump(path).operations())


def test_error_6_functions_that_this_torch_does_not_have(tmp_path: Path) -> None:
    """Names of the list that do not exist are passed over."""
    names = {"torch": ["relu", "does_not_exist"], "tensor": ["__idiv__", "symeig"]}
    found = Interception(lambda *_: None, names, {"no_such_module": ["f"]})
    assert [api.name for api in found.table.values()] == ["relu"]


def test_error_7_is_a_suffix_such_as_1_0_normal(tmp_path: Path) -> None:
    lstm = nn.LSTM(2, 2)
    folder = begin(tmp_path)
    lstm(torch.ones(1, 1, 2))
    assert (folder / "a" / "VF_lstm_0_forward_input.1.0.npy").exists()
    assert (folder / "a" / "VF_lstm_0_forward_input.1.1.npy").exists()


def test_error_8_the_pkl_file_is_there_without_the_switch_turned_off(tmp_path: Path) -> None:
    folder = begin(tmp_path)
    torch.relu(torch.ones(2))
    assert items(folder / "a.pkl")[-1] == "Torch_relu_0_forward_output"


def test_error_9_the_current_file_contains_stack_information(tmp_path: Path) -> None:
    set_dump_path(tmp_path / "a.pkl")
    register_hook(nn.ReLU(), acc_cmp_dump)
    set_dump_switch("ON", mode="api_stack")
    torch.relu(torch.ones(2))
    unregister_hook()
    folder = tmp_path / "ptdbg_dump_v2.0" / "rank0"
    paths = {
        "npu_pkl_path": f"{folder}/api_stack_a.pkl",
        "bench_pkl_path": f"{folder}/api_stack_a.pkl",
        "npu_dump_data_dir": f"{folder}/api_stack_a",
        "bench_dump_data_dir": f"{folder}/api_stack_a",
        "is_print_compare_log": True,
    }
    with pytest.raises(UsageError, match="please turn on the stack_mode"):
        compare(paths, tmp_path / "output")
    assert compare(paths, tmp_path / "output", stack_mode=True).exists()


def test_error_10_name_torch_npu_is_not_defined(tmp_path: Path) -> None:
    """Said when the hook is registered, with what a CPU or GPU can do."""
    config = tmp_path / "dump.json"
    config.write_text('{"dump": {"dump_path": "./out"}}')
    with pytest.raises(MissingDependencyError, match="a CPU or GPU has no such kernels"):
        register_hook(nn.ReLU(), acc_cmp_dump, dump_mode="acl", dump_config=config)


def test_error_11_the_file_path_contains_special_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "abc++"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with pytest.raises(RuntimeError, match=r"The file path .*abc\+\+/dump\.pkl contains special"):
        set_dump_path("./dump.pkl")


def test_error_12_register_hook_before_set_dump_path(tmp_path: Path) -> None:
    """It says so, and so does a second one."""
    with pytest.raises(UsageError, match=r"call set_dump_path\(.*\) before it"):
        register_hook(nn.ReLU(), acc_cmp_dump)
    begin(tmp_path)
    with pytest.raises(UsageError, match="register_hook was called already"):
        register_hook(nn.ReLU(), acc_cmp_dump)


def test_error_13_where_is_the_gradient_of_the_weight_of_a_product(tmp_path: Path) -> None:
    """As before: a product of three dims and no bias is recorded at its view.

    Two dims have it, and so does PrecisionDebugger at level mix, by parameter.
    """
    weight = torch.ones(2, 2, requires_grad=True)
    folder = begin(tmp_path)
    torch.matmul(torch.ones(3, 2, requires_grad=True), weight).sum().backward()
    shapes = [
        np.load(path).shape
        for path in sorted((folder / "a").glob("Torch_matmul_0_backward_output.*"))
    ]
    assert shapes == [(3, 2), (2, 2)]


def test_error_14_a_type_in_the_pkl_file_differs_from_that_of_the_array(tmp_path: Path) -> None:
    """The one in the pkl file counts, and readers go by it."""
    folder = begin(tmp_path)
    torch.relu(torch.ones(2, dtype=torch.bfloat16))
    (call,) = open_dump(folder).operations()
    assert np.load(call.inputs[0].path).dtype == np.float32
    assert {str(tensor.torch().dtype) for tensor in call.tensors} == {"torch.bfloat16"}


def test_error_16_please_register_hooks_to_nn_module(tmp_path: Path) -> None:
    set_dump_path(tmp_path / "a.pkl")
    with pytest.raises(AssertionError, match=r"Please register hooks to nn\.Module\."):
        register_hook(torch.ones(2), acc_cmp_dump)  # type: ignore[arg-type]


def test_error_17_indexing_behaves_as_without_the_tool(tmp_path: Path) -> None:
    begin(tmp_path)
    x = torch.arange(6.0).reshape(2, 3)
    assert x[0, 1:].tolist() == [1, 2]
    assert x[..., None].shape == (2, 3, 1)
    with pytest.raises(IndexError, match="too many indices for tensor of dimension 2"):
        _ = x[0, 0, 0]
    with pytest.raises(TypeError, match="len\\(\\) of a 0-d tensor"):
        len(torch.tensor(1.0))


def test_error_18_activation_func_must_be_gelu(tmp_path: Path) -> None:
    """Functions stay the objects they are while they are captured."""
    before = functional.gelu
    folder = begin(tmp_path)
    assert functional.gelu is before
    before(torch.ones(2))
    assert items(folder / "a.pkl")[0] == "Functional_gelu_0_forward_input.0"


def test_error_19_functions_that_a_compiler_trips_over_are_left_out(tmp_path: Path) -> None:
    ops = tmp_path / "ops.yaml"
    ops.write_text("Tensor:\n  - '!t'\n  - '!transpose'\n")
    folder = begin(tmp_path, wrap_ops=ops)
    torch.ones(2, 3).t().transpose(0, 1).mul(2)
    assert {item.rsplit("_", 1)[0] for item in items(folder / "a.pkl")} == {"Tensor_mul_0_forward"}
