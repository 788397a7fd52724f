"""Products with integers of 2, 4 or 8 bits in groups, as GPTQ and AutoAWQ keep them.

Only classes whose kernels leave the integers where the format has them: ExLlama and Marlin move
them when a model is loaded, and a capture does not tell how.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from ait_llm.formats.packed import AWQ_ORDER, unpack
from ait_llm.opcheck.golden.modules.quantised import Product
from ait_llm.opcheck.golden.modules.table import Compute, Given, module

_AS_STORED = "zeros that are stored as they are"
_STORED = ("qweight", "qzeros", "scales")
_HELPS = frozenset({"wf_unsqueeze_neg_one", "wf_unsqueeze_zero"})  # shifts of bits
_UNSAID = frozenset({None, False, ""})
_MORE = ("adapter", "online_full_had", "online_partial_had")  # done to the input or the result


@module("TorchLinear", "TorchQuantLinear", "TritonV2Linear", "TritonV2QuantLinear", weights=True)
def _gptq(given: Given) -> Compute | None:
    """``x . ((q - zero) scale)' + bias``; ``g_idx`` is the group of each input.

    GPTQ's files have zeros less one; loaders may add it, and a module does not say whether they
    did: right is what either gives.

    Source: the formats ``gptq`` and ``gptq_v2`` of GPTQModel.
    """
    bits = _bits(given, "bits")
    if bits is None or not _has(given, "g_idx"):
        return None
    rows, columns = _sizes(given)
    groups = given.weights["scales"][0]
    if (
        given.weights["qweight"] != (columns * bits // 32, rows)
        or given.weights["qzeros"] != (groups, rows * bits // 32)
        or given.weights["scales"] != (groups, rows)
        or given.weights.get("g_idx", (columns,)) != (columns,)
        or ("g_idx" not in given.weights and columns % groups)
    ):
        return None

    def weight(tensors: Mapping[str, Tensor], less: int) -> Tensor:
        scales = tensors["scales"]
        group = tensors.get("g_idx")
        if group is None:
            group = torch.arange(columns) // (columns // groups)
        data = _unpacked(tensors["qweight"], bits, 0)
        zero = _unpacked(tensors["qzeros"], bits, 1) + less
        return ((data - zero[group.long()]).to(scales.dtype) * scales[group.long()]).t()

    first = Product(given, lambda tensors: weight(tensors, 1))
    return replace(first, others={_AS_STORED: lambda tensors: weight(tensors, 0)})


@module("WQLinear_GEMM", "AwqGEMMLinear", "AwqTorchLinear", weights=True)
def _awq(given: Given) -> Compute | None:
    """The same with the eight of a word in an order of their own, along the results.

    Source: ``dequantize_gemm`` of AutoAWQ.
    """
    bits = _bits(given, "w_bit") or _bits(given, "bits")
    if bits != 4 or not _has(given):
        return None
    rows, columns = _sizes(given)
    groups = given.weights["scales"][0]
    if (
        given.weights["qweight"] != (columns, rows // 8)
        or given.weights["qzeros"] != (groups, rows // 8)
        or given.weights["scales"] != (groups, rows)
        or columns % groups
    ):
        return None

    def weight(tensors: Mapping[str, Tensor]) -> Tensor:
        scales, size = tensors["scales"], columns // groups
        data, zero = (_unpacked(tensors[name], 4, 1, AWQ_ORDER) for name in _STORED[:2])
        whole = data - zero.repeat_interleave(size, 0)
        return (whole.to(scales.dtype) * scales.repeat_interleave(size, 0)).t()

    return Product(given, weight)


def _bits(given: Given, name: str) -> int | None:
    bits = given.number(name)
    return int(bits) if bits in (2, 4, 8) else None


def _sizes(given: Given) -> tuple[int, int]:
    return int(given.number("out_features") or 0), int(given.number("in_features") or 0)


def _has(given: Given, *optional: str) -> bool:
    """True for one input, what is stored of the weight, and nothing that is done besides."""
    names = set(given.weights) - _HELPS - {"bias", *optional}
    return (
        len(given.inputs) == 1
        and names == set(_STORED)
        and all(len(given.weights[name]) == 2 for name in _STORED)
        and all(given.definition.get(name) in _UNSAID for name in _MORE)
        and given.definition.get("planar") in _UNSAID
    )


def _unpacked(words: Tensor, bits: int, axis: int, order: tuple[int, ...] = ()) -> Tensor:
    """Small integers ``int16`` out of 32-bit ones."""
    with _disable_current_modes():
        return torch.from_numpy(unpack(words.numpy(), bits, axis, order)).to(torch.int16)
