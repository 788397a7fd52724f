"""torch tensors seen as native ones and native memory seen as torch tensors, without copies."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from ait_llm.core import FORMAT_ND, DType, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.hostatb.native_types import NativeTensor
from ait_llm.opcheck.golden.support import desc_of, torch_dtype

# Views are cheap to keep and cost 10 us to make; addresses repeat from step to step.
_MAX_VIEWS = 8192
_views: dict[tuple[int, TensorDesc], Tensor] = {}


# torch on CPU knows no storage formats; a tensor in another one than ND carries its code here.
_FORMAT = "_atb_format"


def with_format(tensor: Tensor, storage_format: int) -> Tensor:
    """The tensor, marked as stored in a format such as 29, FRACTAL_NZ; nothing is moved."""
    setattr(tensor, _FORMAT, storage_format)
    return tensor


def native_tensor(tensor: Tensor) -> NativeTensor:
    """A contiguous CPU tensor as the runtime sees it; the caller keeps the tensor alive.

    Raises:
        OperationError: its dtype has no counterpart in the library.
    """
    try:
        desc = desc_of(tensor, getattr(tensor, _FORMAT, FORMAT_ND))
    except KeyError:
        raise OperationError(f"tensors of type {tensor.dtype} have no ATB element type") from None
    return NativeTensor(desc, tensor.data_ptr(), tensor.numel() * tensor.element_size())


def torch_view(tensor: NativeTensor) -> Tensor | None:
    """The memory of a native tensor as a torch tensor; None for an absent optional tensor.

    The view is valid while the memory is, which is at least during the kernel that got it.

    Raises:
        OperationError: torch has no such element type.
    """
    desc = tensor.desc
    if desc.dtype is DType.UNDEFINED:
        return None
    if tensor.size == 0 or not tensor.pointer:
        return torch.empty(desc.shape, dtype=torch_dtype(desc.dtype))
    key = (tensor.pointer, desc)
    view = _views.get(key)
    if view is None:
        memory = (ctypes.c_ubyte * tensor.size).from_address(tensor.pointer)
        flat = torch.frombuffer(memory, dtype=torch_dtype(desc.dtype), count=desc.elements)
        view = flat.view(desc.shape)
        if len(_views) >= _MAX_VIEWS:
            _views.clear()
        _views[key] = view
    return view


def empty_tensor(desc: TensorDesc) -> Tensor:
    """Uninitialised memory for an output.

    Raises:
        OperationError: torch has no such element type.
    """
    tensor = torch.empty(desc.shape, dtype=torch_dtype(desc.dtype))
    return tensor if desc.format == FORMAT_ND else with_format(tensor, desc.format)
