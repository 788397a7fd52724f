"""Faults of kernels, and legal ways to compute, each for every operator that it can happen to.

A fault gets one run and returns what a faulty kernel would have produced; None where it has no
place to be. Where the result is the right one all the same, it is no fault and is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ait_llm.core import Registry
from ait_llm.opcheck.golden import DEVICE, EXACT, GOLDEN, Arithmetic, GoldenOp, Result
from ait_llm.opcheck.selftest import kernels
from ait_llm.opcheck.selftest.cases import Built
from ait_llm.opcheck.selftest.emulations import IN_BFLOAT16, as_array, as_tensor, emulations

_TAIL = 16


@dataclass(frozen=True, eq=False)
class Run:
    """One operator with inputs and parameters.

    Attributes:
        golden: the operator.
        built: inputs and parameters.
        dtype: of the floating inputs.
        device: what a correct kernel in plain float32 produces.
    """

    golden: GoldenOp
    built: Built
    dtype: torch.dtype
    device: Result

    def compute(
        self,
        *,
        arithmetic: Arithmetic = DEVICE,
        params: Mapping[str, Any] | None = None,
        inputs: Mapping[int, Tensor] | None = None,
        by: kernels.Kernels | None = None,
    ) -> Result:
        """The result with some things changed."""
        given = list(self.built.inputs)
        for index, tensor in (inputs or {}).items():
            given[index] = tensor
        own = self.built.params if params is None else params
        built = replace(self.built, inputs=given, params=own)

        def compute() -> Result:
            return built.compute(self.golden, arithmetic)

        return compute() if by is None else by.run(compute)

    @property
    def half(self) -> torch.dtype:
        """The 16-bit type of a kernel that saves bits."""
        return self.dtype if self.dtype.itemsize == 2 else torch.float16


Produce = Callable[[Run], Result | None]
faults: Registry[Produce] = Registry("fault")
variations: Registry[Produce] = Registry("variation")


def summary(produce: Produce) -> str:
    """What a fault or variation is, in one line."""
    return (produce.__doc__ or "").strip().splitlines()[0]


# ---- legal variations -----------------------------------------------------------------------


@variations.register("as computed")
def device(run: Run) -> Result | None:
    """float32 sums in torch's order, rounded once."""
    return run.device


@variations.register("correctly rounded")
def correctly_rounded(run: Run) -> Result | None:
    """float64 sums, rounded once."""
    return run.compute(arithmetic=replace(EXACT, round_output=True))


@variations.register("as golden")
def golden(run: Run) -> Result | None:
    """The golden result itself."""
    return run.compute(arithmetic=GOLDEN)


@variations.register("other order")
def other_order(run: Run) -> Result | None:
    """float32 sums from the last term to the first, even ones before odd ones."""
    return run.compute(by=kernels.reordered())


@variations.register("split-K")
def split_k(run: Run) -> Result | None:
    """float32 sums of four parts, added up at the end."""
    return run.compute(by=kernels.split_k())


@variations.register("one by one")
def one_by_one(run: Run) -> Result | None:
    """float32 sums of one term after the other, products rounded."""
    return run.compute(by=kernels.sequential(fused=False))


@variations.register("fused multiply-add")
def fused_multiply_add(run: Run) -> Result | None:
    """float32 sums of one term after the other, products not rounded."""
    return run.compute(by=kernels.sequential(fused=True))


@variations.register("16-bit probabilities")
def half_probabilities(run: Run) -> Result | None:
    """Attention stores its probabilities in 16 bits, where the contract permits it."""
    if not run.golden.kernel(run.built.params).shared or run.dtype.itemsize != 2:
        return None
    return run.compute(by=kernels.half_probabilities(run.dtype))


@variations.register("16-bit scores")
def half_scores(run: Run) -> Result | None:
    """Attention stores its scores, too, in 16 bits, where the contract permits it."""
    kernel = run.golden.kernel(run.built.params)
    if not kernel.shared or kernel.in_place or run.dtype.itemsize != 2:
        return None
    return run.compute(by=kernels.half_probabilities(run.dtype, scores=True))


@variations.register("other scaling")
def other_scaling(run: Run) -> Result | None:
    """float32 scales of int8 tensors are one spacing off, as multiplied in another order."""
    first = run.built.inputs[0]
    if first is None or first.dtype != torch.int8:
        return None
    scales = {
        index: torch.nextafter(tensor, torch.full_like(tensor, torch.inf))
        for index, tensor in enumerate(run.built.inputs)
        if tensor is not None and tensor.dtype == torch.float32
    }
    return run.compute(inputs=scales) if scales else None


@variations.register("16-bit exchange")
def half_exchange(run: Run) -> Result | None:
    """Ranks add up one after the other, each sum in 16 bits, where the contract permits it."""
    ranks = len(run.built.ranks)
    if not ranks or not run.golden.kernel(run.built.params).roundings or run.dtype.itemsize != 2:
        return None
    return run.compute(by=kernels.half_exchange(run.dtype, ranks))


@variations.register("kernel of the device")
def device_kernel(run: Run) -> Result | None:
    """The device's own kernel, step by step in its types, as its public sources have it."""
    emulate = emulations.get(run.golden.name)
    if emulate is None or run.built.ranks:
        return None
    if run.dtype == torch.bfloat16 and run.golden.name not in IN_BFLOAT16:
        return None
    found = emulate([as_array(one) for one in run.built.inputs], run.built.params)
    if found is None:
        return None
    outputs = tuple(
        as_tensor(one).reshape(right.shape)
        for one, right in zip(found, run.device.outputs, strict=True)
    )
    return replace(run.device, outputs=outputs)


# ---- faults of the whole output -------------------------------------------------------------


def _changed(run: Run, change: Callable[[Tensor], Tensor | None]) -> Result | None:
    """The result with its first output changed; the first overwritten input if there is none."""
    if run.device.outputs:
        new = change(run.device.outputs[0])
        if new is None:
            return None
        kept = run.device.outputs[1:]
        updated = {
            index: new if tensor is run.device.outputs[0] else tensor
            for index, tensor in run.device.updated_inputs.items()
        }
        return replace(run.device, outputs=(new, *kept), updated_inputs=updated)
    for index, tensor in run.device.updated_inputs.items():
        new = change(tensor)
        updated = dict(run.device.updated_inputs)
        return None if new is None else replace(run.device, updated_inputs={**updated, index: new})
    return None


@faults.register("zeros")
def zeros(run: Run) -> Result | None:
    """The output was never written: all zeros."""
    return _changed(run, torch.zeros_like)


@faults.register("one wrong element")
def one_wrong_element(run: Run) -> Result | None:
    """The element of median size has the wrong sign; a whole number is one off, of int8 two."""

    def change(output: Tensor) -> Tensor | None:
        if not output.numel():
            return None
        wrong = output.clone(memory_format=torch.contiguous_format)
        flat = wrong.view(-1)
        place = int(flat.double().abs().argsort(stable=True)[flat.numel() // 2])
        if output.dtype == torch.bool:
            flat[place] = ~flat[place]
        elif output.is_floating_point():
            flat[place] = -flat[place] if flat[place] != 0 else 1
        elif output.dtype == torch.int8:
            flat[place] += 2 if flat[place] < 100 else -2
        else:
            flat[place] += 1
        return wrong

    return _changed(run, change)


@faults.register("1 % scale")
def scale(run: Run) -> Result | None:
    """Every element is one percent too large; before it is quantised, where it is."""

    def change(output: Tensor) -> Tensor | None:
        if output.is_floating_point():
            return (output.double() * 1.01).to(output.dtype)
        return None

    first = run.built.inputs[0]
    if run.golden.kernel(run.built.params).quantises and first is not None:
        if run.device.outputs[0].dtype != torch.int8 or not first.is_floating_point():
            return _changed(run, change)
        if run.built.scaled is None:
            return run.compute(inputs={0: (first.double() * 1.01).to(first.dtype)})
        weight = run.built.inputs[run.built.scaled]
        assert weight is not None
        return run.compute(inputs={run.built.scaled: (weight.double() * 1.01).to(weight.dtype)})

    return _changed(run, change)


@faults.register("swapped rows")
def swapped_rows(run: Run) -> Result | None:
    """The first two rows are in each other's place; of a vector, the halves."""

    def change(output: Tensor) -> Tensor | None:
        if output.dim() < 2:
            return output.roll(output.numel() // 2) if output.numel() > 1 else None
        rows = output.reshape(-1, output.shape[-1])
        if len(rows) < 2:
            return None
        return torch.cat([rows[1:2], rows[:1], rows[2:]]).reshape(output.shape)

    return _changed(run, change)


@faults.register("swapped heads")
def swapped_heads(run: Run) -> Result | None:
    """The first two heads of every row are in each other's place."""
    heads = run.built.heads
    if heads < 2:
        return None

    def change(output: Tensor) -> Tensor | None:
        split = output.reshape(output.shape[0], heads, -1)
        order = [1, 0, *range(2, heads)]
        return split[:, order].reshape(output.shape)

    return _changed(run, change)


@faults.register("tail not written")
def unwritten_tail(run: Run) -> Result | None:
    """The last 16 elements of each row, at most half, are zero."""

    def change(output: Tensor) -> Tensor | None:
        if not output.dim() or not output.numel():
            return None
        cut = output.clone()
        cut[..., -min(_TAIL, max(1, cut.shape[-1] // 2)) :] = 0
        return cut

    return _changed(run, change)


@faults.register("stale padding")
def stale_padding(run: Run) -> Result | None:
    """One entry beyond a cached sequence's end is read; elsewhere the last row holds older data."""
    index = run.built.lengths
    if index is not None:
        lengths = run.built.inputs[index]
        assert lengths is not None
        longer = torch.clamp(lengths + 1, max=run.built.room)
        return run.compute(inputs={index: longer})

    def change(output: Tensor) -> Tensor | None:
        if output.dim() < 2 or output.reshape(-1, output.shape[-1]).shape[0] < 3:
            return None
        rows = output.reshape(-1, output.shape[-1])
        return torch.cat([rows[:-1], rows[-3:-2]]).reshape(output.shape)

    return _changed(run, change)


@faults.register("NaN in padding")
def nan_in_padding(run: Run) -> Result | None:
    """The last element of the last row is NaN."""

    def change(output: Tensor) -> Tensor | None:
        if not output.is_floating_point() or not output.numel():
            return None
        wrong = output.clone(memory_format=torch.contiguous_format)
        wrong.view(-1)[-1] = torch.nan
        return wrong

    return _changed(run, change)


# ---- faults of the computation --------------------------------------------------------------


@faults.register("dropped reduction tail")
def dropped_tail(run: Run) -> Result | None:
    """Sums leave out their last 16 terms, short ones their last quarter."""
    return run.compute(by=kernels.dropped_tail())


@faults.register("half-precision accumulation")
def half_accumulation(run: Run) -> Result | None:
    """Sums are kept in 16 bits (float16 for float32 inputs), where the contract forbids it."""
    kernel = run.golden.kernel(run.built.params)
    if kernel.unknown or (kernel.half_sums and run.dtype == torch.float16):
        return None
    return run.compute(by=kernels.half_accumulation(run.half))


@faults.register("missing rank")
def missing_rank(run: Run) -> Result | None:
    """A collective operator reads zeros in place of the last other rank's tensor."""
    built = run.built
    if not built.ranks:
        return None
    ranks = list(built.ranks)
    last = max(number for number in range(len(ranks)) if number != built.rank)
    inputs, params = ranks[last]
    assert inputs[0] is not None
    ranks[last] = ([torch.zeros_like(inputs[0]), *inputs[1:]], params)
    return replace(built, ranks=ranks).compute(run.golden, DEVICE)


@faults.register("wrong epsilon")
def wrong_epsilon(run: Run) -> Result | None:
    """A normalisation adds an epsilon a thousand times too large."""
    params = _with_epsilon(run.built.params)
    return None if params == run.built.params else run.compute(params=params)


def _with_epsilon(params: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _with_epsilon(value)
        if isinstance(value, Mapping)
        else (value * 1000 if key == "epsilon" else value)
        for key, value in params.items()
    }


@faults.register("wrong softmax scale")
def wrong_softmax_scale(run: Run) -> Result | None:
    """Attention scales its scores by the square of the right factor."""
    own = run.built.params
    if "qkScale" not in own:
        return None
    return run.compute(params={**own, "qkScale": own["qkScale"] ** 2})


@faults.register("off-by-one mask")
def off_by_one_mask(run: Run) -> Result | None:
    """The mask is read one column too early: each row sees one key more or less."""
    index = run.built.mask
    if index is None:
        return None
    mask = run.built.inputs[index]
    assert mask is not None
    return run.compute(inputs={index: torch.cat([mask[..., :1], mask[..., :-1]], dim=-1)})
