"""The files of a capture: a ``.pkl`` of text lines and a folder of ``.npy`` files."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ait_llm.dump.api.numbers import four_numbers
from ait_llm.dump.held_file import HeldFile
from ait_llm.errors import UsageError
from ait_llm.formats.elements import Array

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_NPY = ".npy"
# NumPy has no such types; float32 holds all their values.
_WIDENED = frozenset(
    dtype
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
    if (dtype := getattr(torch, name, None)) is not None
)


class DumpFiles:
    """One ``.pkl`` with its folder. Every line is in the file when the call returns.

    Args:
        path: of the ``.pkl``; what an earlier run left under its name is replaced.
        arrays: whether there are ``.npy`` files.

    Raises:
        UsageError: it cannot be written, or another process writes it.
    """

    def __init__(self, path: Path, *, arrays: bool = True) -> None:
        self.path = path
        self.folder = path.with_suffix("")
        self._process = os.getpid()
        try:
            path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._file = HeldFile(path, _FLAGS | os.O_APPEND)
        except OSError as error:
            raise UsageError(
                f"{path}: the capture cannot be written here ({error.strerror}); choose another "
                "path in set_dump_path"
            ) from error
        try:
            fcntl.flock(self._file.descriptor(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise UsageError(
                f"{path}: another process writes this file; call set_dump_path and register_hook "
                "in every process, and give register_hook the rank of each"
            ) from None
        except OSError:
            pass  # a file system without locks
        os.ftruncate(self._file.descriptor(), 0)
        self._has_arrays = False
        _remove_arrays(self.folder)
        if arrays:
            self.make_folder()

    def make_folder(self) -> None:
        """Make the folder of arrays, where there is none yet."""
        if self._has_arrays:
            return
        try:
            self.folder.mkdir(mode=0o750, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{self.folder}: the capture cannot be written here ({error.strerror})"
            ) from error
        self._has_arrays = True

    def line(self, fields: Sequence[Any]) -> int:
        """Append a line, all of it or nothing; where the file ends after it.

        Raises:
            OSError: it cannot be written.
        """
        self._file.append((json.dumps(fields) + "\n").encode())
        return self.end

    @property
    def end(self) -> int:
        """Where the file ends."""
        return os.fstat(self._file.descriptor()).st_size

    def take_back(self, start: int, end: int, items: Sequence[str]) -> None:
        """Remove the lines between two places, if nothing was written behind them, and arrays."""
        if self.end == end:
            os.ftruncate(self._file.descriptor(), start)
        for item in items:
            with contextlib.suppress(OSError):
                (self.folder / f"{item}{_NPY}").unlink()

    def array(self, item: str, values: Array) -> None:
        """Write ``{item}.npy``.

        Raises:
            OSError: it cannot be written.
        """
        self.make_folder()
        path = self.folder / f"{item}{_NPY}"
        with os.fdopen(os.open(path, _FLAGS | os.O_TRUNC, 0o640), "wb") as file:
            np.save(file, values, allow_pickle=False)

    def close(self) -> None:
        """Let go of the file."""
        if os.getpid() == self._process:
            self._file.close()


def _remove_arrays(folder: Path) -> None:
    """Remove the arrays of an earlier run, and nothing else."""
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.suffix == _NPY and not path.is_dir():
            with contextlib.suppress(OSError):
                path.unlink()


def is_filtered(value: Any) -> bool:
    """True for what is written only with ``filter_switch="OFF"``."""
    if isinstance(value, Tensor):
        return not (value.is_floating_point() and value.dim() and value.numel())
    return True


def tensor_line(item: str, tensor: Tensor, mark: int, *, summary: bool = True) -> list[Any]:
    """The line of a tensor: name, mark, slots, type, shape, and maximum, minimum and mean."""
    line: list[Any] = [item, mark, [], str(tensor.dtype), list(tensor.shape)]
    if summary:
        line.append(summary_of(tensor))
    return line


def summary_of(tensor: Tensor) -> list[Any]:
    """Maximum, minimum and mean; empty lists where there are none, as ptdbg writes them."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return [[], [], []]
    found = four_numbers(tensor.detach())
    high, low, mean, _ = found if isinstance(found, tuple) else found()
    return [[] if value is None else value for value in (high, low, mean)]


def scalar_line(item: str, value: bool | int | float, mark: int) -> list[Any]:
    """The line of a scalar: its type is that of Python, its shape the text ``[]``."""
    return [item, mark, [], str(type(value)), "[]", [value, value, value]]


def values_of(tensor: Tensor) -> Array:
    """The values on the host in a type that NumPy has."""
    found = tensor.detach()
    if found.layout is not torch.strided or found.is_quantized:
        found = found.dequantize() if found.is_quantized else found.to_dense()
    found = found.cpu()
    if found.dtype in _WIDENED:
        found = found.float()
    return np.asarray(found.resolve_conj().resolve_neg().numpy())
