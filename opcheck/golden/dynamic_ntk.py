"""DynamicNTK: sine and cosine tables with frequencies per sequence."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.core import DType, TensorDesc
from ait_llm.opcheck.golden.base import Arithmetic, Params, Result, golden_op
from ait_llm.opcheck.golden.shapes import (
    BF16,
    F16,
    F32,
    I32,
    check_count,
    check_dtypes,
    check_rank,
    check_shape,
)
from ait_llm.opcheck.golden.support import dtype_param, refused, tensor_at, torch_dtype

NAME = "DynamicNTKOperation"


def _output(params: Params) -> DType:
    dtype = dtype_param(NAME, params, "outputType")
    if dtype not in (F16, BF16):
        raise refused(NAME, f"parameter outputType is {dtype.code}; it takes 1 or 27")
    return dtype


def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
    """Two tables ``[T, D]``."""
    check_count(NAME, descs, 3)
    check_dtypes(NAME, descs, ((I32, F32, I32),))
    for index, rank in enumerate((1, 2, 1)):
        check_rank(NAME, descs, index, rank)
    check_shape(NAME, descs, 2, descs[1].shape[:1])
    table = TensorDesc(_output(params), (descs[0].shape[0], 2 * descs[1].shape[1]))
    return table, table


@golden_op(NAME, infer_shape=infer_shape)
def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
    """Sine, then cosine, of ``position * inverse_frequency``, both halves of a row alike.

    Angles are float32 products as on the device, at any arithmetic. Inputs: positions ``[T]``;
    inverse frequencies ``[B, D / 2]``; lengths ``[B]`` that say which tokens use which row.
    """
    positions, frequencies = tensor_at(NAME, inputs, 0), tensor_at(NAME, inputs, 1)
    lengths = tensor_at(NAME, inputs, 2).long()
    if int(lengths.sum()) != len(positions):
        raise refused(NAME, f"lengths {lengths.tolist()} do not add up to {len(positions)} tokens")
    angles = positions.float().unsqueeze(1) * frequencies.repeat_interleave(lengths, 0)
    doubled = torch.cat([angles, angles], dim=1)
    dtype = torch_dtype(_output(params))
    return Result(tuple(arithmetic.round(f(doubled), dtype) for f in (torch.sin, torch.cos)))
