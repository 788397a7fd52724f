"""Named faults: each is a way in which a kernel computes something else than it should.

A fault gets the call of one kernel and how to compute it; it returns the wrong result, or None
where it has no place to be. :mod:`ait_llm.hostatb.injection` says where faults are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ait_llm.core import FORMAT_FRACTAL_NZ, Registry
from ait_llm.hostatb.site import Site
from ait_llm.hostatb.spec import OperatorSpec
from ait_llm.opcheck.golden.base import DEVICE, Arithmetic, GoldenOp, Result

# Terms that a matrix unit adds up at once; a half-precision accumulator rounds after each.
ACCUMULATION_BLOCK = 16
TAIL = 16
ATTENTION = ("SelfAttentionOperation", "PagedAttentionOperation")


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One kernel about to be computed.

    Attributes:
        site: the operator and where it is.
        spec: how the library presents the operator.
        golden: what computes the kernel.
        inputs: the kernel's input tensors, None for an absent one.
        formats: their storage formats (ATB codes).
        param: parameters of the golden operator.
        arithmetic: precision of the computation.
    """

    site: Site
    spec: OperatorSpec
    golden: GoldenOp
    inputs: Sequence[Tensor | None]
    formats: Sequence[int]
    param: Mapping[str, Any]
    arithmetic: Arithmetic = DEVICE

    def input_index(self, name: str) -> int | None:
        """Index of the input of that IR name; None if the operator has none or it is absent."""
        names = self.spec.tensor_names(self.param)[0]
        index = names.index(name) if name in names else None
        return index if index is not None and self.inputs[index] is not None else None

    def with_param(self, **changes: Any) -> KernelCall:
        """The same call with other parameters."""
        return replace(self, param={**self.param, **changes})

    def with_inputs(self, changes: Mapping[int, Tensor]) -> KernelCall:
        """The same call with some inputs replaced."""
        inputs = list(self.inputs)
        for index, tensor in changes.items():
            inputs[index] = tensor
        return replace(self, inputs=inputs)

    def without_input(self, index: int) -> KernelCall:
        """The same call with an input left out."""
        keep = [place for place in range(len(self.inputs)) if place != index]
        return replace(
            self,
            inputs=[self.inputs[place] for place in keep],
            formats=[self.formats[place] for place in keep],
        )


Compute = Callable[[KernelCall], Result]


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault.

    Attributes:
        apply: the wrong result, or None where the fault does not apply.
        once_per_step: only the first kernel that it applies to in a step is changed.
    """

    apply: Callable[[KernelCall, Compute], Result | None]
    once_per_step: bool = False

    @property
    def summary(self) -> str:
        """What the fault does, in one line."""
        return (self.apply.__doc__ or "").strip().splitlines()[0]


faults: Registry[Fault] = Registry("fault")


def _fault(
    name: str, *, once_per_step: bool = False
) -> Callable[[Callable[[KernelCall, Compute], Result | None]], Callable[..., Result | None]]:
    def add(
        function: Callable[[KernelCall, Compute], Result | None],
    ) -> Callable[[KernelCall, Compute], Result | None]:
        faults.register(name)(Fault(function, once_per_step))
        return function

    return add


def _changed_first(result: Result, change: Callable[[Tensor], Tensor]) -> Result | None:
    """The result with its first output changed, if that is a floating tensor with elements."""
    first = result.outputs[0] if result.outputs else None
    if first is None or not first.is_floating_point() or first.numel() == 0:
        return None
    return replace(result, outputs=(change(first), *result.outputs[1:]))


@_fault("wrong_epsilon")
def wrong_epsilon(call: KernelCall, compute: Compute) -> Result | None:
    """RmsNorm and LayerNorm add an epsilon a thousand times too large."""
    sections = {
        key: {**value, "epsilon": value["epsilon"] * 1000}
        for key, value in call.param.items()
        if isinstance(value, Mapping) and "epsilon" in value
    }
    return compute(call.with_param(**sections)) if sections else None


@_fault("wrong_softmax_scale")
def wrong_softmax_scale(call: KernelCall, compute: Compute) -> Result | None:
    """Attention scales its scores by the square of the right factor (a half if that is 1)."""
    if call.golden.name not in ATTENTION:
        return None
    scale = call.param["qkScale"]
    return compute(call.with_param(qkScale=0.5 if scale == 1 else scale * scale))


@_fault("missing_mask")
def missing_mask(call: KernelCall, compute: Compute) -> Result | None:
    """Attention ignores its mask: every token sees all tokens of its sequence."""
    if call.golden.name not in ATTENTION or not call.param["maskType"]:
        return None
    index = call.input_index("mask")
    changes = {"maskType": 0}
    if "isTriuMask" in call.param:
        changes["isTriuMask"] = 0
    bare = call if index is None else call.without_input(index)
    return compute(bare.with_param(**changes))


@_fault("swapped_heads")
def swapped_heads(call: KernelCall, compute: Compute) -> Result | None:
    """Attention writes the results of its first two heads in each other's place."""
    heads = int(call.param.get("headNum", 0))
    if call.golden.name not in ATTENTION or heads < 2:
        return None

    def swap(output: Tensor) -> Tensor:
        split = output.reshape(*output.shape[: 1 if output.dim() < 4 else 2], heads, -1)
        order = [1, 0, *range(2, heads)]
        return split[..., order, :].reshape(output.shape)

    return _changed_first(compute(call), swap)


@_fault("stale_padding")
def stale_padding(call: KernelCall, compute: Compute) -> Result | None:
    """Paged attention reads one entry of its cache beyond each sequence's end."""
    if call.golden.name != "PagedAttentionOperation":
        return None
    lengths, table = call.input_index("contextLen"), call.input_index("blockTable")
    cache = call.inputs[1]
    if lengths is None or table is None or cache is None or "mask" in _names(call):
        return None
    given, blocks = call.inputs[lengths], call.inputs[table]
    if given is None or blocks is None:
        return None
    room = blocks.shape[-1] * cache.shape[1]
    longer = torch.where(given > 0, torch.clamp(given + 1, max=room), given)
    return None if torch.equal(longer, given) else compute(call.with_inputs({lengths: longer}))


def _names(call: KernelCall) -> tuple[str, ...]:
    return call.spec.tensor_names(call.param)[0]


@dataclass(frozen=True, slots=True)
class _Product:
    """A floating matrix product that can be cut along its reduction."""

    call: KernelCall
    x: Tensor
    weight: Tensor
    x_axis: int
    weight_axis: int

    @property
    def terms(self) -> int:
        return self.x.shape[self.x_axis]

    def part(self, start: int, end: int) -> KernelCall:
        """The product over terms ``[start, end)`` only, without bias."""
        x = self.x.narrow(self.x_axis, start, end - start)
        weight = self.weight.narrow(self.weight_axis, start, end - start)
        bare = replace(self.call, inputs=[x, weight], formats=self.call.formats[:2])
        return bare.with_param(hasBias=False)


def _product(call: KernelCall) -> _Product | None:
    """The matrix product of a kernel; None for other kernels, quantised and einsum products."""
    if call.golden.name != "LinearOperation" or call.param["matmulType"] or call.param["enAccum"]:
        return None
    x, weight = call.inputs[:2]
    if x is None or weight is None or not x.is_floating_point():
        return None
    if call.formats[1] == FORMAT_FRACTAL_NZ:
        return None
    return _Product(
        call,
        x,
        weight,
        -2 if call.param["transposeA"] else -1,
        -1 if call.param["transposeB"] else -2,
    )


def _with_bias(product: _Product, total: Tensor, dtype: torch.dtype) -> Result:
    bias = product.call.inputs[2] if product.call.param["hasBias"] else None
    if bias is not None:
        total = total.float() + bias.float()
    return Result((total.to(dtype),))


@_fault("half_accumulation")
def half_accumulation(call: KernelCall, compute: Compute) -> Result | None:
    """Matrix products keep their running sum in 16 bits (float16 for float32 inputs)."""
    product = _product(call)
    if product is None:
        return None
    half = product.x.dtype if product.x.element_size() == 2 else torch.float16
    exact = replace(call.arithmetic, round_output=False)
    total: Tensor | None = None
    for start in range(0, product.terms, ACCUMULATION_BLOCK):
        end = min(start + ACCUMULATION_BLOCK, product.terms)
        part = compute(replace(product.part(start, end), arithmetic=exact)).outputs[0]
        total = (part if total is None else total.to(part.dtype) + part).to(half)
    return None if total is None else _with_bias(product, total, product.x.dtype)


@_fault("dropped_tail")
def dropped_tail(call: KernelCall, compute: Compute) -> Result | None:
    """The last 16 terms of a matrix product, or elements of another result's rows, are left out."""
    product = _product(call)
    if product is not None and product.terms > TAIL:
        total = compute(product.part(0, product.terms - TAIL)).outputs[0]
        return _with_bias(product, total, product.x.dtype)

    def zero_tail(output: Tensor) -> Tensor:
        cut = output.clone()
        cut[..., -min(TAIL, max(1, cut.shape[-1] // 2)) :] = 0
        return cut

    return _changed_first(compute(call), zero_tail)


@_fault("scale_1pct")
def scale_1pct(call: KernelCall, compute: Compute) -> Result | None:
    """All elements of the first output are one percent too large."""
    return _changed_first(compute(call), lambda output: (output.float() * 1.01).to(output.dtype))


def _replace_element(output: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    changed = output.clone(memory_format=torch.contiguous_format)
    flat = changed.view(-1)
    flat[flat.numel() // 2] = change(flat[flat.numel() // 2])
    return changed


@_fault("wrong_element", once_per_step=True)
def wrong_element(call: KernelCall, compute: Compute) -> Result | None:
    """The middle element of the first output has the wrong sign (1 if it was 0)."""
    return _changed_first(
        compute(call),
        lambda output: _replace_element(output, lambda old: torch.where(old == 0, 1, -old)),
    )


@_fault("inf_at_step", once_per_step=True)
def inf_at_step(call: KernelCall, compute: Compute) -> Result | None:
    """The middle element of the first output is +Inf; name the step, as in inf_at_step:step=1."""
    return _changed_first(
        compute(call),
        lambda output: _replace_element(output, lambda old: torch.full_like(old, torch.inf)),
    )
