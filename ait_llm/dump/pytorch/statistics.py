"""Statistics of captured tensors, computed where the tensor is and read back later.

On the host one native pass reduces a tensor (``libait_statistics.so``); on a device, and where the
library is not installed, torch does.
"""

from __future__ import annotations

import csv
import functools
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from ait_llm.core.kernels import ELEMENTS, NativeKernels, Numbers, native_kernels
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
# Smaller tensors are reduced in less time than it takes to look for them.
_WORTH_KNOWING = 1 << 16
_UNKNOWN = ("N/A",) * 6
_EMPTY = ("N/A", "N/A", "N/A", "N/A", "0", "0")
_ELEMENTS = {getattr(torch, name): code for name, code in ELEMENTS.items() if hasattr(torch, name)}
# Types that float32 cannot hold, on devices where float64 is slow or absent for the others.
_WIDE = (
    torch.float64,
    torch.int64,
    torch.int32,
    *(getattr(torch, name) for name in ("uint32", "uint64") if hasattr(torch, name)),
)


@dataclass(frozen=True, slots=True)
class _Known:
    storage: StorageWeakRef
    version: int
    mark: int
    numbers: Numbers


class KnownStatistics:
    """Results of one step, so that memory which modules and operators pass on is read once.

    A result counts for a tensor over the same memory while the storage lives, autograd's version
    counter stands still and a sample of the bytes is unchanged. The counter sees every in-place
    operator of torch; the sample is for changes behind its back (``.data``, NumPy).
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int, torch.dtype], _Known] = {}

    def forget(self) -> None:
        """Start afresh: at a new step, and after an operator whose change is not yet counted."""
        self._known.clear()

    def reduce(
        self,
        kernels: NativeKernels,
        tensor: Tensor,
        address: int,
        reduce: Callable[[], Numbers],
    ) -> Numbers:
        """The earlier result, else that of ``reduce``.

        Args:
            kernels: the native library.
            tensor: host tensor whose elements are the memory at ``address`` without gaps.
            address: of that memory.
            reduce: computes the result.
        """
        size = tensor.numel() * tensor.element_size()
        if tensor.is_inference() or size < _WORTH_KNOWING:
            return reduce()
        storage = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]  # torch
        key = (storage.cdata, address, size, tensor.dtype)
        mark = kernels.sample(address, size)
        known = self._known.get(key)
        if (
            known is not None
            and not known.storage.expired()  # type: ignore[no-untyped-call]  # torch
            and (known.version, known.mark) == (tensor._version, mark)
        ):
            return known.numbers
        numbers = reduce()
        self._known[key] = _Known(storage, tensor._version, mark, numbers)
        return numbers


def tensor_statistics(
    tensor: Tensor, known: KnownStatistics | None = None
) -> Callable[[], list[str]]:
    """Start computing the statistics of ``tensor``; the result formats them as table cells.

    The reductions run at once, on the tensor's own device, so that later changes of the tensor do
    not show; only their few numbers are copied to the host, when the returned function is called.
    Minimum, maximum, mean and L2 norm cover the finite elements; those of complex numbers are of
    their magnitudes. On the host sums are in float64; on a device in float32, for float64 and wide
    integers in float64. Cells that cannot be computed are ``N/A``.

    Args:
        tensor: any tensor; it is not changed.
        known: results of the same step.

    Returns:
        A function that gives type, shape, maximum, minimum, mean, norm, NaN count and Inf count.
    """
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
        return lambda: [*head, *_EMPTY]
    kernels = native_kernels() if tensor.device.type == "cpu" else None
    if kernels is not None and (numbers := _reduce_natively(kernels, tensor, known)) is not None:
        return lambda: [*head, *_cells(numbers)]
    if tensor.dtype.is_complex:
        with torch.no_grad():
            tensor = tensor.abs()
    if byte_values(tensor.dtype) is None and tensor.dtype not in _ELEMENTS:
        return lambda: [*head, *_UNKNOWN]
    with torch.no_grad():
        reduced = _reduce(tensor)
    return lambda: [*head, *_cells(reduced.tolist())]


def tensor_description(tensor: Tensor) -> Callable[[], list[str]]:
    """Type and shape in the cells of :func:`tensor_statistics`, without looking at the values."""
    head = _head(tensor)
    return lambda: [*head, *_UNKNOWN]


def _head(tensor: Tensor) -> list[str]:
    return [str(tensor.dtype).removeprefix("torch."), ",".join(map(str, tensor.shape))]


@functools.cache
def byte_values(dtype: torch.dtype) -> npt.NDArray[np.float64] | None:
    """[256] The number that each byte stands for in an element type of one byte.

    None for wider types and for those whose bytes hold no single number.
    """
    if dtype == torch.bool:
        truth = np.ones(256)
        truth[0] = 0.0
        return truth
    if dtype.itemsize != 1:
        return None
    codes = torch.arange(256, dtype=torch.uint8)
    try:
        wide = codes.view(dtype).to(torch.float32).to(torch.float64)
    except (RuntimeError, NotImplementedError):  # packed and opaque types
        return None
    values: npt.NDArray[np.float64] = wide.numpy()
    return values


def _reduce_natively(
    kernels: NativeKernels, tensor: Tensor, known: KnownStatistics | None
) -> Numbers | None:
    """The six numbers of a host tensor; None for what the native library does not know."""
    if tensor.dtype.is_complex or tensor.is_neg() or not _fills_its_memory(tensor):
        with torch.no_grad():
            known = None
            tensor = tensor.abs() if tensor.dtype.is_complex else tensor.resolve_neg().contiguous()
    address = tensor.data_ptr()
    if not address:
        return None
    count = tensor.numel()
    code = _ELEMENTS.get(tensor.dtype)
    values = byte_values(tensor.dtype) if code is None else None
    if code is None and values is None:
        return None

    def reduce() -> Numbers:
        if values is not None:
            return kernels.byte_statistics(address, count, values)
        assert code is not None
        return kernels.statistics(code, address, count)

    return reduce() if known is None else known.reduce(kernels, tensor, address, reduce)


def _fills_its_memory(tensor: Tensor) -> bool:
    """True if the elements, in whatever order, are a gapless stretch of memory, each once."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _reduce(tensor: Tensor) -> Tensor:
    """[6] maximum, minimum, mean, L2 norm, NaN count, Inf count; low > high if none is finite.

    Nothing here waits for the device.
    """
    on_host = tensor.device.type == "cpu"
    wide = torch.float64 if on_host or tensor.dtype in _WIDE else torch.float32
    x = tensor.to(wide)
    nan = torch.isnan(x)
    inf = torch.isinf(x)
    finite = ~(nan | inf)
    infinity = torch.full((), float("inf"), dtype=wide, device=x.device)
    high = torch.where(finite, x, -infinity).max()
    low = torch.where(finite, x, infinity).min()
    # With the largest magnitude taken out, neither sum nor squares overflow or vanish.
    largest = torch.maximum(high.abs(), low.abs())
    scale = torch.where((largest > 0) & torch.isfinite(largest), largest, 1.0)
    y = torch.where(finite, x, 0) / scale
    count = finite.sum().to(wide)
    mean = y.sum() / count * scale
    norm = torch.linalg.vector_norm(y) * scale
    return torch.stack((high, low, mean, norm, nan.sum().to(wide), inf.sum().to(wide)))


def _cells(numbers: Iterable[float]) -> list[str]:
    high, low, mean, norm, nan, inf = numbers
    some = low <= high  # false for NaN
    shown = [repr(value) if some else "N/A" for value in (high, low, mean, norm)]
    return [*shown, str(int(nan)), str(int(inf))]


class StatisticsTable:
    """``{folder}/{step}/statistics.csv``, one row for each tensor, written as the run goes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[int, IO[str]] = {}

    def add(self, step: int, row: list[str]) -> None:
        """Append one row to the table of ``step``; it is in the file after :meth:`flush`.

        Raises:
            OSError: the table cannot be created or written.
        """
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

    def flush(self) -> None:
        """Hand the rows to the operating system, where they survive this process.

        Raises:
            OSError: they cannot be written.
        """
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        """Close the open table."""
        for file in self._files.values():
            file.close()
        self._files.clear()
