"""Products with weights that are stored in fewer bits than they are multiplied in.

A weight arrives as the real numbers that it stands for, or as what is stored of it. What a capture
does not tell is whether inputs are quantised, too, and how; where it is not known that they are
not, nothing is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import _disable_current_modes

from ait_llm.opcheck.golden.aten.quantised_products import MIDDLE, unpacked_int4
from ait_llm.opcheck.golden.base import Arithmetic, GoldenOp, Params, Result
from ait_llm.opcheck.golden.functions import golden_function
from ait_llm.opcheck.golden.modules.table import Compute, Given, module, only

# Weights of torchao that tell by an attribute how inputs are quantised.
_TELLING = frozenset({"Float8Tensor", "Int8Tensor", "IntxUnpackedToInt8Tensor"})
_OF_INPUTS = ("act_quant_kwargs", "act_pre_scale", "activation_quantization")
_SCALES = frozenset({"input_scale", "output_scale"})  # of quanto, for inputs that are quantised
_READY = "weight as it is multiplied"
_ROUNDED = "the weight is rounded before it is multiplied"


def weight_only(given: Given) -> bool:
    """True if only the weight of a ``Linear`` is quantised."""
    return given.definition.get("weight.type") in _TELLING and all(
        given.definition.get(f"weight.{name}") is None for name in _OF_INPUTS
    )


Weight = Callable[[Mapping[str, Tensor]], Tensor]
"""Makes a weight of what is stored of it."""


@dataclass(frozen=True, slots=True)
class Product:
    """``x @ weight.T + bias`` with a weight that is made of what is stored of it.

    Attributes:
        given: what is known of the module.
        weight: makes it.
        others: make what else it may be, by words for how what is stored is read then.
        dtype: of the product, and of the bias that was saved in another; None for that of ``x``.
    """

    given: Given
    weight: Weight
    others: Mapping[str, Weight] = field(default_factory=dict)
    dtype: torch.dtype | None = None
    roundings: ClassVar[int] = 1

    def __call__(self, tensors: Mapping[str, Tensor]) -> Tensor:
        given, bias = only(tensors, self.given), tensors.get("bias")
        x = given if self.dtype is None else given.to(self.dtype)
        if bias is not None and self.dtype is not None:
            bias = in_type(bias, self.dtype)
        bias = None if bias is None else bias.to(x.dtype)
        return functional.linear(x, self.weight(tensors).to(x.dtype), bias).to(given.dtype)


def in_type(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Numbers of a type, however wide they are kept: what a module was given rounded."""
    with _disable_current_modes():
        return tensor.detach().to(dtype).to(torch.float64)


def product(given: Given) -> Product:
    """The product with a weight that is given as real numbers."""
    return Product(given, lambda t: t["weight"])


def rounded_first(golden: GoldenOp, compute: Product, names: Sequence[str]) -> GoldenOp:
    """The same where the weight may be rounded to the type of ``x`` before it is multiplied.

    Weights of few bits have few values, so that all that are equal are rounded alike: what is left
    of it in a sum is no chance. Other weights that what is stored may mean are alternatives, too.

    Args:
        golden: computes with the weight as it is.
        compute: what it computes.
        names: of its inputs.
    """

    def alternatives(params: Params) -> tuple[Params, ...]:
        ways = [{_ROUNDED: True}]
        for words in compute.others:
            ways += [{words: True}, {words: True, _ROUNDED: True}]
        return (*golden.alternatives(params), *({**params, **way} for way in ways))

    def run(inputs: Sequence[Tensor | None], params: Params, how: Arithmetic) -> Result:
        other = next((weight for words, weight in compute.others.items() if words in params), None)
        if other is None and _ROUNDED not in params:
            return golden.compute(inputs, params, how)
        chosen = replace(compute, weight=other or compute.weight, others={})
        tensors = _named(names, inputs)
        if _ROUNDED in params:
            tensors[_READY] = chosen.weight(tensors)
            chosen = replace(chosen, weight=lambda stored: stored[_READY])
        again = golden_function(golden.name, partial(_called, chosen, list(tensors)))
        return again.compute(list(tensors.values()), params, how)

    return replace(golden, compute=run, alternatives=alternatives)


def _named(names: Sequence[str], inputs: Sequence[Tensor | None]) -> dict[str, Tensor]:
    return {name: one for name, one in zip(names, inputs, strict=True) if one is not None}


def _called(compute: Product, names: Sequence[str], inputs: Sequence[Tensor | None]) -> Tensor:
    return compute(_named(names, inputs))


@module("QLinear", weights=True)
def _of_quanto(given: Given) -> Compute | None:
    """The product of ``optimum.quanto`` with a weight that was frozen and inputs as they are."""
    sizes = given.number("out_features"), given.number("in_features")
    names = set(given.weights) - _SCALES
    has_bias = given.definition.get("bias")
    if (
        len(given.inputs) != 1
        or "activation_qtype" not in given.definition
        or given.definition["activation_qtype"] is not None
        or has_bias is not ("bias" in names)
        or None in sizes
    ):
        return None
    names.discard("bias")
    if names == {"weight"} and "weight" in given.dequantised and given.weights["weight"] == sizes:
        return product(given)
    if names == {"weight_data_data", "weight_scale", "weight_shift"}:
        return _of_groups(given)
    if names == {"weight_data_data", "weight_scale_shift"}:
        return _of_packed_groups(given)
    return None


def _of_groups(given: Given) -> Compute | None:
    """Two or four bits in a byte: the first of the groups are in the low ones.

    Source: ``PackedTensor`` and ``QBitsTensor`` of optimum-quanto, ``scale * data - shift``.
    """
    rows, columns = int(given.number("out_features") or 0), int(given.number("in_features") or 0)
    bytes_of_rows, group = given.weights["weight_data_data"]
    groups = given.weights["weight_scale"][0]
    in_a_byte = groups // max(bytes_of_rows, 1)
    if in_a_byte not in (2, 4) or (groups, groups * group) != (
        in_a_byte * bytes_of_rows,
        rows * columns,
    ):
        return None
    bits = 8 // in_a_byte

    def weight(tensors: Mapping[str, Tensor]) -> Tensor:
        packed, shift, scale = (
            tensors[f"weight_{name}"] for name in ("data_data", "shift", "scale")
        )
        parts = [packed >> bits * place & (1 << bits) - 1 for place in range(in_a_byte)]
        data = torch.cat(parts).to(scale.dtype)
        real = data * scale - shift if shift.is_floating_point() else (data - shift) * scale
        return real.reshape(rows, columns)

    return Product(given, weight)


def _of_packed_groups(given: Given) -> Compute | None:
    """As the four-bit kernel of torch for CPUs keeps them; others have a third and fourth dim.

    What it stores where is its own affair, so it is asked: the product with the identity.
    """
    rows, columns = int(given.number("out_features") or 0), int(given.number("in_features") or 0)
    groups = given.weights["weight_scale_shift"][0]
    if given.weights["weight_data_data"] != (rows, columns // 2) or columns % max(groups, 1):
        return None

    def weight(tensors: Mapping[str, Tensor]) -> Tensor:
        both = tensors["weight_scale_shift"]
        with _disable_current_modes():
            data = unpacked_int4(tensors["weight_data_data"], rows, columns)
        scale, shift = both.permute(2, 1, 0).repeat_interleave(columns // groups, dim=-1)
        real: Tensor = (data.to(both.dtype) - MIDDLE) * scale + shift
        return real

    return Product(given, weight)
