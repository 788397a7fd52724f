"""The mask of one sequence in SelfAttention, from its type, tensor and slopes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ait_llm.opcheck.golden.masks import (
    MASKED,
    Mask,
    effective,
    key_position,
    linear_distance,
    root_distance,
    slope_bias,
    split_heads,
    tensor_mask,
    tiled_alibi,
    unblocked,
)
from ait_llm.opcheck.golden.self_attention_config import (
    ALIBI_COMPRESSED,
    NAME,
    SLIDING_WINDOW,
    CalcType,
    Config,
    KernelType,
    MaskType,
)

_DISTANCES = {
    MaskType.ALIBI_COMPRESS: linear_distance,
    MaskType.ALIBI_COMPRESS_SQRT: root_distance,
    MaskType.ALIBI_COMPRESS_LEFT_ALIGN: key_position,
}
# Beside isTriuMask, tensors of these shapes are templates of a causal mask of any length.
_TEMPLATES = ((128, 128), (2048, 2048))


@dataclass(frozen=True, slots=True)
class Place:
    """One sequence: its number, rows ``[first, first + rows)`` of the query, and its keys.

    ``keys`` counts all keys that it has; ``key_first`` is where they begin in a packed key.
    """

    number: int
    first: int
    rows: int
    keys: int
    key_first: int


def _coefficient(config: Config, query: Tensor, mask: Tensor, *, decoding: bool) -> float:
    """-3e38 where the kernel multiplies a head-less mask of ones, else 1.

    bfloat16 kernels do, and the high precision encoder; ALiBi kernels and those that take NZ
    masks do not.
    """
    if (
        config.one_core
        or config.mask is MaskType.ALIBI
        or config.mask in ALIBI_COMPRESSED
        or mask.dim() == 4
    ):
        return 1.0
    multiplies = query.dtype == torch.bfloat16 or (
        config.kernel is KernelType.HIGH_PRECISION and not decoding
    )
    return MASKED if multiplies else 1.0


def mask_of(
    config: Config, named: dict[str, Tensor], place: Place, keys: int, *, decoding: bool
) -> Mask:
    """The mask of one sequence.

    Args:
        config: parameters of the call.
        named: inputs by name.
        place: the sequence.
        keys: keys that are there; less than ``place.keys`` in a ring.
        decoding: the decoder kernel runs.
    """
    prefix = config.calc is CalcType.PREFIX_ENCODER
    first_row = place.keys - place.rows if prefix else 0
    # Generated masks assume that queries and keys start together; a single decoded row is last.
    diagonal = place.keys - 1 if decoding and place.rows == 1 else first_row
    if config.mask is MaskType.CAUSAL:
        return Mask(diagonal=place.keys - place.rows)
    if config.mask in SLIDING_WINDOW:
        if config.ring and keys < place.keys:
            return Mask()
        return Mask(diagonal=diagonal, window=config.window)
    if "mask" not in named:
        return Mask()
    mask = unblocked(named["mask"], config.heads, keys)
    if config.mask in ALIBI_COMPRESSED and mask.dim() == 2:
        bias = slope_bias(named["slopes"], _DISTANCES[config.mask], diagonal)
        return Mask(bias, diagonal)
    if config.mask in ALIBI_COMPRESSED and mask.dim() == 3 and mask.shape[2] == 128:
        return Mask(
            tiled_alibi(NAME, mask, first_row=diagonal, rows=place.rows, keys=keys), diagonal
        )
    template = config.triangular and tuple(mask.shape) in _TEMPLATES
    if config.mask is MaskType.NORM_COMPRESS or (config.mask is MaskType.NORM and template):
        return Mask(diagonal=diagonal)
    mask = effective(mask, _coefficient(config, named["query"], mask, decoding=decoding))
    mask = split_heads(mask, config.heads, named["length"].shape[-1])
    per_head = config.mask is MaskType.ALIBI and mask.dim() == 3
    per_head = per_head and mask.shape[0] == config.heads
    bias = tensor_mask(
        NAME,
        mask,
        batch=place.number,
        per_head=per_head,
        first_row=first_row,
        rows=place.rows,
        keys=keys,
    )
    return Mask(bias, diagonal if config.triangular else None)
