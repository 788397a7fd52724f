"""NumPy arrays and bytes of files to torch tensors of the same element type, and back.

torch is imported on use.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from ait_llm.core import FORMAT_ND, DType
from ait_llm.core.optional import import_optional
from ait_llm.errors import MissingDependencyError
from ait_llm.formats.elements import Array, decode
from ait_llm.formats.opening import open_descriptor
from ait_llm.formats.payload import Payload

if TYPE_CHECKING:
    from torch import Tensor

# Integers of the same width carry the bits of types that torch cannot take from NumPy.
_CARRIERS = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}
_TWO_IN_A_BYTE = "float4_e2m1fn_x2"
_DIRECT = frozenset(
    np.dtype(numpy_type).name
    for numpy_type in (
        *(np.bool_, np.uint8, np.int8, np.int16, np.int32, np.int64),
        *(np.float16, np.float32, np.float64, np.complex64, np.complex128),
    )
)


def to_torch(array: Array, dtype: DType) -> Tensor:
    """A CPU tensor with the values of ``array``; it owns its memory.

    bf16 and fp8 keep their type. Types that torch does not have are widened: int4 and int2 to
    int8, uint2 and uint1 to uint8, HiFloat8, float6 and float4 to float32, complex32 to complex64.

    Args:
        array: as ``elements.decode`` returns it, of any shape.
        dtype: its logical element type.

    Raises:
        MissingDependencyError: torch is not installed, or too old for the element type.
    """
    torch = import_optional("torch", "a torch tensor")
    tensor: Tensor
    owned = np.array(array, order="C", copy=True)
    if owned.dtype.name in _DIRECT:
        tensor = torch.from_numpy(owned)
    elif dtype in (DType.INT4, DType.INT2):
        tensor = torch.from_numpy(owned.astype(np.int8))
    elif dtype is DType.UINT2:
        tensor = torch.from_numpy(owned.astype(np.uint8))
    elif dtype.torch_name is None:
        tensor = torch.from_numpy(owned.astype(np.float32))
    elif hasattr(torch, dtype.torch_name):
        bits = torch.from_numpy(owned.view(_CARRIERS[owned.dtype.itemsize]))
        tensor = bits.view(getattr(torch, dtype.torch_name))
    else:
        raise MissingDependencyError(
            f"torch {torch.__version__} has no element type {dtype.torch_name}; install a newer one"
        )
    return tensor


def bytes_in_order(tensor: Tensor) -> Tensor:
    """The bytes of a contiguous tensor, ``[n]`` of uint8, in its own memory.

    A single element is contiguous whatever its strides, which it may have of where it was cut out.
    """
    import torch

    flat = tensor.reshape(()).reshape(1) if tensor.numel() == 1 else tensor.reshape(-1)
    return flat.view(torch.uint8)


def read_tensor(payload: Payload) -> Tensor | None:
    """A CPU tensor with the values that lie in a file; it owns its memory.

    They are read once, into their place. None for what has to be unpacked or put in order.

    Raises:
        FormatError: the file vanished or became shorter.
        MissingDependencyError: torch is not installed.
    """
    torch = import_optional("torch", "a torch tensor")
    dtype = payload.dtype
    element = getattr(torch, dtype.torch_name or "", None)
    plain = payload.format == FORMAT_ND and payload.strides is None and dtype.bits >= 8
    if not plain or element is None or dtype is DType.BOOL or element.itemsize * 8 != dtype.bits:
        return None
    if payload.length != dtype.byte_count(payload.elements):
        return None
    found: Tensor = torch.empty(payload.shape, dtype=element)
    memory = bytes_in_order(found).numpy().data
    descriptor, _ = open_descriptor(payload.path)
    try:
        payload.read_into(descriptor, memory)
    finally:
        os.close(descriptor)
    return found


def from_torch(tensor: Tensor) -> tuple[Array, DType]:
    """The values of a dense tensor on any device, and their logical type; no gradient is kept.

    Of ``float4_e2m1fn_x2``, two of which lie in each byte, the axis without gaps in memory becomes
    twice as long.

    Raises:
        ValueError: an element type or a layout (quantized, sparse) without a NumPy counterpart.
    """
    torch = import_optional("torch", "a torch tensor")
    name = str(tensor.dtype).removeprefix("torch.")
    if name == _TWO_IN_A_BYTE and tensor.layout == torch.strided and tensor.dim():
        return _floats_of_4_bits(tensor), DType.FLOAT4_E2M1
    dtype = DType.of_torch(name)
    if dtype is None or tensor.layout != torch.strided:
        raise ValueError(f"a tensor of {name} in layout {tensor.layout} has no NumPy counterpart")
    plain = tensor.detach().cpu().contiguous()
    if plain.is_conj() or plain.is_neg():
        plain = plain.resolve_conj().resolve_neg()
    if dtype is DType.COMPLEX32:
        return plain.to(torch.complex64).numpy(), dtype
    if name in _DIRECT:
        return plain.numpy(), dtype
    carrier = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[plain.itemsize]
    bits = plain.reshape(-1).view(carrier).numpy()
    return bits.view(np.dtype(dtype.numpy_type)).reshape(tuple(plain.shape)), dtype


def _floats_of_4_bits(tensor: Tensor) -> Array:
    """The values of bytes that hold two, the first in the low half."""
    torch = import_optional("torch", "a torch tensor")
    dims = range(tensor.dim())
    axis = next((d for d in reversed(dims) if tensor.stride(d) == 1 and tensor.shape[d] > 1), -1)
    raw = tensor.detach().cpu().view(torch.uint8).transpose(axis, -1).contiguous().numpy()
    values = decode(raw.reshape(-1), DType.FLOAT4_E2M1, 2 * raw.size)
    return np.swapaxes(values.reshape(*raw.shape[:-1], -1), axis, -1)
