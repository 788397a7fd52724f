"""GmmDeqSwigluQuantGmmDeq and MmDeqSwigluQuantMmDeq: the int8 feed-forward block in one operator.

Dequantised product, SwiGLU, quantisation of each row, second dequantised product; the first for
groups of rows with an own weight each, the second for one weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import torch
from torch import Tensor

from ait_llm.core import FORMAT_ND, TensorDesc
from ait_llm.opcheck.golden.base import (
    Arithmetic,
    KernelArithmetic,
    Params,
    Refusal,
    Result,
    golden_op,
)
from ait_llm.opcheck.golden.layout import nz_to_nd
from ait_llm.opcheck.golden.products import integer_matmul
from ait_llm.opcheck.golden.quantise import INT8_MAX
from ait_llm.opcheck.golden.shapes import F16, F32, I8, I64, check_count, check_dtypes, check_shape
from ait_llm.opcheck.golden.support import bool_param, enum_param, refused, tensor_at

GROUPED = "GmmDeqSwigluQuantGmmDeqOperation"
SINGLE = "MmDeqSwigluQuantMmDeqOperation"
# The only sizes that the library takes.
_HIDDEN, _UP = 7168, 4096


class OutputType(IntEnum):
    """Values of ``outputType``."""

    FLOAT16 = 0
    BF16 = 1


class GroupListType(IntEnum):
    """Values of ``groupListType``."""

    CUMULATED = 0
    SINGLE = 1


class PermuteType(IntEnum):
    """Values of ``weightUpPermuteType``; columns of one tile are given by :func:`_tile`."""

    N256 = 0
    N128 = 1


def _tile(op: str, params: Params) -> int:
    kind = enum_param(op, params, "weightUpPermuteType", PermuteType, 0)
    return 256 if kind is PermuteType.N256 else 128


def _infer(op: str, descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    grouped = op == GROUPED
    check_count(op, descs, 7 if grouped else 6)
    ends = (I64,) if grouped else ()
    check_dtypes(op, descs, [(I8, I8, F32, F32, *ends, I8, F32)])
    if (
        enum_param(op, params, "outputType", OutputType, 0) is not OutputType.FLOAT16
        or enum_param(op, params, "groupListType", GroupListType, 0) is not GroupListType.CUMULATED
        or bool_param(op, params, "transposeWeightUp", False)
        or not bool_param(op, params, "transposeWeightDown", True)
    ):
        raise refused(
            op,
            "it takes outputType 0, groupListType 0, transposeWeightUp false and "
            "transposeWeightDown true",
            Refusal.PARAM,
        )
    rows = descs[0].shape[0] if descs[0].shape else 0
    lead = (descs[4].shape[0],) if grouped and descs[4].shape else ()
    check_shape(op, descs, 0, (rows, _HIDDEN))
    check_shape(op, descs, 1, (*lead, _HIDDEN, _UP))
    check_shape(op, descs, 2, (*lead, _UP))
    check_shape(op, descs, 3, (rows,))
    check_shape(op, descs, -2 % len(descs), (*lead, _HIDDEN, _UP // 2))
    check_shape(op, descs, -1 % len(descs), (*lead, _HIDDEN))
    return (TensorDesc(F16, (rows, _HIDDEN), FORMAT_ND),)


def infer_shape_grouped(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """float16 ``[m, 7168]``."""
    return _infer(GROUPED, descs, params)


def infer_shape_single(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """float16 ``[m, 7168]``."""
    return _infer(SINGLE, descs, params)


def _batched(weight: Tensor, groups: int, transposed: bool) -> Tensor:
    """A weight in any layout as ``[g, K, N]``."""
    if weight.dim() == 4 or (weight.dim() == 3 and groups == 1 and weight.shape[0] != 1):
        weight = nz_to_nd(weight)
    weight = weight.reshape(groups, *weight.shape[-2:])
    return weight.transpose(1, 2) if transposed else weight


def unpermuted(values: Tensor, tile: int) -> Tensor:
    """Columns in their logical order: all gates, then all values.

    They are stored in tiles, each of which has half a tile of gates and half a tile of values.
    """
    *lead, columns = values.shape
    tiles = values.reshape(*lead, columns // tile, 2, tile // 2)
    return tiles.transpose(-3, -2).reshape(values.shape)


def _dequantised(x: Tensor, weight: Tensor, scale: Tensor, row_scale: Tensor) -> Tensor:
    return integer_matmul(x, weight).float() * scale * row_scale.unsqueeze(-1)


def _block(
    x: Tensor, row_scale: Tensor, up: Tensor, up_scale: Tensor, down: Tensor, down_scale: Tensor
) -> Tensor:
    """The whole chain for the rows of one group, in float32."""
    product = _dequantised(x, up, up_scale, row_scale).to(torch.float16).float()
    gate, value = product.chunk(2, dim=-1)
    hidden = gate * torch.sigmoid(gate) * value
    largest = hidden.abs().amax(dim=-1, keepdim=True)
    divisor = largest.masked_fill(largest == 0, 1.0)
    quantised = (hidden * INT8_MAX / divisor).round().to(torch.int8)
    return _dequantised(quantised, down, down_scale, (largest / INT8_MAX).squeeze(-1))


def _compute(
    op: str, inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic
) -> Result:
    grouped = op == GROUPED
    x, up, up_scale, row_scale = (tensor_at(op, inputs, index) for index in range(4))
    down, down_scale = (tensor_at(op, inputs, index + grouped) for index in (4, 5))
    ends = tensor_at(op, inputs, 4).reshape(-1) if grouped else torch.tensor([len(x)])
    if (
        grouped
        and enum_param(op, params, "groupListType", GroupListType, 0) is GroupListType.SINGLE
    ):
        ends = ends.cumsum(0)
    groups = len(ends)
    starts = torch.cat([ends.new_zeros(1), ends[:-1]])
    if bool((ends < starts).any()) or int(ends[-1]) > len(x):
        raise refused(op, f"group ends {ends.tolist()} do not ascend to at most {len(x)} rows")
    tile = _tile(op, params)
    up = unpermuted(_batched(up, groups, bool_param(op, params, "transposeWeightUp", False)), tile)
    up_scale = unpermuted(up_scale.reshape(groups, -1), tile)
    down = _batched(down, groups, bool_param(op, params, "transposeWeightDown", True))
    down_scale = down_scale.reshape(groups, -1)
    y = torch.zeros(len(x), down.shape[2])
    for group, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        rows = slice(start, end)
        weights = up[group], up_scale[group], down[group], down_scale[group]
        if end > start:
            y[rows] = _block(x[rows], row_scale[rows].float(), *weights)
    bf16 = enum_param(op, params, "outputType", OutputType, 0) is OutputType.BF16
    output = arithmetic.round(y, torch.bfloat16 if bf16 else torch.float16)
    return Result((output,), undefined={0: torch.arange(len(x)).unsqueeze(1) >= ends[-1]})


@golden_op(
    GROUPED, infer_shape=infer_shape_grouped, kernel=KernelArithmetic(roundings=3, shared=True)
)
def compute_grouped(
    inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic
) -> Result:
    """Each group of rows through its own weights; rows past the last group are undefined.

    The first product is rounded to float16, the rest is float32. Inputs: int8 x ``[m, k]``; int8
    weight ``[g, k, n]``, NZ too, its columns permuted by tiles; scales ``[g, n]``, permuted alike;
    scales per row ``[m]``; group ends ``[g]``; int8 weight ``[g, n2, n / 2]``; scales ``[g, n2]``.
    """
    return _compute(GROUPED, inputs, params, arithmetic)


@golden_op(
    SINGLE, infer_shape=infer_shape_single, kernel=KernelArithmetic(roundings=3, shared=True)
)
def compute_single(
    inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic
) -> Result:
    """The same for one weight; there are no group ends."""
    return _compute(SINGLE, inputs, params, arithmetic)
