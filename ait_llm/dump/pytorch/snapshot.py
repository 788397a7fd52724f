"""Taking the value of a tensor at the moment of a call: one copy, no change to the model.

A dense tensor becomes a contiguous CPU copy in a recycled buffer; on an accelerator the copy goes
through pinned memory without stopping the device. Whatever cannot be copied is named with the
reason.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import is_fake

from ait_llm.core.kernels import native_kernels


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A CPU copy of a tensor, or the reason why there is none."""

    tensor: Tensor | None = None
    ready: Callable[[], None] | None = None
    release: Callable[[], None] | None = None
    reason: str = ""


class BufferPool:
    """Recycles host buffers by size, so that copies land in memory that is already mapped.

    Args:
        limit: bytes of free buffers that are kept; the first use of new memory costs more than the
            copy into it.
    """

    def __init__(self, limit: int = 64 << 20) -> None:
        self._limit = limit
        self._kept = 0
        self._free: dict[tuple[int, bool], list[Tensor]] = defaultdict(list)
        self._lock = threading.Lock()

    def take(self, size: int, pinned: bool) -> tuple[Tensor, Callable[[], None]]:
        """A uint8 buffer of ``size`` bytes and the call that gives it back."""
        key = (size, pinned)
        buffer = None
        with self._lock:
            if self._free[key]:
                buffer = self._free[key].pop()
                self._kept -= size
        if buffer is None:
            buffer = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        return buffer, functools.partial(self._give_back, key, buffer)

    def _give_back(self, key: tuple[int, bool], buffer: Tensor) -> None:
        with self._lock:
            if self._kept + key[0] <= self._limit:
                self._free[key].append(buffer)
                self._kept += key[0]


def snapshot(tensor: Tensor, pool: BufferPool) -> Snapshot:
    """Copy a dense tensor as it is now, whatever its dtype, strides and device.

    Args:
        tensor: as :func:`ait_llm.dump.pytorch.layouts.dense_parts` returns it.
        pool: where the copy's memory comes from.
    """
    if is_fake(tensor):
        return Snapshot(reason="a fake tensor without data, from tracing")
    if tensor.device.type == "meta":
        return Snapshot(reason=f"on the meta device, shape {tuple(tensor.shape)}, {tensor.dtype}")
    size = tensor.nbytes
    on_host = tensor.is_cpu
    streams: Any = None if on_host else getattr(torch, tensor.device.type, None)
    if _is_recording_graph(streams):
        return Snapshot(reason="computed while a device graph is recorded, where nothing is copied")
    buffer, release = pool.take(size, pinned=hasattr(streams, "current_stream"))
    target = buffer.view(tensor.dtype).view(tensor.shape) if size else _empty_like(tensor)
    ready = None
    with torch.no_grad():
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        if hasattr(streams, "current_stream"):
            target.copy_(tensor, non_blocking=True)
            event = streams.Event()
            event.record(streams.current_stream(tensor.device))
            ready = event.synchronize
        else:
            target.copy_(tensor)
    return Snapshot(target, ready=ready, release=release)


def _empty_like(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype)


def _is_recording_graph(streams: Any) -> bool:
    """True while the current stream of a kind of device records a graph (CUDA graphs)."""
    recording = getattr(streams, "is_current_stream_capturing", None)
    return recording is not None and bool(recording())


@dataclass(slots=True)
class _Saved:
    """A live tensor and the file that has its value.

    Attributes:
        copy: its value on the host, for tensors that are on the host.
        version: autograd's count of in-place changes; None in inference mode.
        address: of the first element.
        release: gives the memory of the copy back.
    """

    tensor: weakref.ref[Tensor]
    path: str
    copy: Tensor | None
    version: int | None
    address: int
    release: Callable[[], None] | None


class Found(NamedTuple):
    """What is known of the present value of a tensor object.

    Attributes:
        path: the file that holds it; empty if there is none.
        unchanged: True if it is that of when the object was last saved, False if it is not and no
            counter shows a change; None where that is not known.
    """

    path: str = ""
    unchanged: bool | None = None


_UNKNOWN = Found()
_CHANGED = Found(unchanged=False)


class SavedOnce:
    """Remembers which files hold which live tensors, so that an unchanged tensor is saved once.

    The same tensor object is often the output of one module and the input of the next three. That
    it is unchanged is checked, not assumed: on the host its bytes are compared with the copy, so
    that changes through ``.data``, NumPy or raw pointers are seen; on a device autograd's version
    counter is compared, which every in-place operator of torch increments. A device tensor without
    a counter (inference mode) is saved again each time.

    Args:
        limit: bytes of copies that are kept for the comparison.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = 0
        self._known: OrderedDict[int, _Saved] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, tensor: Tensor) -> Found:
        """What is known of this tensor's present value."""
        with self._lock:
            saved = self._known.get(id(tensor))
            if saved is None:
                return _UNKNOWN
            if saved.tensor() is not tensor:
                self._drop(id(tensor))
                return _UNKNOWN
            if not _is_unchanged(tensor, saved):
                self._drop(id(tensor))
                return _UNKNOWN if saved.version != _count(tensor) else _CHANGED
            self._known.move_to_end(id(tensor))
            return Found(saved.path, True)

    def remember(self, tensor: Tensor, path: str, copy: Snapshot) -> Callable[[], None] | None:
        """Record that ``path`` will hold the present value of ``tensor``.

        Returns:
            What the writer is to call when it has written the copy.
        """
        value = copy.tensor
        on_host = tensor.device.type == "cpu"
        if value is None or (on_host and not tensor.is_contiguous()):
            return copy.release
        if not on_host:
            if tensor.is_inference():
                return copy.release
            saved = _Saved(
                weakref.ref(tensor), path, None, tensor._version, tensor.data_ptr(), None
            )
        else:
            # The copy's memory is free again when it is both written and forgotten.
            release = _After(2, copy.release)
            saved = _Saved(
                weakref.ref(tensor),
                path,
                value,
                _count(tensor),
                tensor.data_ptr(),
                release.count_down,
            )
        with self._lock:
            self._drop(id(tensor))
            self._known[id(tensor)] = saved
            self._kept += _size(saved.copy)
            while self._kept > self._limit:
                self._drop(next(iter(self._known)))
        return saved.release if on_host else copy.release

    def forget(self) -> None:
        """Start afresh, at the start of a step."""
        with self._lock:
            for key in list(self._known):
                self._drop(key)

    def _drop(self, key: int) -> None:
        saved = self._known.pop(key, None)
        if saved is not None:
            self._kept -= _size(saved.copy)
            if saved.release is not None:
                saved.release()


class _After:
    """Calls an action when it was counted down to zero."""

    def __init__(self, count: int, action: Callable[[], None] | None) -> None:
        self._count = count
        self._action = action
        self._lock = threading.Lock()

    def count_down(self) -> None:
        with self._lock:
            self._count -= 1
            done = self._count == 0
        if done and self._action is not None:
            self._action()


def _count(tensor: Tensor) -> int | None:
    """Autograd's count of in-place changes; None in inference mode."""
    return None if tensor.is_inference() else tensor._version


def _size(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.numel() * tensor.element_size()


_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def _is_unchanged(tensor: Tensor, saved: _Saved) -> bool:
    if saved.copy is None:
        return tensor._version == saved.version and tensor.data_ptr() == saved.address
    if (
        tensor.dtype != saved.copy.dtype
        or tensor.shape != saved.copy.shape
        or not tensor.is_contiguous()
    ):
        return False
    size = tensor.nbytes
    kernels = native_kernels()
    if kernels is not None:
        return bool(kernels.equal(tensor.data_ptr(), saved.copy.data_ptr(), size))
    return not _memcmp(tensor.data_ptr(), saved.copy.data_ptr(), size)
