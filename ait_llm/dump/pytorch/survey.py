"""What a capture would save, without saving it: names, shapes and sizes for ``ait llm plan``.

A capture with :attr:`CaptureOptions.survey` copies no value. Each tensor that it comes by is one
line of ``survey.jsonl``, in the order in which a capture would save them, with what tells whether
a capture would find it unchanged and link it to the file of an earlier call.
"""

from __future__ import annotations

import json
import threading
import weakref
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ait_llm.dump.folders import make_folder
from ait_llm.formats.pth_writer import MAX_PLAIN_BYTES, pth_template

SURVEY_FILE = "survey.jsonl"
# What torch.save adds to files that are too large for our own writer.
_LARGE_FILE_BYTES = 1500
_FLUSH_LINES = 2000
_ENCODER = json.JSONEncoder(separators=(",", ":"))


class SizeSurvey:
    """Writes one process's ``survey.jsonl``; safe to use from several threads.

    Lines are JSON lists. ``["t", order, name, dtype, shape, bytes, file bytes, slot, value]`` is a
    tensor of the call with that order: as long as its slot holds the same value it is unchanged
    since a capture saved it; slot and value are null where a capture does not look. ``["f", 0]``
    means that a capture forgets at this place what it saved, at a new step, ``["f", 1]`` that it
    does if it records operators. ``["s", root, steps]`` is the number of steps of a model.

    Args:
        folder: where the file goes.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / SURVEY_FILE
        self._lines: list[str] = []
        self._slots: dict[int, int] = {}
        self._known: dict[int, tuple[weakref.ref[Tensor], int, int, int]] = {}
        self._values = 0
        self._lock = threading.Lock()
        self._started = False

    def tensor(self, order: int, name: str, tensor: Tensor, *, original: bool) -> None:
        """Note a dense tensor.

        Args:
            order: of the call.
            name: file stem.
            tensor: what would be saved.
            original: it is the program's own object, so that it can be met again.
        """
        size = tensor.numel() * tensor.element_size()
        slot = value = None
        with self._lock:
            if original and _is_remembered(tensor):
                slot = self._slots.setdefault(id(tensor), len(self._slots))
                value = self._value(tensor)
            self._add(
                [
                    "t",
                    order,
                    name,
                    str(tensor.dtype).removeprefix("torch."),
                    list(tensor.shape),
                    size,
                    _file_bytes(tensor, size),
                    slot,
                    value,
                ]
            )

    def forget(self, *, by_operator: bool) -> None:
        """Note that a capture looks at nothing that it saved before."""
        with self._lock:
            self._add(["f", int(by_operator)])

    def steps(self, root: str, count: int) -> None:
        """Note how many steps a model had."""
        with self._lock:
            self._add(["s", root, count])

    def close(self) -> None:
        """Write what was noted."""
        with self._lock:
            self._flush()

    def _value(self, tensor: Tensor) -> int:
        """A number for the present value of a tensor object, another one after each change."""
        version = 0 if tensor.is_inference() else tensor._version
        address = tensor.data_ptr() if tensor.device.type != "meta" else 0
        known = self._known.get(id(tensor))
        if known is None or known[0]() is not tensor or known[1:3] != (version, address):
            self._values += 1
            known = (weakref.ref(tensor), version, address, self._values)
            self._known[id(tensor)] = known
        return known[3]

    def _add(self, line: list[Any]) -> None:
        self._lines.append(_ENCODER.encode(line))
        if len(self._lines) >= _FLUSH_LINES:
            self._flush()

    def _flush(self) -> None:
        lines, self._lines = self._lines, []
        make_folder(self._path.parent)
        with self._path.open("a" if self._started else "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        self._started = True


def storage_identity(tensor: Tensor) -> int:
    """What tells the storages of living tensors apart, those on the meta device too; 0 if none."""
    if tensor.layout is not torch.strided:
        return 0
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):  # wrapper subclasses have none of their own
        return 0


def _is_remembered(tensor: Tensor) -> bool:
    """True if a capture looks whether it saved this object before; see ``SavedOnce.remember``."""
    if tensor.device.type in ("cpu", "meta"):
        return tensor.is_contiguous()
    return not tensor.is_inference()


def _file_bytes(tensor: Tensor, size: int) -> int:
    """Bytes of the ``.pth`` file of a tensor of ``size`` bytes."""
    if size > MAX_PLAIN_BYTES:
        return size + _LARGE_FILE_BYTES
    template = pth_template(tensor.dtype, tuple(tensor.shape))
    return len(template.head) + size + len(template.tail)
