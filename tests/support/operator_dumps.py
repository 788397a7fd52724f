"""ATB dumps of single operators on disk, with the values that a test gives."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.dumps.io_table import COLUMNS
from ait_llm.formats import from_torch, write_tensor

LINEAR = {"hasBias": False, "transposeB": True}


@dataclass
class OperatorDump:
    """Writes operators as a capture leaves them."""

    root: Path
    process: str = "0_4242"
    step: int = 0

    @property
    def tensors(self) -> Path:
        return self.root / "tensors" / self.process / str(self.step)

    def add(
        self,
        path: str,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor | None],
        params: Mapping[str, Any] | None = None,
        *,
        inputs_before: Sequence[Tensor | None] | None = None,
        phase: str = "after",
    ) -> Path:
        """One operator, ``0_Layer/1_LinearOperation``; None for a tensor without a file."""
        folder = self.tensors / path
        for name, tensors in (("intensor", inputs), ("outtensor", outputs)):
            for index, tensor in enumerate(tensors):
                write(folder / phase / f"{name}{index}.bin", tensor)
        for index, tensor in enumerate(inputs_before or ()):
            write(folder / "before" / f"intensor{index}.bin", tensor)
        if params is not None:
            (folder / "op_param.json").write_text(json.dumps(params))
        return folder

    def ledger(self, *lines: Mapping[str, Any], sealed: bool = True) -> None:
        device, pid = self.process.split("_")
        header = {"kind": "header", "schema": 1, "producer": "atb_probe"}
        rows = [{**header, "device": device, "pid": int(pid)}, *lines]
        if sealed:
            rows.append({"kind": "seal", "end": "exit", "operations": len(lines)})
        file = self.root / "ledger" / f"{self.process}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def layer(self, name: str, nodes: Sequence[Mapping[str, Any]]) -> None:
        file = self.root / "layer" / self.process.partition("_")[2] / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        graph = {"opName": name, "opType": name.rpartition("_")[0], "param": "", "nodes": nodes}
        file.write_text(json.dumps(graph))

    def table(self, *rows: Mapping[str, str]) -> Path:
        """An operation table; columns that a row lacks are blank."""
        pid = self.process.partition("_")[2]
        file = self.root / "operation_io_tensors" / pid / f"operation_tensors_{self.step}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = ["|".join(COLUMNS), *("|".join(row.get(c, " ") for c in COLUMNS) for row in rows)]
        file.write_text("\n".join(lines) + "\n")
        return file


def write(path: Path, tensor: Tensor | None) -> None:
    if tensor is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    array, dtype = from_torch(tensor)
    write_tensor(path, array, TensorDesc(dtype, tuple(tensor.shape)))


def table_row(
    name: str, params: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> dict[str, str]:
    """The cells of one operator that a check reads."""
    row = {"OpName": name, "OpParam": params}
    for side, tensors in (("In", inputs), ("Out", outputs)):
        labels = [from_torch(tensor)[1].label for tensor in tensors]
        row[f"{side}Num"] = str(len(tensors))
        row[f"{side}DType"] = ";".join(labels)
        row[f"{side}Format"] = ";".join("nd" for _ in tensors)
        row[f"{side}Shape"] = ";".join(",".join(map(str, t.shape)) for t in tensors)
    return row
