"""Statistics of captured tensors, computed where the tensor is and read back later.

On the host one native pass reduces a tensor (``libait_statistics.so``); on a device, and where the
library is not installed, torch does.
"""

from __future__ import annotations

import functools
import os
import re
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ait_llm.core.kernels import (
    ELEMENTS,
    NativeKernels,
    Numbers,
    loaded_openmp,
    native_kernels,
)
from ait_llm.dump.pytorch.layouts import is_lazy

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
_UNKNOWN = "N/A,N/A,N/A,N/A,N/A,N/A"
_EMPTY = "N/A,N/A,N/A,N/A,0,0"
_ELEMENTS = {getattr(torch, name): code for name, code in ELEMENTS.items() if hasattr(torch, name)}
# Types that float32 cannot hold, on devices where float64 is slow or absent for the others.
_WIDE = (
    torch.float64,
    torch.int64,
    torch.int32,
    *(getattr(torch, name) for name in ("uint32", "uint64") if hasattr(torch, name)),
)


class _Result:
    """Numbers of a reduction, made into text when the table is written, once for all its rows."""

    __slots__ = ("_numbers", "_text")

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._text = ""

    @property
    def numbers(self) -> Numbers:
        return self._numbers

    def text(self) -> str:
        if not self._text:
            self._text = _cells(self._numbers)
        return self._text


class Cells:
    """Cells of a row whose numbers are there already; called for their text."""

    __slots__ = ("_head", "_result")

    def __init__(self, head: str, result: _Result) -> None:
        self._head = head
        self._result = result

    def __call__(self) -> str:
        return self._head + self._result.text()

    @property
    def numbers(self) -> Numbers:
        """What was found in the tensor."""
        return self._result.numbers


class _Known(NamedTuple):
    """What was found in the memory of a tensor that is still alive, and what to know it by."""

    tensor: weakref.ref[Tensor]
    version: int
    address: int
    elements: int
    dtype: torch.dtype
    mark: int
    result: _Result

    def holds_for(self, tensor: Tensor) -> bool:
        """True if the tensor has the elements that were looked at, and nothing changed them."""
        return (
            tensor._version == self.version
            and tensor.data_ptr() == self.address
            and tensor.numel() == self.elements
            and tensor.dtype == self.dtype
        )


class KnownStatistics:
    """Results of one step, so that memory which modules and operators pass on is read once.

    A result counts for the same tensor object, or for another one with the same memory while an
    object with which it was seen lives, as long as autograd's version counter stands still and a
    sample of the bytes is unchanged. The counter sees every in-place operator of torch; the sample
    is for changes behind its back (``.data``, NumPy).

    Nothing of a tensor is kept. Weak references to storages would be surer signs of life, but each
    leaves a few bytes of a freed storage where the allocator had put it, and those keep it from
    using the memory around them again: the program would get, and zero, new pages all the time.
    """

    def __init__(self) -> None:
        self._objects: dict[int, _Known] = {}
        self._memory: dict[tuple[int, int, torch.dtype], list[_Known]] = {}

    def forget(self) -> None:
        """Start afresh: at a new step, and after an operator whose change is not yet counted."""
        self._objects.clear()
        self._memory.clear()

    def find(self, tensor: Tensor) -> Cells | None:
        """What :func:`tensor_statistics` found for this very object, if that still holds."""
        result = self._find(tensor)
        if result is None:
            return None
        return Cells(_head(tensor.dtype, tensor.shape), result)

    def numbers(self, tensor: Tensor) -> Numbers | None:
        """The numbers that were found for this very object, if they still hold."""
        result = self._find(tensor)
        return None if result is None else result.numbers

    def _find(self, tensor: Tensor) -> _Result | None:
        known = self._objects.get(id(tensor))
        if known is None or known.tensor() is not tensor or not known.holds_for(tensor):
            return None
        kernels = native_kernels()
        size = known.elements * known.dtype.itemsize
        if kernels is None or kernels.sample(known.address, size) != known.mark:
            return None
        return known.result

    def result(self, kernels: NativeKernels, tensor: Tensor, code: int | None) -> _Result | None:
        """The earlier result for the memory of a tensor, else that of reducing it now.

        Args:
            kernels: the native library.
            tensor: host tensor whose elements fill their memory without gaps.
            code: of its type for the library; None for a type of one byte.
        """
        address, count, dtype = tensor.data_ptr(), tensor.numel(), tensor.dtype
        size = count * dtype.itemsize
        if size < _WORTH_KNOWING or tensor.is_inference():
            return _reduced(kernels, tensor, code)
        version = tensor._version
        seen = self._memory.setdefault((address, size, dtype), [])
        seen[:] = [each for each in seen if _is_as_it_was(each)]
        same = next((each for each in seen if each.version == version), None)
        if same is not None and kernels.sample(address, size) == same.mark:
            mark, result = same.mark, same.result
        else:
            reduced = _reduced(kernels, tensor, code)
            if reduced is None:
                return None
            result = reduced
            # Now that the memory is in the cache; nothing changes it in between.
            mark = kernels.sample(address, size)
        known = _Known(weakref.ref(tensor), version, address, count, dtype, mark, result)
        seen.append(known)
        self._objects[id(tensor)] = known
        return result


def _is_as_it_was(known: _Known) -> bool:
    """True while the tensor lives, in the same memory and without a change that was counted."""
    tensor = known.tensor()
    if tensor is None:
        return False
    fix = getattr(tensor, "_fix_weakref", None)
    if fix is not None:  # the object may have been given up by Python, and kept by torch
        fix()
    return known.holds_for(tensor)


@functools.cache
def share_model_threads() -> None:
    """Let the native reductions use the threads of torch's operators.

    Not in a forked child, where those threads are gone.
    """
    kernels = native_kernels()
    runtime = loaded_openmp() if kernels is not None else None
    if kernels is not None and runtime is not None:
        kernels.share_threads(runtime)
        os.register_at_fork(after_in_child=lambda: kernels.share_threads(None))


def tensor_statistics(
    tensor: Tensor, known: KnownStatistics | None = None
) -> str | Callable[[], str]:
    """Start computing the statistics of ``tensor``; the result is text for a table of CSV.

    The reductions run at once, on the tensor's own device, so that later changes of the tensor do
    not show; from another device only their few numbers are copied to the host, when the returned
    function is called. Minimum, maximum, mean and L2 norm cover the finite elements; those of
    complex numbers are of their magnitudes. On the host sums are in float64; on a device in
    float32, for float64 and wide integers in float64. Cells that cannot be computed are ``N/A``.

    Args:
        tensor: any tensor; it is not changed.
        known: results of the same step.

    Returns:
        Type, shape, maximum, minimum, mean, norm, NaN count and Inf count, or a function that
        gives them.
    """
    if known is not None and (found := known.find(tensor)) is not None:
        return found
    dtype = tensor.dtype
    head = _head(dtype, tensor.shape)
    if (
        tensor.is_meta
        or tensor.layout is not torch.strided
        or tensor.is_nested
        or tensor.is_quantized
        or type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__
    ):
        return head + _UNKNOWN
    if not tensor.numel():
        return head + _EMPTY
    kernels = native_kernels() if tensor.is_cpu else None
    if kernels is not None and (result := _reduce_natively(kernels, tensor, known)) is not None:
        return Cells(head, result)
    if dtype.is_complex:
        with torch.no_grad():
            tensor = tensor.abs()
    if byte_values(tensor.dtype) is None and tensor.dtype not in _ELEMENTS:
        return head + _UNKNOWN
    with torch.no_grad():
        reduced = _reduce(tensor)
    return lambda: head + _cells(reduced.tolist())


@dataclass(frozen=True, slots=True)
class Reduced:
    """Stands for a tensor of which statistics alone are there, on its device.

    Attributes:
        dtype, shape: of the tensor.
        numbers: [6] maximum, minimum, mean, norm, NaN count, Inf count.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    numbers: Tensor

    def __call__(self) -> str:
        """The cells of :func:`tensor_statistics`; waits for the device."""
        return _head(self.dtype, self.shape) + _cells(self.numbers.tolist())


@dataclass(frozen=True, slots=True)
class NotKept:
    """Stands for a tensor of which nothing is there.

    Attributes:
        reason: why.
    """

    reason: str


def reduced(tensor: Tensor) -> Reduced | None:
    """Reduce a tensor without waiting for its device; None for what has no such statistics."""
    dtype = tensor.dtype
    if not tensor.numel() or (byte_values(dtype) is None and dtype not in _ELEMENTS):
        return None
    with torch.no_grad():
        numbers = _reduce(tensor.abs() if dtype.is_complex else tensor)
    return Reduced(dtype, tuple(tensor.shape), numbers)


def ordinary_numbers(tensor: Tensor) -> Numbers | None:
    """Numbers of the most ordinary tensors of inference mode, of which there are many.

    They count no changes, so that nothing can be known of them from before.

    Args:
        tensor: one that :func:`ait_llm.dump.pytorch.layouts.is_ordinary` is true for.

    Returns:
        None for other types of elements, without any, and where the native library is not there.
    """
    code, kernels, count = _ELEMENTS.get(tensor.dtype), native_kernels(), tensor.numel()
    if code is None or kernels is None or not count:
        return None
    if not tensor.is_contiguous() and not fills_its_memory(tensor):
        tensor = tensor.contiguous()
    address = tensor.data_ptr()
    return kernels.statistics(code, address, count) if address else None


class OrdinaryCells:
    """Their cells in a table, as of :func:`tensor_statistics`; made once for all rows."""

    __slots__ = ("_dtype", "_numbers", "_shape", "_text")

    def __init__(self, dtype: torch.dtype, shape: tuple[int, ...], numbers: Numbers) -> None:
        self._dtype = dtype
        self._shape = shape
        self._numbers = numbers
        self._text = ""

    def __call__(self) -> str:
        if not self._text:
            self._text = _head(self._dtype, self._shape) + _cells(self._numbers)
        return self._text


def element_code(dtype: torch.dtype) -> int | None:
    """The code of :data:`ait_llm.core.kernels.ELEMENTS`; None for types that it does not have."""
    return _ELEMENTS.get(dtype)


def host_numbers(tensor: Tensor, known: KnownStatistics | None = None) -> Numbers | None:
    """Numbers of a dense tensor on the host, by the native library.

    Args:
        tensor: with at least one element; those of complex numbers are of their magnitudes.
        known: results of the same step.

    Returns:
        None where the library is not installed or does not know the type.
    """
    if known is not None and (found := known.numbers(tensor)) is not None:
        return found
    kernels = native_kernels()
    result = _reduce_natively(kernels, tensor, known) if kernels is not None else None
    return None if result is None else result.numbers


def tensor_description(tensor: Tensor) -> str:
    """Type and shape in the cells of :func:`tensor_statistics`, without looking at the values."""
    return _head(tensor.dtype, tensor.shape) + _UNKNOWN


@functools.lru_cache(maxsize=4096)
def _head(dtype: torch.dtype, shape: tuple[int, ...]) -> str:
    return f"{str(dtype).removeprefix('torch.')},{csv_cell(','.join(map(str, shape)))},"


_SPECIAL = re.compile('[,"\r\n]')


@functools.lru_cache(maxsize=1 << 12)
def csv_cell(text: str) -> str:
    """``text`` as a cell of CSV, quoted where it must be."""
    if _SPECIAL.search(text) is None:
        return text
    return '"' + text.replace('"', '""') + '"'


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
) -> _Result | None:
    """The result for a host tensor; None for what the native library does not know."""
    dtype = tensor.dtype
    if dtype.is_complex or not fills_its_memory(tensor) or is_lazy(tensor):
        with torch.no_grad():
            known = None
            tensor = tensor.abs() if dtype.is_complex else tensor.resolve_neg().contiguous()
            dtype = tensor.dtype
    code = _ELEMENTS.get(dtype)
    if known is None:
        return _reduced(kernels, tensor, code)
    return known.result(kernels, tensor, code)


def _reduced(kernels: NativeKernels, tensor: Tensor, code: int | None) -> _Result | None:
    """Reduce the memory of a host tensor now."""
    address = tensor.data_ptr()
    if not address:
        return None
    if code is not None:
        return _Result(kernels.statistics(code, address, tensor.numel()))
    values = byte_values(tensor.dtype)
    if values is None:
        return None
    return _Result(kernels.byte_statistics(address, tensor.numel(), values))


def fills_its_memory(tensor: Tensor) -> bool:
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


def _cells(numbers: Iterable[float]) -> str:
    high, low, mean, norm, nan, inf = numbers
    if low <= high:  # false for NaN
        return f"{high!r},{low!r},{mean!r},{norm!r},{int(nan)},{int(inf)}"
    return f"N/A,N/A,N/A,N/A,{int(nan)},{int(inf)}"
