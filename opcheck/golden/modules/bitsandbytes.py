"""Products of bitsandbytes: weights of four bits with codes, or weights and inputs of eight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import _disable_current_modes

from ait_llm.dumps.stored_numbers import with_codes
from ait_llm.opcheck.golden.modules.quantised import Product, in_type
from ait_llm.opcheck.golden.modules.table import Compute, Given, module, only

_IN_16_BITS = "scales that are rounded to bfloat16"
_NESTED = ("nested_absmax", "nested_quant_map")
# What is multiplied in fewer bits than it has is rounded in a way that its result does not show.
_NARROWER = {
    torch.float32: ("float32", "bfloat16", "float16"),
    torch.bfloat16: ("bfloat16",),
    torch.float16: ("float16",),
}
_MOST = 127.0
_STEP = 2.0**-21  # relative: what a kernel in float32 may make of a quotient
# One over the square of 127, and how the library's own kernel for any device writes it.
_OF_BOTH = (1.0 / _MOST**2, 6.200124e-05)


@module("Linear4bit", "LinearNF4", "LinearFP4", weights=True)
def _of_four_bits(given: Given) -> Compute | None:
    """``x . (code[q] absmax)' + bias`` in ``compute_dtype``.

    On processors with AVX512-BF16 scales are rounded first, and inputs that have more bits, too.

    Source: ``Linear4bit.forward`` and ``backends`` of bitsandbytes 0.50.
    """
    rows, columns = _sizes(given)
    stored = next((name for name in given.weights if name.startswith("bitsandbytes__")), "")
    names = ["weight", "absmax", "quant_map", stored]
    own = str(given.definition.get("compute_dtype"))
    count = given.weights.get("absmax", (0,))[0]
    if (
        not stored
        or len(given.inputs) != 1
        or not given.has(names, ["bias", *_NESTED])
        or given.has([*names, _NESTED[0]], ["bias"])
        or given.has([*names, _NESTED[1]], ["bias"])
        or given.weights["quant_map"] != (16,)
        or not rows * columns
        or not count
        or rows * columns % count
    ):
        return None
    dtype = getattr(torch, own, None) if own != "None" else None
    given_type = given.types.get(given.inputs[0])
    if dtype is None:
        dtype = getattr(torch, str(given_type), None)
    if not isinstance(dtype, torch.dtype) or given_type not in _NARROWER.get(dtype, ()):
        return None
    rounds = bool(given.definition.get("support_avx512bf16_for_cpu"))
    if rounds and dtype is not torch.bfloat16:
        return None  # inputs may be rounded, too, where they have more bits

    def weight(tensors: Mapping[str, Tensor], *, rounded: bool = False) -> Tensor:
        arrays = {
            "data": tensors["weight"],
            "scale": tensors["absmax"],
            "code": tensors["quant_map"],
            "state": tensors[stored],
        }
        arrays |= {name: tensors[name] for name in _NESTED if name in tensors}
        with _disable_current_modes():
            # Widened scales and codes are the same numbers.
            known = {
                name: each.float() if each.is_floating_point() else each
                for name, each in arrays.items()
            }
            if rounded and "nested_absmax" not in known:
                known["scale"] = known["scale"].bfloat16().float()
            numpy = {name: each.numpy() for name, each in known.items()}
            real, _ = with_codes(numpy, (rows, columns))
            return torch.from_numpy(real)

    found = Product(given, weight, dtype=dtype)
    return (
        found
        if not rounds
        else replace(found, others={_IN_16_BITS: lambda tensors: weight(tensors, rounded=True)})
    )


@dataclass(frozen=True, slots=True)
class EightBits:
    """``x . weight' + bias`` with rows of both as int8; columns of large inputs as they are.

    Attributes:
        given: what is known of the module.
        threshold: from which on inputs are large; 0 if none are.
        factor: one over the square of 127.
    """

    given: Given
    threshold: float
    factor: float
    roundings: ClassVar[int] = 0

    def __call__(self, tensors: Mapping[str, Tensor]) -> Tensor:
        x, scales = only(tensors, self.given), tensors["SCB"]
        flat, weight = x.reshape(-1, x.shape[-1]), tensors["weight"]
        numbers, largest, columns, _ = self._rounded(flat)
        found = torch.from_numpy(numbers).to(scales.dtype) @ weight.to(scales.dtype).t()
        found = found * (torch.from_numpy(largest).to(scales.dtype) * scales) * self.factor
        if "bias" in tensors:
            dtype = getattr(torch, self.given.types[self.given.inputs[0]])
            found = found + in_type(tensors["bias"], dtype).to(found.dtype)
        found = found.to(x.dtype)
        if columns.size:
            large = torch.from_numpy(columns)
            part = (weight[:, large].to(scales.dtype) * scales[:, None] / _MOST).to(x.dtype)
            # Times one: a step of its own, after which there is a rounding.
            found = found * 1.0 + functional.linear(flat[:, large], part * 1.0)
        return found.reshape(*x.shape[:-1], -1)

    def unclear(self, tensors: Mapping[str, Tensor]) -> Tensor | None:
        """Rows in which an input lies between two integers."""
        x = only(tensors, self.given)
        *_, unsure = self._rounded(x.reshape(-1, x.shape[-1]))
        return torch.from_numpy(unsure).reshape(*x.shape[:-1], 1)

    def others(self) -> Sequence[Compute]:
        """With the other factor; and with inputs as they are, as CPUs compute it in training."""
        factors = [replace(self, factor=each) for each in _OF_BOTH if each != self.factor]
        return [*factors, self._plainly]

    def _plainly(self, tensors: Mapping[str, Tensor]) -> Tensor:
        x, bias = only(tensors, self.given), tensors.get("bias")
        scales = (tensors["SCB"] / _MOST).to(x.dtype)
        weight = tensors["weight"].to(x.dtype) * scales[:, None]
        if bias is not None:
            bias = in_type(bias, getattr(torch, self.given.types[self.given.inputs[0]]))
        return functional.linear(x, weight, None if bias is None else bias.to(x.dtype))

    def _rounded(
        self, x: Tensor
    ) -> tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.intp], NDArray[np.bool_]]:
        """Integers of each row, the largest of it, columns that are left out, rows not sure."""
        with _disable_current_modes(), np.errstate(divide="ignore", invalid="ignore"):
            values = x.detach().to(torch.float16).float().numpy()
            large = np.abs(values) >= self.threshold if self.threshold else values != values
            columns = large.any(0)
            largest = np.abs(np.where(large, 0, values)).max(-1, keepdims=True)
            scaled = np.where(columns, 0, values) * (np.float32(_MOST) / largest)
            scaled = np.nan_to_num(scaled, posinf=0, neginf=0)
            off = np.abs(np.abs(scaled - np.floor(scaled)) - 0.5)
            unsure = (off <= _STEP * np.abs(scaled)).any(-1, keepdims=True)
            unsure |= ~np.isfinite(values).all(-1, keepdims=True)
            return np.rint(scaled).astype(np.int8), largest, np.flatnonzero(columns), unsure


@module("Linear8bitLt", weights=True)
def _of_eight_bits(given: Given) -> Compute | None:
    """Rows as integers up to 127; columns with inputs from ``threshold`` on are multiplied apart.

    GPUs round the product to float16 first, so that a result in float32 has no one value.

    Source: ``MatMul8bitLt`` and ``backends/default`` of bitsandbytes 0.50.
    """
    threshold = given.number("state.threshold")
    if (
        threshold is None
        or given.types.get(given.inputs[0]) not in ("float16", "bfloat16")
        or given.definition.get("state.has_fp16_weights") is not False
        or not given.takes(["weight", "SCB"], ["bias"])
        or given.weights["weight"] != _sizes(given)
        or given.weights["SCB"] != _sizes(given)[:1]
    ):
        return None
    return EightBits(given, float(threshold), _OF_BOTH[0])


def _sizes(given: Given) -> tuple[int, int]:
    return int(given.number("out_features") or 0), int(given.number("in_features") or 0)
