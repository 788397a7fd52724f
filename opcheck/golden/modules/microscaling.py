"""Products of which both sides are rounded to MXFP4 or MXFP8 first, as torchao runs them.

Blocks of 32 share a power of two, which is chosen by the largest element of the block. The rounded
input follows from the input, so that the product can be computed again.

Source: OCP Microscaling Formats 1.0, section 6.3, and the modes of ``to_mx`` of torchao.
"""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import _disable_current_modes

from ait_llm.formats.packed import MX_BLOCK
from ait_llm.opcheck.golden.modules.table import Compute, Given, only

Single = NDArray[np.float32]
# Types of elements, with the exponent of the largest and the largest number.
_KINDS = {
    "float4_e2m1fn_x2": (ml_dtypes.float4_e2m1fn, 2, 6.0),
    "float8_e4m3fn": (ml_dtypes.float8_e4m3fn, 8, 448.0),
    "float8_e5m2": (ml_dtypes.float8_e5m2, 15, 57344.0),
}
_MODES = ("FLOOR", "RCEIL", "CEIL")
_INPUTS = "weight.act_quant_kwargs"


def product(given: Given) -> Compute | None:
    """``mx(x) . weight' + bias`` where it is known how ``x`` is rounded; else None."""
    known = given.definition
    kind, mode = known.get(f"{_INPUTS}.elem_dtype"), known.get(f"{_INPUTS}.scaling_mode")
    shape = given.number("out_features"), given.number("in_features")
    if (
        kind not in _KINDS
        or mode not in _MODES
        or known.get(f"{_INPUTS}.block_size") != MX_BLOCK
        or known.get("weight.block_size") != MX_BLOCK
        or None in shape
        or len(given.inputs) != 1
    ):
        return None
    rows, columns = (int(each or 0) for each in shape)
    names = set(given.weights) - {"bias"}
    if names != {"weight"} or not given.dequantised or given.weights["weight"] != (rows, columns):
        return None

    def compute(tensors: Mapping[str, Tensor]) -> Tensor:
        x = only(tensors, given)
        with _disable_current_modes():
            near = torch.from_numpy(rounded(x.detach().float().numpy(), str(kind), str(mode)))
        weight = tensors["weight"].to(x.dtype)
        return functional.linear(near.to(x.dtype), weight, tensors.get("bias"))

    return compute


def rounded(x: Single, kind: str, mode: str) -> Single:
    """Blocks along the last axis, each rounded with the scale that the mode chooses for it."""
    element, top, most = _KINDS[kind]
    blocks = x.reshape(*x.shape[:-1], -1, MX_BLOCK)
    largest = np.abs(blocks).max(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        if mode == "RCEIL":
            power = np.ceil(np.log2(largest.astype(np.float64) / most))
        else:
            mantissa, power = np.frexp(largest)
            power = power - 1.0 + (mantissa > 0.5) * (mode == "CEIL") - top
    scale = np.exp2(np.clip(np.where(largest > 0, power, -127.0), -127.0, 127.0))
    small = np.clip(blocks / scale.astype(np.float32), -most, most).astype(element)
    found: Single = (small.astype(np.float32) * scale.astype(np.float32)).reshape(x.shape)
    return found
