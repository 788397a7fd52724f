"""Taking the value of a tensor at the moment of a call: one copy, no change to the model.

A dense tensor becomes a contiguous CPU copy in a recycled buffer; on an accelerator the copy goes
through pinned memory without stopping the device. Whatever cannot be copied is named with the
reason.
"""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import is_fake

# Buffers of one size that are kept for the next tensor of that size.
_KEEP_PER_SIZE = 8


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A CPU copy of a tensor, or the reason why there is none."""

    tensor: Tensor | None = None
    plain: bool = True
    ready: Callable[[], None] | None = None
    release: Callable[[], None] | None = None
    note: str = ""
    reason: str = ""


class BufferPool:
    """Recycles host buffers by size, so that copies land in memory that is already mapped."""

    def __init__(self) -> None:
        self._free: dict[tuple[int, bool], list[Tensor]] = defaultdict(list)
        self._lock = threading.Lock()

    def take(self, size: int, pinned: bool) -> tuple[Tensor, Callable[[], None]]:
        """A uint8 buffer of ``size`` bytes and the call that gives it back."""
        key = (size, pinned)
        with self._lock:
            buffer = self._free[key].pop() if self._free[key] else None
        if buffer is None:
            buffer = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)

        def give_back(buffer: Tensor = buffer) -> None:
            with self._lock:
                if len(self._free[key]) < _KEEP_PER_SIZE:
                    self._free[key].append(buffer)

        return buffer, give_back


def snapshot(tensor: Tensor, pool: BufferPool) -> Snapshot:
    """Copy ``tensor`` as it is now; any dtype, layout and device."""
    note = ""
    if is_fake(tensor):
        return Snapshot(reason="a fake tensor without data, from tracing")
    tensor = tensor.detach()
    if type(tensor) not in (Tensor, torch.nn.Parameter):
        local = getattr(tensor, "to_local", None)
        if callable(local):
            note = f"local shard of a distributed tensor, placements {tensor.placements}"  # type: ignore[attr-defined]  # DTensor
            tensor = local()
        wait = getattr(tensor, "wait", None)
        if callable(wait):
            tensor = wait()
        if type(tensor) not in (Tensor, torch.nn.Parameter) and not _is_plain_subclass(tensor):
            return _keep_whole(tensor, note)
        if type(tensor) is not Tensor:
            tensor = tensor.as_subclass(Tensor)
    if tensor.device.type == "meta":
        return Snapshot(reason=f"on the meta device, shape {tuple(tensor.shape)}, {tensor.dtype}")
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        return _keep_whole(tensor, note)
    return _copy_dense(tensor, pool, note)


def _is_plain_subclass(tensor: Tensor) -> bool:
    """True for subclasses that only add Python attributes to ordinary storage."""
    return type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__


def _keep_whole(tensor: Tensor, note: str) -> Snapshot:
    """Sparse, nested, quantised and wrapped tensors are stored by torch.save as they are."""
    try:
        return Snapshot(tensor.clone().cpu(), plain=False, note=note)
    except (RuntimeError, NotImplementedError, TypeError) as error:
        kind = f"{type(tensor).__name__}, {tensor.layout}"
        return Snapshot(reason=f"{kind}: {str(error).splitlines()[0]}")


def _copy_dense(tensor: Tensor, pool: BufferPool, note: str) -> Snapshot:
    size = tensor.numel() * tensor.element_size()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    on_host = tensor.device.type == "cpu"
    buffer, release = pool.take(size, pinned=not on_host)
    target = buffer.view(tensor.dtype).view(tensor.shape) if size else torch.empty_like(tensor)
    target.copy_(tensor, non_blocking=not on_host)
    ready = None
    if not on_host:
        event = torch.Event(tensor.device)
        event.record()
        ready = event.synchronize
    return Snapshot(target, ready=ready, release=release, note=note)


class SavedOnce:
    """Remembers which files hold which live tensors, so that an unchanged tensor is saved once.

    The same tensor object is often the output of one module and the input of the next three. It
    is recognised by identity and by autograd's version counter, which every in-place change
    increments; tensors without a counter (inference mode) are always saved again.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Tensor], int, Path]] = {}

    def find(self, tensor: Tensor) -> Path | None:
        """The file that already holds this tensor's present value, if there is one."""
        entry = self._known.get(id(tensor))
        if entry is None or tensor.is_inference():
            return None
        reference, version, path = entry
        return path if reference() is tensor and tensor._version == version else None

    def remember(self, tensor: Tensor, path: Path) -> None:
        """Record that ``path`` will hold the present value of ``tensor``."""
        if not tensor.is_inference():
            self._known[id(tensor)] = (weakref.ref(tensor), tensor._version, path)

    def forget(self) -> None:
        """Start afresh, at the start of a step."""
        self._known.clear()
