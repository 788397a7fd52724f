"""A failure that can be sent away: one Python script and its tensors, without this package."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ait_llm.formats import from_torch
from ait_llm.judge.outputs import Judged
from ait_llm.opcheck.element_errors import LEVELS
from ait_llm.opcheck.selection import Target
from ait_llm.report.files import make_folder, replacing

if TYPE_CHECKING:
    from torch import Tensor

_TEMPLATE = Path(__file__).with_name("repro_script.py")
_NAMES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "uint16": "U16",
    "int32": "I32",
    "uint32": "U32",
    "int64": "I64",
    "uint64": "U64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}


class Repros:
    """Writes a script and a safetensors file for each failure into a folder.

    Args:
        folder: created with the first failure.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scripts: list[Path] = []
        self._lock = threading.Lock()

    def __call__(self, target: Target, inputs: Sequence[Tensor | None], judged: Judged) -> None:
        """Write one failure; nothing where golden could not be compared.

        Raises:
            UsageError: the folder cannot be written.
        """
        if judged.output is None:
            return
        item, output = judged.checked, judged.output
        stem = re.sub(
            r"[^\w.-]", "_", f"{item.op}_{item.output}_step{item.step}_{item.device}_{item.pid}"
        )
        level = next((v for k, v in LEVELS.items() if k.torch_name == item.dtype), None)
        facts = {
            "operator": item.title,
            "step": item.step,
            "params": dict(judged.params or target.params),
            "standard": f"{item.standard} {item.limit}".strip(),
            "reason": item.reason,
            "error": level.error if level else 0.0,
            "absolute": bool(level and level.absolute),
            "first_bad": None if item.first_bad is None else list(item.first_bad),
        }
        tensors = {f"intensor{i}": t for i, t in enumerate(inputs) if t is not None}
        tensors |= {"golden": output.golden, "dumped": output.mine}
        if output.defined is not None:
            tensors["defined"] = output.defined
        make_folder(self.folder)
        script = self.folder / f"{stem}.py"
        write_safetensors(self.folder / f"{stem}.safetensors", tensors, facts)
        with replacing(script) as file:
            file.write(_TEMPLATE.read_text(encoding="utf-8"))
        with self._lock:
            self.scripts.append(script)


def write_safetensors(path: Path, tensors: Mapping[str, Tensor], facts: object) -> None:
    """Write tensors with facts as JSON text in the metadata.

    Raises:
        UsageError: the file cannot be written.
    """
    with replacing(path, binary=True) as file:
        write_tensors(file, tensors, facts)


def write_tensors(file: IO[bytes], tensors: Mapping[str, Tensor], facts: object) -> None:
    """Write the content of a safetensors file; the same input gives the same bytes."""
    header: dict[str, object] = {"__metadata__": {"facts": json.dumps(facts)}}
    blocks, end = [], 0
    for name, tensor in tensors.items():
        array, dtype = from_torch(tensor)
        kind = _NAMES.get(dtype.torch_name or "")
        if kind is None:
            continue  # complex inputs, which no operator takes
        start, end = end, end + array.nbytes
        shape = list(tensor.shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
        blocks.append(array)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for array in blocks:
        file.write(array.tobytes())
