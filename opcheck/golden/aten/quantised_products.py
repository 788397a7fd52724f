"""Products of quantised matrices as torch's operators define them, in the type of their inputs.

The scales of blocks are those of DeepSeek's checkpoints: one for 1 by 128 elements of the input and
one for 128 by 128 of the weight, or any other size that divides the matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from ait_llm.formats.packed import scales_in_tiles
from ait_llm.opcheck.golden.aten.block_scales import in_rows
from ait_llm.opcheck.golden.base import UnverifiableError

# What four bits stand for: a kernel takes this off the stored number before it scales it.
MIDDLE = 8
_BLOCKS = (16, 32)  # elements of NVFP4 and of MX formats that share a scale
_GROUP = 32  # any that the kernel takes: with scales of one it changes nothing


def scaled_product(given: Mapping[str, Any]) -> Tensor:
    """``(self scale_a) . (mat2 scale_b) + bias`` of fp8.

    Scales are of tensors, rows, columns or blocks, which may lie in tiles.

    Raises:
        UnverifiableError: it scales its result, too, or keeps scales in the order of a device.
    """
    if given["scale_result"] is not None:
        raise UnverifiableError("it scales its result, too")
    left = given["self"] * _expanded(given["scale_a"], given["self"])
    right = given["mat2"]
    tiles = _in_tiles(given["scale_b"], right.t())
    right = right * (_expanded(given["scale_b"], right) if tiles is None else tiles.t())
    found: Tensor = left @ right
    return found if given["bias"] is None else found + given["bias"]


def _expanded(scale: Tensor, matrix: Tensor) -> Tensor:
    """One scale for each element, or some that are broadcast to them.

    Raises:
        UnverifiableError: the scales are not in rows and columns, as those of MX blocks are not.
    """
    if scale.numel() == 1:
        return scale.reshape(())
    if scale.dim() != matrix.dim():
        if (tiles := _in_tiles(scale, matrix)) is not None:
            return tiles
        raise UnverifiableError("its scales are not in rows and columns")
    for dim, (count, size) in enumerate(zip(scale.shape, matrix.shape, strict=True)):
        if count in (1, size):
            continue
        if size % count:
            raise UnverifiableError("its scales are of blocks that do not divide the matrix")
        scale = scale.repeat_interleave(size // count, dim)
    return scale


def _in_tiles(scale: Tensor, rows: Tensor) -> Tensor | None:
    """The scale of each element, where there are as many as tiles of blocks have; else None."""
    if scale.dim() != 1 or rows.dim() != 2:
        return None
    count, columns = rows.shape
    sizes = [
        size
        for size in _BLOCKS
        if columns % size == 0 and scale.numel() == scales_in_tiles(count, columns // size)
    ]
    if len(sizes) != 1:
        return None
    return in_rows(scale, count, columns // sizes[0]).repeat_interleave(sizes[0], 1)


def int8_weight_product(given: Mapping[str, Any]) -> Tensor:
    """``self [M, K] . (mat2 [N, K] scales [N])'`` with int8 weights."""
    x: Tensor = given["self"]
    scales: Tensor = given["scales"]
    return torch.mm(x, given["mat2"].to(x.dtype).t()) * scales


def int4_weight_product(given: Mapping[str, Any]) -> Tensor:
    """``self [M, K] . ((mat2 - 8) scale + zero)``, scales and zeros ``[K / group, N, 2]``."""
    x: Tensor = given["self"]
    both: Tensor = given["qScaleAndZeros"]
    columns, rows = x.shape[-1], both.shape[1]
    with _disable_current_modes():
        data = unpacked_int4(given["mat2"], rows, columns)
    scale, zero = both.permute(2, 1, 0).repeat_interleave(given["qGroupSize"], dim=-1)
    weight = (data.to(x.dtype) - MIDDLE) * scale.to(x.dtype) + zero.to(x.dtype)
    return torch.mm(x, weight.t())


def unpacked_int4(data: Tensor, rows: int, columns: int) -> Tensor:
    """The stored numbers, 0 to 15 ``[rows, columns]``, that a CPU keeps packed.

    What it stores where is its own affair, so it is asked: the product with the identity.
    """
    scales = torch.ones(columns // _GROUP, rows, 2, dtype=torch.bfloat16)
    scales[:, :, 1] = MIDDLE
    identity = torch.eye(columns, dtype=torch.bfloat16)
    found: Tensor = torch._weight_int4pack_mm_for_cpu(identity, data, _GROUP, scales)
    return found.t().to(torch.uint8)
