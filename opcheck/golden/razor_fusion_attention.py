"""RazorFusionAttention: attention over image tiles and text, each tile seen through one band."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.opcheck.golden.attention_half import attention_in_float32
from ait_llm.opcheck.golden.base import (
    PROBABILITIES,
    Arithmetic,
    Params,
    Refusal,
    Result,
    golden_op,
)
from ait_llm.opcheck.golden.masks import Mask
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    check_count,
    check_dtypes,
    check_rank,
    replace,
    same,
)
from ait_llm.opcheck.golden.support import float_param, int_param, refused, tensor_at

NAME = "RazorFusionAttentionOperation"
_BLOCK = 128
_HIDDEN = -10000.0


@dataclass(frozen=True, slots=True)
class Razor:
    """The geometry: tiles of ``length`` tokens, then text, on both sides."""

    heads: int
    kv_heads: int
    length: int
    tiles: tuple[int, int]
    text: tuple[int, int]
    before: int
    after: int

    @property
    def rows(self) -> int:
        return self.length * self.tiles[0] + self.text[0]

    @property
    def keys(self) -> int:
        return self.length * self.tiles[1] + self.text[1]

    def block(self) -> int:
        return min(_BLOCK, self.keys)


def read_razor(params: Params) -> Razor:
    """Read the parameters."""

    def number(key: str, default: int = 0) -> int:
        return int_param(NAME, params, key, default)

    razor = Razor(
        number("headNum", 1),
        number("kvHeadNum", 1) or number("headNum", 1),
        number("razorLen"),
        (number("tileQ"), number("tileKv")),
        (number("textQLen"), number("textKvLen")),
        number("preTokens"),
        number("nextTokens"),
    )
    if razor.rows < 1 or razor.keys < 1 or razor.heads < 1 or razor.heads % razor.kv_heads:
        raise refused(
            NAME,
            f"{razor.rows} rows, {razor.keys} keys, {razor.heads} and {razor.kv_heads} heads; "
            "see razorLen, tileQ, tileKv, textQLen, textKvLen",
            Refusal.PARAM,
        )
    return razor


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """Shape and dtype of the query."""
    check_count(NAME, descs, 3)
    check_dtypes(NAME, descs, same(F16, BF16, count=3))
    razor = read_razor(params)
    for index, length, heads in (
        (0, razor.rows, razor.heads),
        (1, razor.keys, razor.kv_heads),
        (2, razor.keys, razor.kv_heads),
    ):
        check_rank(NAME, descs, index, len(descs[0].shape))
        check_rank(NAME, descs, index, 2, 3)
        shape = descs[index].shape
        if shape[0] % length or shape[0] // length != descs[0].shape[0] // razor.rows:
            raise refused(
                NAME, f"input {index} has {shape[0]} tokens; it takes a batch of {length}"
            )
        if (len(shape) == 3 and shape[1] != heads) or shape[1] % heads:
            raise refused(NAME, f"input {index} has shape {list(shape)}; it takes {heads} heads")
    return (replace(descs[0]),)


def visible(razor: Razor) -> Tensor:
    """Which keys each row of a sequence sees, ``[rows, keys]``.

    Within a tile, block (a, b) is seen for ``max(0, a - P + 1) <= b < a + N`` with P and N the
    blocks before and after; all tiles share the pattern. Text sees and is seen by everything.
    """
    size = razor.block()
    before, after = razor.before // size, razor.after // size
    block = torch.arange(razor.length) // size
    difference = block.unsqueeze(0) - block.unsqueeze(1)
    band = (difference >= 1 - before) & (difference < after)
    shown = torch.ones(razor.rows, razor.keys, dtype=torch.bool)
    tiles = band.repeat(*razor.tiles)
    shown[: tiles.shape[0], : tiles.shape[1]] = tiles
    return shown


@golden_op(NAME, infer_shape=infer_shape, kernel=PROBABILITIES)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Attention with -10000 added where the razor pattern hides a key.

    Inputs: query, key, value ``[tokens, heads * D]`` or ``[tokens, heads, D]``; tokens are a whole
    number of sequences.
    """
    razor = read_razor(params)
    query, key, value = (tensor_at(NAME, inputs, index) for index in range(3))
    if len(query) % razor.rows or len(key) // razor.keys != len(query) // razor.rows:
        raise refused(NAME, f"{len(query)} rows and {len(key)} keys are no whole sequences")
    rows = arithmetic.widen(query).reshape(
        -1, razor.rows, razor.heads, math.prod(query.shape[1:]) // razor.heads
    )
    width = math.prod(key.shape[1:]) // razor.kv_heads
    keys, values = (
        arithmetic.widen(tensor).reshape(-1, razor.keys, razor.kv_heads, width)
        for tensor in (key, value)
    )
    added = torch.where(visible(razor), 0.0, _HIDDEN).unsqueeze(0)
    mask = Mask(lambda row0, row1, key0, key1: added[:, row0:row1, key0:key1])
    scale = float_param(NAME, params, "qkScale", 1.0)
    attention = attention_in_float32(arithmetic, query.dtype)
    parts = [
        attention(*sequence, scale=scale, mask=mask)[0]
        for sequence in zip(rows, keys, values, strict=True)
    ]
    output = torch.stack(parts).reshape(query.shape)
    return Result((arithmetic.round(output, query.dtype),))
