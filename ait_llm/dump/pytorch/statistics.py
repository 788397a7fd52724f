"""Statistics of captured tensors, computed where the tensor is and read back later."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from ait_llm.dump.pytorch.writer import make_folder

COLUMNS = (
    "module",
    "type",
    "call",
    "tensor",
    "dtype",
    "shape",
    "max",
    "min",
    "mean",
    "l2norm",
    "nan",
    "inf",
)
_UNKNOWN = ("N/A",) * 6


def tensor_statistics(tensor: Tensor) -> Callable[[], list[str]]:
    """Start computing the statistics of ``tensor``; the result formats them as table cells.

    The reductions run at once, on the tensor's own device and in float32 (float64 for float64 and
    integers), so that later changes of the tensor do not show; only their few numbers are copied
    to the host, when the returned function is called. Minimum, maximum, mean and norm cover the
    finite elements. Cells that cannot be computed are ``N/A``.
    """
    tensor = tensor.detach()
    head = _head(tensor)
    if (
        tensor.device.type == "meta"
        or tensor.layout is not torch.strided
        or tensor.is_nested
        or tensor.is_quantized
        or type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__
    ):
        return lambda: [*head, *_UNKNOWN]
    if tensor.numel() == 0:
        return lambda: [*head, "N/A", "N/A", "N/A", "0.0", "0", "0"]
    numbers = _reduce(tensor)
    return lambda: head + _cells(numbers)


def tensor_description(tensor: Tensor) -> Callable[[], list[str]]:
    """Type and shape in the cells of :func:`tensor_statistics`, without looking at the values."""
    head = _head(tensor)
    return lambda: [*head, *_UNKNOWN]


def _head(tensor: Tensor) -> list[str]:
    return [str(tensor.dtype).removeprefix("torch."), ",".join(map(str, tensor.shape))]


def _reduce(tensor: Tensor) -> Tensor:
    """[6] float64 or float32: maximum, minimum, mean, L2 norm, NaN count, Inf count."""
    if tensor.is_complex():
        tensor = tensor.abs()
    exact = tensor.dtype in (torch.float64, torch.int64, torch.int32, torch.uint32, torch.uint64)
    wide = torch.float64 if exact else torch.float32
    x = tensor.to(wide)
    total = x.sum()
    if bool(torch.isfinite(total)) if tensor.device.type == "cpu" else False:
        low, high = torch.aminmax(x)
        zero = torch.zeros((), dtype=wide)
        return torch.stack((high, low, total / x.numel(), torch.linalg.vector_norm(x), zero, zero))
    nan = torch.isnan(x)
    inf = torch.isinf(x)
    finite = ~(nan | inf)
    count = finite.sum()
    y = torch.where(finite, x, 0)
    infinity = torch.tensor(float("inf"), dtype=wide, device=x.device)
    return torch.stack(
        (
            torch.where(finite, x, -infinity).max(),
            torch.where(finite, x, infinity).min(),
            y.sum() / count,
            torch.linalg.vector_norm(y),
            nan.sum().to(wide),
            inf.sum().to(wide),
        )
    )


def _cells(numbers: Tensor) -> list[str]:
    high, low, mean, norm, nan, inf = numbers.tolist()
    finite = low <= high
    shown = [repr(v) if finite else "N/A" for v in (high, low, mean)]
    return [*shown, repr(norm), str(int(nan)), str(int(inf))]


class StatisticsTable:
    """``{folder}/{step}/statistics.csv``, one row for each tensor, written as the run goes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[int, IO[str]] = {}

    def add(self, step: int, row: list[str]) -> None:
        """Append one row to the table of ``step``."""
        file = self._files.get(step)
        if file is None:
            self.close()
            make_folder(self._folder / str(step))
            path = self._folder / str(step) / "statistics.csv"
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            file = os.fdopen(os.open(path, flags, 0o640), "w", newline="", encoding="utf-8")
            if path.stat().st_size == 0:
                csv.writer(file).writerow(COLUMNS)
            self._files[step] = file
        csv.writer(file).writerow(row)
        file.flush()

    def close(self) -> None:
        """Close the open table."""
        for file in self._files.values():
            file.close()
        self._files.clear()
