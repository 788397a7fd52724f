"""Small API-level dumps made by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

Record = Mapping[str, Any]


def tensor(
    values: Any = (1.0, 2.0), dtype: str = "torch.float32", *, name: str = "", **more: Any
) -> dict[str, Any]:
    """A tensor as ``dump.json`` describes it."""
    array = np.asarray(values, np.float64)
    return {
        "type": "torch.Tensor",
        "dtype": dtype,
        "shape": list(array.shape),
        "Max": float(array.max()),
        "Min": float(array.min()),
        "Mean": float(array.mean()),
        "Norm": float(np.linalg.norm(array)),
        "requires_grad": False,
        **more,
        **({"data_name": name} if name else {}),
    }


def scalar(value: Any) -> dict[str, Any]:
    """A scalar as ``dump.json`` describes it."""
    return {"type": type(value).__name__, "value": value}


def call(inputs: Any, outputs: Any, **kwargs: Any) -> dict[str, Any]:
    """A record of one forward call."""
    return {"input_args": inputs, "input_kwargs": kwargs, "output": outputs}


def write_dump(
    root: Path,
    records: Mapping[str, Record],
    *,
    rank: int = 0,
    step: int = 0,
    task: str = "statistics",
    tensors: Mapping[str, Any] | None = None,
    stacks: Mapping[str, Any] | None = None,
    name: str = "dump.json",
) -> Path:
    """Write a dump of one rank and step.

    Args:
        root: folder of the run.
        records: content of ``data``.
        tensors: values of tensor files by name.
        stacks: content of ``stack.json``.

    Returns:
        The JSON file.
    """
    folder = root / f"step{step}" / f"rank{rank}"
    data = folder / "dump_tensor_data"
    data.mkdir(parents=True, exist_ok=True)
    for file, values in (tensors or {}).items():
        torch.save(torch.as_tensor(values), data / file)
    content = {
        "task": task,
        "level": "L1",
        "framework": "pytorch",
        "dump_data_dir": str(data),
        "data": records,
    }
    (folder / name).write_text(json.dumps(content), encoding="utf-8")
    if stacks is not None:
        (folder / "stack.json").write_text(json.dumps(stacks), encoding="utf-8")
    return folder / name
