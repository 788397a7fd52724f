"""A builder of dump folders for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ait_llm.core import DType, TensorDesc
from ait_llm.formats import write_tensor

HEADER = {"kind": "header", "schema": 1, "producer": "atb_probe", "device": "0", "pid": 4242}
SEAL = {"kind": "seal", "end": "exit", "operations": 1}


@dataclass
class DumpBuilder:
    """Writes what a capture leaves, operation by operation."""

    root: Path

    def operation(
        self,
        path: str,
        *,
        process: str = "0_4242",
        step: int = 0,
        before: tuple[str, ...] = (),
        after: tuple[str, ...] = ("intensor0", "outtensor0"),
        params: Mapping[str, Any] | None = None,
        value: float = 1.0,
    ) -> Path:
        folder = self.root / "tensors" / process / str(step) / path
        for phase, names in (("before", before), ("after", after)):
            for name in names:
                (folder / phase).mkdir(parents=True, exist_ok=True)
                array = np.full((2, 3), value, dtype=np.float32)
                write_tensor(
                    folder / phase / f"{name}.bin", array, TensorDesc(DType.FLOAT32, (2, 3))
                )
        if params is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "op_param.json").write_text(json.dumps(params) + "\n")
        return folder

    def ledger(self, *lines: Mapping[str, Any] | str, process: str = "0_4242") -> Path:
        """Lines are objects, or text that is written as it is."""
        path = self.root / "ledger" / f"{process}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        texts = (line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
        path.write_text("".join(texts))
        return path

    def layer(self, name: str, graph: Mapping[str, Any], pid: str = "4242") -> Path:
        path = self.root / "layer" / pid / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(graph))
        return path


def entry(path: str, phase: str = "after", state: str = "saved", **more: Any) -> dict[str, Any]:
    """A ledger line for ``0_4242/0/…``."""
    parts = path.split("/")
    return {
        "kind": "op",
        "op": "_".join(part.partition("_")[0] for part in parts[2:]),
        "type": parts[-1].partition("_")[2],
        "path": path,
        "phase": phase,
        "step": int(parts[1]),
        "state": state,
        "tensors": 2,
        "bytes": 48,
    } | more
