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

PROGRAM = Path(__file__).parents[2] / "support" / "api_distributed.py"


def run(kind: str, folder: Path) -> list[dict[str, Any]]:
    """The records of both ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    environment["PYTHONWARNINGS"] = "ignore"
    processes = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), kind, str(folder), str(rank), str(port)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    for process in processes:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output
    assert {each.name for each in (folder / "step0").iterdir()} == {"rank0", "rank1"}
    return [
        json.loads((folder / "step0" / f"rank{rank}" / "dump.json").read_text())["data"]
        for rank in range(2)
    ]


@pytest.mark.parametrize(
    ("kind", "path"),
    [("ddp", "Module.module."), ("fsdp1", "Module._fsdp_wrapped_module."), ("fsdp2", "Module.")],
)
def test_both_ranks_record_modules_gradients_and_collectives(
    tmp_path: Path, kind: str, path: str
) -> None:
    for rank, data in enumerate(run(kind, tmp_path / "dump")):
        for record in (
            f"{path}0.Linear.forward.0",
            f"{path}2.Linear.forward.0",
            f"{path}2.Linear.backward.0",
            f"{path}2.Linear.parameters_grad.0",
            "Functional.linear.1.forward",
        ):
            assert record in data, (record, list(data))
        folder = tmp_path / "dump" / "step0" / f"rank{rank}" / "dump_tensor_data"
        last = [name for name in data if name.startswith("Distributed.all_reduce")][-2:]
        summed, maximum = (data[name] for name in last)
        assert summed["input_args"][0]["Max"] == float(rank)
        assert summed["output"][0]["Max"] == 1.0
        saved = torch.load(folder / maximum["output"][0]["data_name"], weights_only=True)
        assert torch.equal(saved, torch.ones(2))
        assert maximum["input_kwargs"]["op"] == {
            "type": "torch.distributed.ReduceOp",
            "value": "RedOpType.MAX",
        }
        if rank:
            received = data["Distributed.recv.0.forward"]
            assert received["input_args"][0] is None
            assert received["output"][0]["Max"] == 1.0
