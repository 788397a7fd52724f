"""The ``acl`` modes, with a device that only notes what it is told."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from ait_llm.errors import UsageError
from ait_llm.ptdbg import (
    acc_cmp_dump,
    overflow_check,
    register_hook,
    set_backward_input,
    set_dump_path,
    set_dump_switch,
)


class Device:
    """Notes the calls of a dump, and whether a product ran within it."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def init_dump(self) -> None:
        self.notes.append("init")

    def set_dump(self, config: str) -> None:
        self.notes.append(Path(config).name)

    def synchronize(self) -> None:
        self.notes.append("wait")

    def finalize_dump(self) -> None:
        self.notes.append("end")


DUMPED = ["init", "dump.json", "wait", "wait", "end"]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    found = Device()
    module = types.ModuleType("torch_npu")
    module.npu = found  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_npu", module)
    return found


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"dump": {"dump_list": [], "dump_path": "./out"}}))
    return path


def test_a_forward_call_is_dumped_when_it_runs(device: Device, config: Path) -> None:
    register_hook(nn.ReLU(), acc_cmp_dump, dump_mode="acl", dump_config=config)
    set_dump_switch("ON", mode="acl", scope=["Torch_relu_1_forward"])
    torch.relu(torch.ones(2))
    assert not device.notes
    torch.relu(torch.ones(2))
    torch.relu(torch.ones(2))
    assert device.notes == DUMPED


def test_a_backward_call_runs_with_the_gradient_of_an_earlier_dump(
    device: Device, config: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "grad.npy", np.array([2.0, 3.0], np.float32))
    register_hook(nn.ReLU(), acc_cmp_dump, dump_mode="acl", dump_config=config)
    set_dump_switch("ON", mode="acl", scope=["Torch_relu_0_backward"])
    set_backward_input([str(tmp_path / "grad.npy")])
    x = torch.ones(2, requires_grad=True)
    y = torch.relu(x)
    assert device.notes == DUMPED
    y.sum().backward()  # the graph of the program is as it was
    assert x.grad is not None
    assert x.grad.tolist() == [1, 1]


def test_a_backward_call_without_its_gradient_is_explained(device: Device, config: Path) -> None:
    register_hook(nn.ReLU(), acc_cmp_dump, dump_mode="acl", dump_config=config)
    set_dump_switch("ON", mode="acl", scope=["Torch_relu_0_backward"])
    with pytest.raises(UsageError, match="call set_backward_input with the file of its gradient"):
        torch.relu(torch.ones(2, requires_grad=True))


def test_a_call_that_has_no_gradient_is_told(
    device: Device, config: Path, caplog: pytest.LogCaptureFixture
) -> None:
    register_hook(nn.ReLU(), acc_cmp_dump, dump_mode="acl", dump_config=config)
    set_dump_switch("ON", mode="acl", scope=["Torch_relu_0_backward"])
    torch.relu(torch.ones(2))
    assert "is not of tensor type and cannot be automatically derived" in caplog.text
    assert not device.notes


def test_a_kernel_dump_takes_its_own_mode_only(device: Device, config: Path) -> None:
    register_hook(nn.ReLU(), acc_cmp_dump, dump_mode="acl", dump_config=config)
    with pytest.raises(AssertionError, match="set_dump_switch takes mode='acl', not 'all'"):
        set_dump_switch("ON")


def test_the_kernels_of_an_overflow_are_dumped(
    device: Device, config: Path, tmp_path: Path
) -> None:
    set_dump_path(tmp_path / "a.pkl")
    register_hook(nn.ReLU(), overflow_check, 2, dump_mode="acl", dump_config=config)
    torch.mul(torch.tensor([1e30]), 1e30)
    assert device.notes == DUMPED
