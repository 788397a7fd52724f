"""A function of torch as a golden operator: computed again in float64, step by step.

Modules, API calls and nodes of compilers compute with several operators of torch. Which ones, and
in which types they keep what they hand to one another, is seen when the function is run once as it
is. Each of these steps rounds its result to its type; a kernel that fuses them rounds less often.

The function then is run on widened inputs. For error bounds it is also run with every value on the
way moved by about what one rounding of it may do, so that what cancels in a later step counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ait_llm.core import TensorDesc
from ait_llm.errors import OperationError
from ait_llm.opcheck.golden.aten.kinds import is_attention
from ait_llm.opcheck.golden.base import (
    ATTENTION,
    FLOAT32_KERNEL,
    MOVES,
    Accepts,
    Arithmetic,
    GoldenOp,
    KernelArithmetic,
    Params,
    Result,
    UnverifiableError,
)
from ait_llm.opcheck.golden.function_steps import Function, Trace, tensors_in, traced
from ait_llm.opcheck.golden.function_wide import Wide

_APART = "rounded_apart"  # set by ``alternatives``: a product is rounded before its bias is added
_WIDE = "rounded_at_the_end"  # the same: a product of types chosen from outside is one of float32
# Products with cosines just below one are rounded down, by 0.4 units of 16 bits in the mean; of a
# table of rotary positions these are one in twenty.
_SOME_ALIKE = 1 / 8
_PRODUCTS = frozenset({"mm", "bmm", "addmm", "baddbmm"})
_MULTIPLY = _PRODUCTS | {"convolution", "linear", "mkldnn_linear", "mv", "dot"}
_WITH_BIAS = frozenset({"addmm", "baddbmm", "convolution", "linear", "mkldnn_linear"})


def golden_function(
    name: str,
    function: Function,
    *,
    accepts: Accepts | None = None,
    roundings: int = 0,
    short_sums: int = 0,
    in_place: bool = False,
) -> GoldenOp:
    """The golden operator of one call of a function.

    Args:
        name: of the operator in reports.
        function: what it computes.
        accepts: see :class:`GoldenOp`.
        roundings: how often kernels store values in 16 bits on the way beside the function's own
            steps, such as weights that were dequantised.
        short_sums: see :class:`KernelArithmetic`.
        in_place: its result is the memory of its first input, which may have been saved after it.
    """
    own = _Golden(name, function, (roundings, short_sums), in_place=in_place)
    return GoldenOp(
        name=name,
        compute=own.compute,
        infer_shape=own.no_shapes,
        recover=own.recover,
        alternatives=own.alternatives,
        accepts=accepts,
        kernel=own.kernel,
        plain=None if in_place else own.plain,
    )


class _Golden:
    """One call of a function; it is traced when it is first computed, on its own inputs."""

    def __init__(
        self, name: str, function: Function, declared: tuple[int, int], *, in_place: bool
    ) -> None:
        self._in_place = in_place
        self._name = name
        self._function = function
        self._roundings, self._short_sums = declared
        self._traces: dict[bool, Trace] = {}
        self._half: torch.dtype | None = None  # that autocast computes in

    def no_shapes(self, inputs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
        type_name = self._name
        raise OperationError(f"{type_name} is torch's, which infers its shapes itself")

    def recover(
        self, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor | None], params: Params
    ) -> Params:
        """The function is traced here, on the inputs that it had.

        Raises:
            UnverifiableError: what it made is of another type than its inputs and itself say, or
                its inputs are not those that it was called with.
        """
        if self._in_place and _is_same(inputs, outputs):
            raise UnverifiableError(
                "it writes to its first input, which the capture saved after it ran"
            )
        half = _half_of(outputs)
        try:
            trace = self._traced(inputs, params)
        except RuntimeError:  # a product of several types
            if half is None or not self._is_product_in(half, inputs):
                raise
            return params
        for made, mine in zip(trace.results, outputs, strict=False):
            if mine is None or made.dtype == mine.dtype or not mine.dtype.is_floating_point:
                continue
            if made.dtype.is_floating_point:
                if half is not None and self._is_product_in(half, inputs):
                    return params
                names = (str(one.dtype).removeprefix("torch.") for one in (mine, made))
                raise UnverifiableError(
                    "its result is {} where its inputs make {}: types were chosen from "
                    "outside, as by autocast".format(*names)
                )
        return params

    def _is_product_in(self, half: torch.dtype, inputs: Sequence[Tensor | None]) -> bool:
        """True if it only multiplies, which autocast does in 16 bits whatever it is given."""
        before, self._half = self._half, half
        traces, self._traces = self._traces, {}
        trace = self._traced(inputs, {})
        if trace.steps and all(step.name in _MULTIPLY for step in trace.steps):
            return True
        self._half, self._traces = before, traces
        return False

    def alternatives(self, params: Params) -> tuple[Params, ...]:
        trace = self._traces.get(False)
        steps = () if trace is None else trace.steps
        apart = any(step.name in _WITH_BIAS and step.half for step in steps)
        ways = [{_APART: True}] * apart + [{_WIDE: True}] * (self._half is not None)
        return tuple({**params, **way} for way in ways)

    def kernel(self, params: Params) -> KernelArithmetic:
        trace = self._traces.get(bool(params.get(_WIDE)))
        if trace is None:
            return FLOAT32_KERNEL
        kernel = _kernel_of(trace)
        apart = int(bool(params.get(_APART))) + self._roundings
        if kernel.moves:
            return kernel
        short = max(kernel.short_sums, self._short_sums)
        return replace(kernel, roundings=kernel.roundings + apart, short_sums=short)

    def plain(self, inputs: Sequence[Tensor | None], params: Params) -> Sequence[Tensor]:
        """What the function itself makes here; it is traced, which refuses what is too large."""
        trace = self._traced(inputs, params)
        if trace.reason:
            raise UnverifiableError(trace.reason)
        return [self._rounded(made) for made in trace.results]

    def compute(self, inputs: Sequence[Tensor | None], params: Params, how: Arithmetic) -> Result:
        trace = self._traced(inputs, params)
        inputs = self._read(inputs, params)
        if trace.reason:
            raise UnverifiableError(f"{self._name} calls operators that {trace.reason}")
        if not trace.steps:
            return Result(tuple(tensors_in(self._function(inputs))))
        dtype = _widest(inputs, how)
        wide = [_widened(tensor, dtype) for tensor in inputs]
        with Wide(trace, dtype, how), torch.no_grad():
            found = tensors_in(self._function(wide))
        if len(found) != len(trace.results):
            raise UnverifiableError(f"{self._name} makes other tensors in float64")
        outputs, undefined = [], {}
        for index, (own, like) in enumerate(zip(found, trace.results, strict=True)):
            if like.dtype.is_floating_point:
                outputs.append(how.round(own, self._rounded(like).dtype))
                continue
            outputs.append(own.to(like.dtype))
            if index in trace.chosen:
                undefined[index] = torch.ones((), dtype=torch.bool)
        return Result(tuple(outputs), undefined=undefined)

    def _traced(self, inputs: Sequence[Tensor | None], params: Params) -> Trace:
        """What it does in one of its ways, traced when that is asked for first."""
        way = bool(params.get(_WIDE))
        if way not in self._traces:
            self._traces[way] = traced(self._function, self._read(inputs, params))
        return self._traces[way]

    def _read(self, inputs: Sequence[Tensor | None], params: Params) -> Sequence[Tensor | None]:
        """The inputs as what computes reads them."""
        if self._half is None:
            return inputs
        dtype = torch.float32 if params.get(_WIDE) else self._half
        return [_widened(tensor, dtype) for tensor in inputs]

    def _rounded(self, made: Tensor) -> Tensor:
        is_kept = self._half is None or not made.dtype.is_floating_point
        return made if is_kept else made.to(self._half)


def _half_of(outputs: Sequence[Tensor | None]) -> torch.dtype | None:
    """The type of 16 bits in which all results are; None if they are not."""
    found = {one.dtype for one in outputs if one is not None and one.dtype.is_floating_point}
    (dtype,) = found if len(found) == 1 else (torch.float32,)
    return dtype if dtype in (torch.float16, torch.bfloat16) else None


def _is_same(inputs: Sequence[Tensor | None], outputs: Sequence[Tensor | None]) -> bool:
    first, made = inputs[0] if inputs else None, outputs[0] if outputs else None
    if first is None or made is None or first.shape != made.shape or first.dtype != made.dtype:
        return False
    return torch.equal(first, made)


def _kernel_of(trace: Trace) -> KernelArithmetic:
    """How correct kernels compute what a function computes step by step."""
    if not trace.steps:
        return MOVES
    terms = max(step.terms for step in trace.steps)
    if any(is_attention(step.type) for step in trace.steps):
        return replace(ATTENTION, terms=terms, alike=1.0)
    first, *others = trace.steps
    kernel = FLOAT32_KERNEL if others else replace(first.kernel, once=False)
    roundings = max(step.kernel.roundings for step in trace.steps) + int(trace.is_staged)
    unknown = any(step.kernel.unknown for step in trace.steps)
    short = max(step.kernel.short_sums for step in trace.steps)
    # What was rounded before a product enters all elements of a row.
    shared = trace.is_staged and any(step.name in _PRODUCTS for step in others)
    return replace(
        kernel,
        roundings=roundings,
        terms=terms,
        unknown=unknown,
        short_sums=short,
        shared=shared,
        alike=1.0 if shared else _SOME_ALIKE if trace.is_staged else 0.0,
    )


def _widest(inputs: Sequence[Tensor | None], how: Arithmetic) -> torch.dtype:
    """The type to compute in: that of the input that asks for most."""
    kinds = {t.dtype for t in inputs if t is not None and t.dtype.is_floating_point}
    wide = {how.widen(torch.empty(0, dtype=kind)).dtype for kind in kinds}
    if not wide or any(kind.itemsize < 2 for kind in wide) or torch.float64 in wide:
        return torch.float64
    return torch.float32


def _widened(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    if tensor is None or not tensor.dtype.is_floating_point:
        return tensor
    return tensor.to(dtype)
