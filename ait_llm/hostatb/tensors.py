"""torch tensors seen as native ones and native memory seen as torch tensors, without copies."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from ait_llm.core import FORMAT_FRACTAL_NZ, FORMAT_ND, DType, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.hostatb.native_types import NativeTensor
from ait_llm.opcheck.golden.layout import nd_to_nz, nz_shape, nz_to_nd
from ait_llm.opcheck.golden.support import desc_of, torch_dtype

# Views are cheap to keep and cost 10 us to make; addresses repeat from step to step.
_MAX_VIEWS = 8192
_views: dict[tuple[int, TensorDesc], Tensor] = {}


# torch on CPU knows no storage formats; a tensor in another one than ND carries its code here.
_FORMAT = "_atb_format"
_MATRICES = (2, 3)  # dims of a matrix, and of a batch of matrices


def with_format(tensor: Tensor, storage_format: int) -> Tensor:
    """The tensor, marked as stored in a format such as 29, FRACTAL_NZ; nothing is moved."""
    setattr(tensor, _FORMAT, storage_format)
    return tensor


def format_cast(tensor: Tensor, storage_format: int) -> Tensor:
    """A copy stored in a format, as ``torch_npu.npu_format_cast`` makes it.

    In FRACTAL_NZ the memory holds blocks, padding included; the dims are still the matrix's.

    Raises:
        OperationError: it is neither ND nor FRACTAL_NZ, or no matrix.
    """
    if storage_format == FORMAT_ND:
        return tensor.clone(memory_format=torch.contiguous_format)
    if storage_format != FORMAT_FRACTAL_NZ or tensor.dim() not in _MATRICES:
        raise OperationError(
            f"format {storage_format} of {list(tensor.shape)} is not made; hostatb casts matrices "
            f"and batches of them to {FORMAT_ND} (ND) and {FORMAT_FRACTAL_NZ} (FRACTAL_NZ)"
        )
    strides = torch.empty(tensor.shape, device="meta").stride()
    blocks = nd_to_nz(tensor).reshape(-1)
    return with_format(blocks.as_strided(tensor.shape, strides), storage_format)


def native_tensor(tensor: Tensor) -> NativeTensor:
    """A contiguous CPU tensor as the runtime sees it; the caller keeps the tensor alive.

    Raises:
        OperationError: its dtype has no counterpart in the library.
    """
    try:
        desc = desc_of(tensor, getattr(tensor, _FORMAT, FORMAT_ND))
    except KeyError:
        raise OperationError(f"tensors of type {tensor.dtype} have no ATB element type") from None
    if has_hidden_blocks(desc):
        held = tensor.untyped_storage().nbytes() - tensor.storage_offset() * tensor.element_size()
        needed = _blocks(desc).byte_count
        if held < needed:
            raise OperationError(
                f"{list(tensor.shape)} in FRACTAL_NZ takes {needed} bytes of blocks and the tensor "
                f"has {held}; make it with ait_llm.hostatb.tensors.format_cast"
            )
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


def has_hidden_blocks(desc: TensorDesc) -> bool:
    """Whether the memory holds blocks though the dims are those of a matrix, or a batch of them."""
    return desc.format == FORMAT_FRACTAL_NZ and len(desc.shape) in _MATRICES


def matrix_view(tensor: NativeTensor) -> Tensor | None:
    """What :func:`torch_view` gives, or, where the memory holds blocks, a copy of the matrix."""
    if not has_hidden_blocks(tensor.desc) or not tensor.pointer:
        return torch_view(tensor)
    blocks = _blocks(tensor.desc)
    view = torch_view(NativeTensor(blocks, tensor.pointer, blocks.byte_count))
    if view is None:
        return None
    rows, columns = tensor.desc.shape[-2:]
    return nz_to_nd(view)[..., :rows, :columns].contiguous()


def _blocks(desc: TensorDesc) -> TensorDesc:
    """The blocks, with dims of their own, of a matrix in FRACTAL_NZ."""
    return TensorDesc(desc.dtype, nz_shape(desc.shape, torch_dtype(desc.dtype)), desc.format)


def empty_tensor(desc: TensorDesc) -> Tensor:
    """Uninitialised memory for an output.

    Raises:
        OperationError: torch has no such element type.
    """
    tensor = torch.empty(desc.shape, dtype=torch_dtype(desc.dtype))
    return tensor if desc.format == FORMAT_ND else with_format(tensor, desc.format)
