"""Overflow detection: the call where it begins, its file, and the end of the program."""

from __future__ import annotations

import json
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from ait_llm import open_dump
from ait_llm.dump.ptdbg.overflow import is_overflowed
from ait_llm.dumps import PtdbgDump
from ait_llm.ptdbg import (
    overflow_check,
    register_hook,
    set_dump_path,
    set_overflow_check_switch,
)

HUGE = torch.tensor([1.0, 1e30, -2.0])


def registered(folder: Path, **options: int) -> Path:
    set_dump_path(folder / "a.pkl")
    register_hook(nn.ReLU(), overflow_check, **options)
    return folder / "ptdbg_dump_v2.0" / "rank0"


def test_the_last_overflow_ends_the_program_and_names_its_file(tmp_path: Path) -> None:
    folder = registered(tmp_path, overflow_nums=2)
    torch.mul(HUGE, HUGE)
    with pytest.raises(ValueError, match=r"\[overflow 2 times\]: dump file is saved in") as error:
        torch.exp(torch.tensor([1000.0]))
    path = Path(str(error.value).split("'")[1])
    assert path.parent == folder
    assert re.fullmatch(r"Overflow_info_\d{14}_2\.pkl", path.name)
    assert len(list(folder.glob("Overflow_info_*_1.pkl"))) == 1


def test_the_file_holds_the_call_with_its_arrays(tmp_path: Path) -> None:
    folder = registered(tmp_path)
    with pytest.raises(ValueError, match="overflow 1 times"):
        torch.mul(HUGE, HUGE)
    (path,) = folder.glob("*.pkl")
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        [f"Torch_mul_0_forward_{part}", 101, [], "torch.float32", [3]]
        for part in ("input.0", "input.1", "output")
    ]
    values = np.load(path.with_suffix("") / "Torch_mul_0_forward_output.npy")
    assert values.tolist() == [1, np.inf, 4]
    dump = open_dump(path)
    assert isinstance(dump, PtdbgDump)
    (call,) = dump.calls()
    assert call.is_overflow


def test_calls_that_only_pass_it_on_are_none(tmp_path: Path) -> None:
    registered(tmp_path)
    torch.relu(torch.tensor([torch.inf]))
    torch.add(torch.tensor([torch.nan]), 1)
    assert not list(tmp_path.rglob("*.pkl"))


def test_inputs_of_calls_in_place_are_those_before(tmp_path: Path) -> None:
    folder = registered(tmp_path)
    with pytest.raises(ValueError, match="overflow 1 times"):
        HUGE.clone().mul_(1e30)
    (array,) = folder.rglob("Tensor_mul__0_forward_input.0.npy")
    assert np.load(array).tolist() == pytest.approx([1, 1e30, -2])


def test_backward_calls_are_looked_at(tmp_path: Path) -> None:
    registered(tmp_path)
    x = torch.zeros(3, requires_grad=True)
    y = torch.sqrt(x).sum()
    with pytest.raises(ValueError, match=r"\[overflow 1 times\]"):
        y.backward()
    (path,) = tmp_path.rglob("*.pkl")
    assert json.loads(path.read_text().splitlines()[0])[0] == "Torch_sqrt_0_backward_input.0"


def test_the_switch_limits_where_it_looks(tmp_path: Path) -> None:
    registered(tmp_path)
    set_overflow_check_switch("OFF")
    torch.mul(HUGE, HUGE)
    set_overflow_check_switch("ON", filter_switch="OFF")
    with pytest.raises(ValueError, match="overflow 1 times"):
        torch.mul(HUGE, 1e30)
    (path,) = tmp_path.rglob("*.pkl")
    assert path.read_text().count("<class 'float'>") == 1


def test_without_a_path_it_writes_to_the_present_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    register_hook(nn.ReLU(), overflow_check, rank=3)
    with pytest.raises(ValueError, match="overflow 1 times"):
        torch.mul(HUGE, HUGE)
    assert len(list((tmp_path / "ptdbg_dump_v2.0" / "rank3").glob("*.pkl"))) == 1


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([1.0, 2.0], torch.float32, False),
        ([1.0, torch.inf], torch.float32, True),
        ([1.0, torch.nan], torch.bfloat16, True),
        ([1.0, -65504.0], torch.float16, True),
        ([1.0, 65472.0], torch.float16, False),
        ([torch.finfo(torch.float32).max], torch.float32, False),
        ([1.0, 448.0], torch.float8_e4m3fn, True),
        ([1, 2**31 - 1], torch.int32, False),
        ([complex(1, torch.inf)], torch.complex64, True),
        ([], torch.float32, False),
    ],
)
def test_what_counts_as_overflow(values: list[float], dtype: torch.dtype, expected: bool) -> None:
    assert is_overflowed(torch.tensor(values).to(dtype)) is expected


def test_a_device_that_saturates_is_asked_for_its_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Flag:
        raised = True
        cleared = 0

        def _check_overflow_npu(self) -> bool:
            return self.raised

        def _clear_overflow_npu(self) -> None:
            self.raised = False
            self.cleared += 1

    flag = Flag()
    torch_npu = types.ModuleType("torch_npu")
    torch_npu._C = flag  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_npu", torch_npu)
    registered(tmp_path, overflow_nums=2)
    assert flag.cleared == 1  # what was before does not count
    torch.mul(HUGE, HUGE)  # the flag alone decides
    assert not list(tmp_path.rglob("*.pkl"))
    flag.raised = True
    torch.relu(torch.ones(2))
    assert len(list(tmp_path.rglob("*.pkl"))) == 1
    assert flag.cleared == 2
