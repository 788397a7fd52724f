"""The ledger beside the folder of the tag: the capture and its readers tell what is missing."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ait_llm import open_dump
from ait_llm.dumps.model import Process
from ait_llm.ptdbg import (
    acc_cmp_dump,
    compare_distributed,
    register_hook,
    set_dump_path,
    set_dump_switch,
    unregister_hook,
)


@pytest.fixture(autouse=True)
def begun(tmp_path: Path) -> None:
    """A capture of everything has begun."""
    set_dump_path(tmp_path / "a.pkl")
    register_hook(nn.ReLU(), acc_cmp_dump)
    set_dump_switch("ON")


def lines(folder: Path) -> list[dict[str, Any]]:
    (path,) = (folder / "ledger" / "ptdbg_dump_v2.0").iterdir()
    assert path.name == f"rank0_{os.getpid()}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def process(folder: Path) -> Process:
    (found,) = open_dump(folder).processes
    return found


def test_every_call_has_a_line_and_off_seals(tmp_path: Path) -> None:
    x = torch.ones(3, requires_grad=True)
    torch.exp(x).sum().backward()
    torch.argmax(torch.tensor([1]))  # the filter leaves nothing of it
    set_dump_switch("OFF")

    header, window, *calls, seal = lines(tmp_path)
    assert (header["producer"], header["pid"], header["device"]) == ("ptdbg", os.getpid(), "rank0")
    assert (window["kind"], window["mode"]) == ("note", "all")
    found = {line["op"]: (line["type"], line["state"], line.get("tensors")) for line in calls}
    assert found["Torch_exp_0_forward"] == ("Torch_exp", "saved", 2)
    assert found["Tensor_sum_0_backward"] == ("Tensor_sum", "saved", 1)
    assert found["Torch_argmax_0_forward"] == ("Torch_argmax", "empty", None)
    assert {line["path"] for line in calls} == {"rank0/a.pkl"}
    assert (seal["kind"], seal["end"], seal["operations"]) == ("seal", "stop", len(calls))
    for path in (tmp_path, tmp_path / "ptdbg_dump_v2.0" / "rank0" / "a.pkl"):
        assert (process(path).state, process(path).problem) == ("sealed", None)


def test_a_process_that_was_killed_is_unfinished_and_its_last_call_is_named(tmp_path: Path) -> None:
    torch.exp(torch.ones(3))
    torch.tanh(torch.ones(3))
    killed = Path(shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}_killed")))
    unregister_hook()

    assert process(killed).state == "unfinished"
    assert "last operation was Torch_tanh Torch_tanh_0_forward" in (process(killed).problem or "")
    assert process(tmp_path).end == "exit"


def test_an_array_that_cannot_be_written_is_a_loss(tmp_path: Path) -> None:
    folder = tmp_path / "ptdbg_dump_v2.0" / "rank0"
    (folder / "a" / "Torch_exp_1_forward_output.npy").mkdir()
    for _ in range(3):
        torch.exp(torch.ones(3))
    set_dump_switch("OFF")

    (loss,) = process(tmp_path).losses
    assert (loss.op, loss.state, loss.tensors) == ("Torch_exp_1_forward", "failed", 1)
    assert "lost 1 tensor of 1 operation" in (process(tmp_path).problem or "")


def test_a_call_that_vanished_after_the_capture_is_missing(tmp_path: Path) -> None:
    torch.exp(torch.ones(3))
    torch.tanh(torch.ones(3))
    unregister_hook()
    file = tmp_path / "ptdbg_dump_v2.0" / "rank0" / "a.pkl"
    kept = [line for line in file.read_text().splitlines(True) if "tanh" not in line]
    file.write_text("".join(kept))

    (loss,) = process(tmp_path).losses
    assert (loss.op, loss.state) == ("Torch_tanh_0_forward", "missing")


def test_stacks_alone_are_described(tmp_path: Path) -> None:
    set_dump_switch("OFF")
    set_dump_switch("ON", mode="stack")
    torch.exp(torch.ones(3))
    set_dump_switch("OFF")

    (call,) = (line for line in lines(tmp_path) if line["kind"] == "op")
    assert call["state"] == "described"


def test_the_next_run_replaces_the_ledger_and_ranks_are_compared_as_before(tmp_path: Path) -> None:
    torch.exp(torch.ones(3))
    unregister_hook()
    set_dump_path(tmp_path / "a.pkl")
    register_hook(nn.ReLU(), acc_cmp_dump)
    set_dump_switch("ON")
    torch.tanh(torch.ones(3))
    unregister_hook()

    assert [line["op"] for line in lines(tmp_path) if line["kind"] == "op"] == [
        "Torch_tanh_0_forward"
    ]
    ranks = tmp_path / "ptdbg_dump_v2.0"
    compare_distributed(str(ranks), str(ranks), str(tmp_path / "out"))
    assert list((tmp_path / "out").glob("compare_result_*.csv"))
