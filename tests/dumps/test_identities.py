"""Which value each tensor is, as the readers of FX and API dumps give it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from ait_llm.dumps import open_dump
from ait_llm.dumps.tensors import Identity

SEAL = {"kind": "seal", "end": "exit", "operations": 1, "tensors": 2, "files": 2, "bytes": 0}


def write_ledger(path: Path, header: dict[str, object], line: dict[str, object]) -> None:
    path.parent.mkdir(parents=True)
    head = {"kind": "header", "schema": 1, "pid": 7, **header}
    lines = [head, {"kind": "op", "step": 0, "state": "saved", **line}, SEAL]
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))


def test_values_of_an_fx_dump(tmp_path: Path) -> None:
    folder = tmp_path / "ait_dump/fx_tensors/worldsize1_global_rank0/graph_1/0"
    folder.mkdir(parents=True)
    stem = "split-aten.split.Tensor"
    for place in ("INPUT.0", "OUTPUT.0", "OUTPUT.1"):
        np.save(folder / f"{stem}.{place}.20260101000000000000.npy", np.ones((2, 2), np.float32))
    write_ledger(
        tmp_path / "ait_dump/ledger/fx_7.jsonl",
        {"producer": "fx", "options": {"rank": 0}},
        {
            "op": "split",
            "type": "aten.split.Tensor",
            "path": f"worldsize1_global_rank0/graph_1/0/{stem}",
            "tensors": 3,
            "identity": {"INPUT.0": [3, 1, 0, [4, 1]], "OUTPUT.1": [3, 1, 2, [4, 1]]},
        },
    )
    dump = open_dump(tmp_path)
    for _ in range(2):
        [operation] = dump.operations()
        assert {tensor.stem: tensor.identity for tensor in operation.tensors} == {
            "INPUT.0": Identity(3, 1, 0, (4, 1)),
            "OUTPUT.0": None,
            "OUTPUT.1": Identity(3, 1, 2, (4, 1)),
        }
        dump.forget()


def test_values_of_an_api_dump(tmp_path: Path) -> None:
    folder = tmp_path / "step0" / "rank0"
    folder.mkdir(parents=True)
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 2], "Max": 1.0}
    record = {"input_args": [tensor], "input_kwargs": {"other": tensor}, "output": [tensor]}
    data = {"Torch.add.0.forward": record}
    (folder / "dump.json").write_text(
        json.dumps({"task": "statistics", "level": "L1", "framework": "pytorch", "data": data})
    )
    write_ledger(
        tmp_path / "ledger/rank0_7.jsonl",
        {"producer": "api", "device": "rank0"},
        {
            "op": "Torch.add.0.forward",
            "type": "Torch.add",
            "path": "step0/rank0",
            "state": "described",
            "identity": {"input.0": [3, 0, 0, [2, 1]], "input.other": [4, 2, 0, [2, 1]], "x": 3},
        },
    )
    [operation] = open_dump(tmp_path).operations()
    assert {tensor.ir_name: tensor.identity for tensor in operation.tensors} == {
        "input.0": Identity(3, 0, 0, (2, 1)),
        "input.other": Identity(4, 2, 0, (2, 1)),
        "output.0": None,
    }
