"""From tensors of any layout to dense tensors that can be copied and read anywhere."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import is_fake

_PARTS_OF_LAYOUT = {
    torch.sparse_coo: ("indices", "values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}

# Newer than the oldest torch that is supported, where nothing has the type that stands for it.
_PAIRS: torch.dtype = getattr(torch, "float4_e2m1fn_x2", torch.quint2x4)


@dataclass(frozen=True, slots=True)
class DensePart:
    """A dense tensor that is a part of a captured one, or all of it.

    Attributes:
        suffix: what follows the captured tensor's name, such as ``_indices``; empty for all of it.
        tensor: dense and without Python subclass behaviour.
    """

    suffix: str
    tensor: Tensor


def dense_parts(tensor: Tensor) -> tuple[list[DensePart], str]:
    """The dense tensors that make up ``tensor``, and a note that says what they are parts of.

    A dense tensor is its own only part, with no note. Sparse tensors have their indices and
    values, quantised ones their integers and, with a scale for each channel, scales and zero
    points. Distributed tensors have the shard of this process. Other wrappers name their parts
    themselves (``__tensor_flatten__``), nested tensors among them. Floats of four bits that lie in
    pairs along another axis than the last one are laid out along that, which a file can say.

    Raises:
        TypeError: a wrapper that does not name its parts.
        RuntimeError: torch cannot take the tensor apart.
    """
    tensor = tensor.detach()
    if is_fake(tensor) or is_plain(tensor):
        return [DensePart("", tensor)], ""
    if not _is_in_rows(tensor):
        return _pairs_along_rows(tensor)
    kind = type(tensor)
    local = getattr(tensor, "to_local", None)
    if callable(local):
        note = f"shard of a distributed tensor, placements {getattr(tensor, 'placements', '')}"
        parts, inner = dense_parts(local())
        return parts, f"{note}; {inner}" if inner else note
    wait = getattr(tensor, "wait", None)
    if callable(wait):
        return dense_parts(wait())
    if kind.__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return _flattened(tensor)
    if kind is not Tensor:
        return dense_parts(tensor.as_subclass(Tensor))
    if tensor.layout in _PARTS_OF_LAYOUT:
        names = _PARTS_OF_LAYOUT[tensor.layout]
        # Of a sparse tensor that is not coalesced only the raw members can be had.
        raw = tensor.layout is torch.sparse_coo
        parts = [
            DensePart(f"_{name}", getattr(tensor, f"_{name}" if raw else name)().detach())
            for name in names
        ]
        layout = str(tensor.layout).removeprefix("torch.")
        return parts, f"{layout} tensor, shape {tuple(tensor.shape)}"
    if tensor.is_quantized:
        return _quantised(tensor)
    if tensor.is_nested:
        parts = [DensePart(f"_{i}", item.detach()) for i, item in enumerate(tensor.unbind())]
        return parts, f"nested tensor of {len(parts)} tensors"
    raise TypeError(f"a tensor of layout {tensor.layout} cannot be taken apart")


def is_plain(tensor: Tensor) -> bool:
    """True for an ordinary dense tensor, whatever its device."""
    return (
        type(tensor) in (Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and not tensor.is_quantized
        and not tensor.is_nested
        and _is_in_rows(tensor)
    )


_DISPATCH_KEYS = getattr(torch._C, "_dispatch_keys", None)
_NEGATIVE = getattr(getattr(torch._C, "DispatchKey", None), "Negative", None)


def is_lazy(tensor: Tensor) -> bool:
    """True for a view whose elements are those of its memory negated or conjugated.

    Asked of the keys by which torch calls operators: methods of the tensor give up the lock of the
    interpreter, which a busy thread then has for longer than everything else here takes.
    """
    if _DISPATCH_KEYS is None or _NEGATIVE is None:  # before PyTorch 2.2
        return tensor.is_neg() or tensor.is_conj()
    keys = _DISPATCH_KEYS(tensor)
    return bool(keys.has(_NEGATIVE) or (tensor.dtype.is_complex and tensor.is_conj()))


def _keys_of_inference() -> object:
    """By which keys torch calls operators with a dense tensor on the host in inference mode."""
    if _DISPATCH_KEYS is None:
        return None
    with torch.inference_mode():
        return _DISPATCH_KEYS(torch.empty(1, device="cpu"))


_ORDINARY = _keys_of_inference()


def is_ordinary(tensor: Tensor) -> bool:
    """True for a dense tensor of inference mode on the host, with no wrapper and not lazy."""
    return _ORDINARY is not None and _DISPATCH_KEYS(tensor) == _ORDINARY  # type: ignore[misc]


def _is_in_rows(tensor: Tensor) -> bool:
    """True unless pairs of small floats lie along another axis than the last one."""
    return tensor.dtype is not _PAIRS or tensor.dim() == 0 or tensor.stride(-1) == 1


def _pairs_along_rows(tensor: Tensor) -> tuple[list[DensePart], str]:
    """The same floats of four bits, in pairs along the last axis."""
    raw = tensor.view(torch.uint8)
    axis = next((dim for dim in range(raw.dim()) if raw.stride(dim) == 1), -1)
    if axis < 0 or raw.shape[-1] % 2:
        return [DensePart("_bytes", raw)], f"{tensor.dtype}, two elements in each byte"
    turned = raw.transpose(axis, -1)
    single = torch.stack((turned & 15, turned >> 4), -1).flatten(-2).transpose(axis, -1)
    pairs = (single[..., ::2] | single[..., 1::2] << 4).contiguous()
    return [DensePart("", pairs.view(_PAIRS))], ""


def _quantised(tensor: Tensor) -> tuple[list[DensePart], str]:
    parts = [DensePart("_integers", tensor.int_repr())]
    scheme = tensor.qscheme()
    note = f"quantised tensor, {tensor.dtype}, {scheme}"
    if scheme in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return parts, f"{note}, scale {tensor.q_scale()}, zero point {tensor.q_zero_point()}"
    parts.append(DensePart("_scales", tensor.q_per_channel_scales()))
    parts.append(DensePart("_zero_points", tensor.q_per_channel_zero_points()))
    return parts, f"{note}, axis {tensor.q_per_channel_axis()}"


def _flattened(tensor: Tensor) -> tuple[list[DensePart], str]:
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        raise TypeError(f"a {type(tensor).__qualname__} does not say what it consists of")
    parts = []
    for name in flatten()[0]:
        inner, _ = dense_parts(getattr(tensor, name))
        parts += [DensePart(f"_{name.lstrip('_')}{part.suffix}", part.tensor) for part in inner]
    return parts, f"{type(tensor).__qualname__}, shape {tuple(tensor.shape)}"
