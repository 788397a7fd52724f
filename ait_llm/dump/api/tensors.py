"""The JSON of a tensor: type, shape, numbers, checksum, and the file with its data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import is_fake

from ait_llm.core.kernels import crc32
from ait_llm.dump.api.calls import Call
from ait_llm.dump.api.numbers import NOTHING, Four, four_numbers, reduced_numbers
from ait_llm.dump.api.settings import Slice
from ait_llm.dump.api.tensor_files import TensorFiles, bytes_of
from ait_llm.dump.api.values import file_stem
from ait_llm.dump.pytorch.statistics import KnownStatistics, Reduced
from ait_llm.dump.pytorch.tensor_jobs import Outcome

_FAKE = "torch._subclasses.fake_tensor.FakeTensor"
_ASYNC = "torch.distributed._functional_collectives.AsyncCollectiveTensor"
_NESTED = "torch.nested._internal.nested_tensor.NestedTensor"
_DTENSOR = "torch.distributed.tensor.DTensor"
_PLAIN = "torch.Tensor"
_FOUR = ("Max", "Min", "Mean", "Norm")


class TensorEntries:
    """Makes the JSON of tensors and arrays.

    Args:
        files: where data go.
        summary: ``statistics``, ``md5`` or ``xor``.
        slices: parts to look at, for tensors of a size.
        known: results of the same step.
        exact: mean and norm are not rounded to the type of the tensor.
        complain: told what could not be saved.
    """

    def __init__(
        self,
        files: TensorFiles,
        summary: str,
        slices: tuple[Slice, ...],
        known: KnownStatistics,
        *,
        exact: bool = False,
        complain: Callable[[str], None],
    ) -> None:
        self._exact = exact
        self._complain = complain
        self._files = files
        self._summary = summary
        self._slices = slices
        self._known = known

    def tensor(self, tensor: Tensor, name: str, call: Call) -> dict[str, Any]:
        """The JSON of a tensor as it is now.

        Args:
            tensor: of any kind; it is not changed.
            name: the item's name, for the file.
            call: that it belongs to; it is told what must still be done, and what was lost.
        """
        save = call.save
        kind, dense = _PLAIN, tensor
        more: dict[str, Any] = {}
        if type(tensor) not in (Tensor, nn.Parameter) or tensor.is_nested or _in_transform(tensor):
            kind, found, more = _seen_through(tensor)
            if found is None:
                return _entry(kind, tensor, NOTHING, more)
            dense = found
        strided = dense.layout is torch.strided and not dense.is_quantized
        if not strided or dense.is_meta or not _has_data(dense):
            entry = _entry(kind, tensor, NOTHING, more)
            if save and not dense.is_meta and not strided and not is_fake(dense):
                self._save(entry, dense, name, call.outcome)
            return entry
        if not dense.is_cpu and _is_recording_graph(dense):
            call.outcome.fail(RuntimeError("computed while a device graph is recorded"))
            self._complain(f"{name}: computed while a device graph is recorded; not looked at")
            return _entry(kind, tensor, NOTHING, more)
        if self._slices:
            dense = self._cut(dense)
        if self._summary == "xor":
            entry = {"type": kind, "dtype": str(tensor.dtype), "shape": list(dense.shape)}
            one = not dense.dim() and dense.dtype.itemsize > 1
            # Of a single number msprobe writes the number.
            entry["md5"] = dense.item() if one else f"0x{_xor(_on_host(dense)):016x}"
            entry["requires_grad"] = tensor.requires_grad
            entry |= more
        else:
            four = four_numbers(dense, self._known, exact=self._exact)
            entry = _entry(kind, tensor, four if isinstance(four, tuple) else NOTHING, more)
            if self._slices:
                entry["shape"] = list(dense.shape)
            if not isinstance(four, tuple):
                call.deferred.append(_filling(entry, four))
        if save and dense.numel():
            self._save(entry, dense, name, call.outcome)
        if self._summary == "md5":
            entry["md5"] = f"{crc32(bytes_of(_on_host(dense))):08x}"
        return entry

    def reduced(self, found: Reduced, call: Call) -> dict[str, Any]:
        """The JSON of a tensor of which a device graph kept numbers alone."""
        entry = {
            "type": _PLAIN,
            "dtype": str(found.dtype),
            "shape": list(found.shape),
            **dict.fromkeys(_FOUR),
            "requires_grad": False,
        }
        call.deferred.append(_filling(entry, lambda: reduced_numbers(found, exact=self._exact)))
        return entry

    def look_at(self, slices: tuple[Slice, ...]) -> None:
        """Look at these parts from now on, of tensors of their size."""
        self._slices = slices

    def _save(self, entry: dict[str, Any], tensor: Tensor, name: str, outcome: Outcome) -> None:
        """Write the data; what cannot be written costs the record nothing else."""
        try:
            entry["data_name"] = self._files.save(tensor, file_stem(name), outcome)
        except (OSError, RuntimeError) as error:
            outcome.fail(error)
            self._complain(f"{name}: {error}")

    def array(self, array: np.ndarray[Any, Any], name: str, call: Call) -> dict[str, Any]:
        """The JSON of a NumPy array."""
        numbers: Four = NOTHING
        if array.size and array.dtype.kind in "fiub":
            high, low = array.max().item(), array.min().item()
            if array.dtype.kind == "b":
                numbers = (high, low, None, None)
            else:
                wide = array.astype(np.float64)
                numbers = (high, low, float(wide.mean()), float(np.linalg.norm(wide)))
        entry = {
            "type": "numpy.ndarray",
            "dtype": str(array.dtype),
            "shape": list(array.shape),
            **dict(zip(_FOUR, numbers, strict=True)),
        }
        if call.save and array.size and array.dtype.kind in "fiubcU":
            entry["data_name"] = self._files.save_array(array, file_stem(name), call.outcome)
        return entry

    def _cut(self, tensor: Tensor) -> Tensor:
        for part in self._slices:
            if part.dim < tensor.dim() and tensor.shape[part.dim] == part.size:
                tensor = tensor.narrow(part.dim, part.begin, part.end - part.begin)
        return tensor


def _is_recording_graph(tensor: Tensor) -> bool:
    """True while a device graph is recorded, where a look at a tensor would become part of it."""
    device: Any = getattr(torch, tensor.device.type, None)
    recording = getattr(device, "is_current_stream_capturing", None)
    return recording is not None and bool(recording())


def unseen(tensor: Tensor) -> dict[str, Any]:
    """The JSON of a tensor whose values cannot be had."""
    return _entry(_PLAIN, tensor, NOTHING, {})


def _entry(kind: str, tensor: Tensor, four: Four, more: dict[str, Any]) -> dict[str, Any]:
    high, low, mean, norm = four
    entry = {
        "type": kind,
        "dtype": str(tensor.dtype),
        "shape": list(tensor.shape),
        "Max": high,
        "Min": low,
        "Mean": mean,
        "Norm": norm,
        "requires_grad": tensor.requires_grad,
    }
    if more:
        entry |= more
    return entry


def _filling(entry: dict[str, Any], four: Callable[[], Four]) -> Callable[[], None]:
    def fill() -> None:
        entry.update(zip(_FOUR, four(), strict=True))

    return fill


def _in_transform(tensor: Tensor) -> bool:
    """True for a tensor that vmap or grad wrapped."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def _seen_through(tensor: Tensor) -> tuple[str, Tensor | None, dict[str, Any]]:
    """What to call a tensor of a special kind, its dense part, and what else is said of it."""
    if is_fake(tensor):
        return _FAKE, None, {}
    if _in_transform(tensor):
        functorch = torch._C._functorch
        if functorch.is_gradtrackingtensor(tensor):
            inner = functorch.get_unwrapped(tensor)
            return "GradTrackingTensor", None if _in_transform(inner) else inner, {}
        return "BatchedTensor", None, {}
    name = type(tensor).__name__
    if name == "AsyncCollectiveTensor":
        return _ASYNC, None, {}
    if name == "DTensor":
        mesh, placements = getattr(tensor, "device_mesh"), getattr(tensor, "placements")  # noqa: B009
        more = {
            "device_mesh": mesh.mesh.tolist(),
            "placements": [_placement(each) for each in placements],
        }
        local = getattr(tensor, "_local_tensor")  # noqa: B009 - to_local would be recorded
        return _DTENSOR, local.detach(), more
    if tensor.is_nested:
        jagged = str(tensor.layout) == "torch.jagged"  # PyTorch has it since 2.2
        return _NESTED, tensor.detach().values() if jagged else None, {}
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return _PLAIN, None, {}  # a wrapper without memory of its own
    return _PLAIN, tensor.detach().as_subclass(Tensor), {}


def _placement(placement: Any) -> dict[str, Any]:
    name = type(placement).__name__
    if hasattr(placement, "dim"):
        return {name: {"dim": placement.dim}}
    if hasattr(placement, "reduce_op"):
        return {name: {"reduce_op": str(placement.reduce_op)}}
    return {name: {}}


def _has_data(tensor: Tensor) -> bool:
    """False for a tensor whose memory was given away, as sharding does with what it gathered."""
    if not tensor.numel():
        return True
    try:
        return tensor.data_ptr() != 0
    except RuntimeError:
        return False


def _on_host(tensor: Tensor) -> Tensor:
    with torch.no_grad():
        return tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()


def _xor(tensor: Tensor) -> int:
    """Exclusive or of the bytes in words of eight, the last filled up with zeros."""
    data = np.frombuffer(bytes_of(tensor), dtype=np.uint8)
    whole = len(data) // 8 * 8
    result = int(np.bitwise_xor.reduce(data[:whole].view("<u8"))) if whole else 0
    return result ^ int.from_bytes(data[whole:].tobytes(), "little")
