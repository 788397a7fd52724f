"""A dump that ptdbg made is compared with one of today."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ait_llm import compare
from ait_llm.core.comparison import Verdict

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
CALLS = {
    "Torch_exp_0_forward": {"input.0": X, "output": np.exp(X)},
    "Torch_max_1_backward": {"input.0": X[0], "output.0": X},
}


def old_dump(folder: Path) -> Path:
    (folder / "rank0" / "dump").mkdir(parents=True)
    lines = []
    for call, items in CALLS.items():
        for part, values in items.items():
            name = f"{call}_{part}"
            np.save(folder / "rank0" / "dump" / f"{name}.npy", values)
            lines.append([name, 1, [], "torch.float32", list(values.shape), [0, 0, 0]])
    (folder / "rank0" / "dump.pkl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    return folder


def new_dump(folder: Path, change: float) -> Path:
    data = folder / "step0" / "rank0" / "dump_tensor_data"
    data.mkdir(parents=True)
    records: dict[str, Any] = {}
    for call, items in CALLS.items():
        record = ".".join(call.split("_"))
        sections: dict[str, list[Any]] = {}
        for part, values in items.items():
            item = f"{record}.{part if '.' in part else f'{part}.0'}"
            torch.save(torch.tensor(values * (1 + change)), data / f"{item}.pt")
            entry = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": list(values.shape)}
            section = "output" if part.startswith("output") else "input"
            section = "input_args" if section == "input" and "forward" in call else section
            sections.setdefault(section, []).append({**entry, "data_name": f"{item}.pt"})
        records[record] = sections
    head = {"task": "tensor", "level": "L1", "dump_data_dir": "/elsewhere", "data": records}
    (data.parent / "dump.json").write_text(json.dumps(head))
    return folder


def test_calls_of_both_are_matched_by_name(tmp_path: Path) -> None:
    golden = old_dump(tmp_path / "ptdbg_dump_v2.0")
    for change, expected in ((0.0, Verdict.PASS), (0.1, Verdict.FAIL)):
        mine = new_dump(tmp_path / f"new{change}", change)
        comparisons = list(compare(golden, mine).comparisons)
        assert [each.verdict for each in comparisons] == [expected] * 4
