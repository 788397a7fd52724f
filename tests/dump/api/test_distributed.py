"""Several processes: DDP, FSDP of both kinds, and collectives."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from api_captures import Debug, Read

from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.pipeline import opcheck
from ait_llm.opcheck.selection import Wanted

PROGRAM = Path(__file__).parents[2] / "support" / "api_distributed.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The captures of both ranks, one folder for each kind."""
    folder = tmp_path_factory.mktemp("distributed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    environment["PYTHONWARNINGS"] = "ignore"
    processes = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder), str(rank), str(port)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    for process in processes:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
    return folder


def data_of(folder: Path, rank: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (folder / "step0" / f"rank{rank}" / "dump.json").read_text()
    )["data"]
    return found


@pytest.mark.parametrize(
    ("kind", "path"),
    [("ddp", "Module.module."), ("fsdp1", "Module._fsdp_wrapped_module."), ("fsdp2", "Module.")],
)
def test_both_ranks_record_modules_gradients_and_collectives(
    folder: Path, kind: str, path: str
) -> None:
    assert {each.name for each in (folder / kind / "step0").iterdir()} == {"rank0", "rank1"}
    for rank in range(2):
        data = data_of(folder / kind, rank)
        for record in (
            f"{path}0.Linear.forward.0",
            f"{path}2.Linear.forward.0",
            f"{path}2.Linear.backward.0",
            f"{path}2.Linear.parameters_grad.0",
            "Functional.linear.1.forward",
        ):
            assert record in data, (record, list(data))
        files = folder / kind / "step0" / f"rank{rank}" / "dump_tensor_data"
        last = [name for name in data if name.startswith("Distributed.all_reduce")][-2:]
        summed, maximum = (data[name] for name in last)
        assert summed["input_args"][0]["Max"] == float(rank)
        assert summed["output"][0]["Max"] == 1.0
        saved = torch.load(files / maximum["output"][0]["data_name"], weights_only=True)
        assert torch.equal(saved, torch.ones(2))
        assert maximum["input_kwargs"]["op"] == {
            "type": "torch.distributed.ReduceOp",
            "value": "RedOpType.MAX",
        }
        if rank:
            received = data["Distributed.recv.0.forward"]
            assert received["input_args"][0] is None
            assert received["output"][0]["Max"] == 1.0


def test_what_a_batch_sends_is_in_files_of_the_names_that_the_peer_gives(folder: Path) -> None:
    record = data_of(folder / "ddp", 0)["Distributed.batch_isend_irecv.0.forward"]
    sent = record["input_args"][0][0]
    assert (sent["op"], sent["peer"]) == ("isend", 1)
    name = "Distributed.batch_isend_irecv.0.forward.input.0.0.pt"
    assert sent["tensor"]["data_name"] == name
    assert (folder / "ddp" / "step0" / "rank0" / "dump_tensor_data" / name).exists()


def test_collectives_of_a_capture_of_all_ranks_are_judged(folder: Path) -> None:
    found = opcheck(folder / "ddp", wanted=Wanted(names=("all_reduce", "all_gather")))
    assert {item.op_type for item in found.items} == {"all_reduce", "all_gather"}
    assert {item.verdict for item in found.items} == {Verdict.PASS}


def test_folder_gets_the_name_of_the_rank_when_it_is_known(
    debug: Debug, captured: Read, dump_path: Path
) -> None:
    debugger = debug("tensor")
    debugger.start()
    torch.exp(torch.ones(2))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        debugger.stop()
        debugger.step()
    finally:
        dist.destroy_process_group()

    document = captured().json("dump.json")
    assert captured().folder == dump_path / "step0" / "rank0"
    assert document["dump_data_dir"] == str(captured().folder / "dump_tensor_data")
    assert list(document["data"]) == ["Torch.exp.0.forward"]
