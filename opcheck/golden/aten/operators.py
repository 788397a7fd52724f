"""Aten operators as golden operators.

An operator that selects, copies or compares is run as it is, and its result must be equal. Any
other is run in the arithmetic that is asked for, in float64 above all, on widened inputs; shapes
and data types of the results are those that torch infers for the given inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table

from ait_llm.core import TensorDesc
from ait_llm.errors import OperationError
from ait_llm.opcheck.golden.aten.arithmetic import is_bounded, is_sum, kernel_of
from ait_llm.opcheck.golden.aten.calls import Call, build_call, find_operator
from ait_llm.opcheck.golden.aten.choices import other_choices
from ait_llm.opcheck.golden.aten.kinds import (
    has_statistics,
    is_exact,
    why_unchecked,
)
from ait_llm.opcheck.golden.aten.written_out import arguments, own_result, settled, written_out
from ait_llm.opcheck.golden.base import (
    Arithmetic,
    GoldenOp,
    KernelArithmetic,
    Params,
    Result,
    UnverifiableError,
)

# Set by ``recover``: terms of the longest sum, and how plain numbers are taken.
_TERMS = "terms"
_ROUNDED = "numbers"
_FAILURES = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)
# A dump names the sizes of what operators make; memory is reserved for no more than this.
_HALVES = (torch.float16, torch.bfloat16)
_MOST_ELEMENTS = 1 << 31


@lru_cache(maxsize=1024)
def aten_operator(type_name: str) -> GoldenOp | None:
    """The golden operator of ``aten.mm.default``; None where torch has no such operator."""
    func = find_operator(type_name)
    if func is None:
        return None
    return GoldenOp(
        name=type_name,
        compute=partial(compute_operator, type_name, func),
        infer_shape=partial(_no_shapes, type_name),
        recover=partial(_recover, type_name),
        alternatives=_alternatives,
        accepts=other_choices(type_name),
        kernel=partial(_kernel, type_name),
        rounds_last=True,
        plain=partial(_plain, type_name, func) if is_bounded(type_name) else None,
    )


def _no_shapes(
    type_name: str, inputs: Sequence[TensorDesc], params: Params
) -> tuple[TensorDesc, ...]:
    raise OperationError(f"{type_name} is torch's, which infers its shapes itself")


def _kernel(type_name: str, params: Params) -> KernelArithmetic:
    plain = {name.removeprefix("input_"): value for name, value in params.items()}
    return replace(kernel_of(type_name, plain), terms=int(params.get(_TERMS, 0)))


def _recover(
    type_name: str,
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor | None],
    params: Params,
) -> Params:
    """Adds the number of terms of the longest sum, as far as shapes tell."""
    read = max((tensor.numel() for tensor in inputs if tensor is not None), default=1)
    written = min((t.numel() for t in outputs if t is not None and t.numel()), default=1)
    windows = _windows(inputs) if "conv" in type_name else ()
    rows = (t.shape[-1] for t in inputs if t is not None and t.dim())
    return {**params, _TERMS: max(1, -(-read // written), *rows, *windows)}


def _windows(inputs: Sequence[Tensor | None]) -> Iterator[int]:
    """Elements that one place of the result of a convolution is made of: those of one filter."""
    for tensor in inputs[1:2]:
        if tensor is not None and tensor.dim():
            yield math.prod(tensor.shape[1:])


def _alternatives(params: Params) -> tuple[Params, ...]:
    """Kernels may round a plain number to the type of the tensors before they compute with it."""
    numbers = any(
        type(value) is float for name, value in params.items() if name.startswith("input_")
    )
    return ({**params, _ROUNDED: "rounded"},) if numbers else ()


def compute_operator(
    type_name: str, func: Any, inputs: Sequence[Tensor | None], params: Params, how: Arithmetic
) -> Result:
    """What an operator makes of its arguments in an arithmetic.

    Args:
        type_name: ``aten.mm.default``.
        func: the operator.
        inputs: the tensors among its arguments.
        params: their places, plain arguments, and how those are taken.
        how: the arithmetic.

    Raises:
        UnverifiableError: its arguments do not determine its result.
    """
    if reason := why_unchecked(type_name):
        raise UnverifiableError(f"operators like {type_name} {reason}")
    given = settled(func, build_call(func, inputs, params))
    like = _inferred(func, given) or own_result(type_name, func, given)
    if like is None:  # what depends on values, and what torch has no rule for
        like = list(_as_it_is(func, given).outputs)
    elif (count := sum(one.numel() for one in like)) > _MOST_ELEMENTS:
        raise UnverifiableError(f"{type_name} makes {count} elements of these arguments")
    if is_exact(type_name) or not _has_floats(given):
        return _as_it_is(func, given)
    if not any(_has_parts(one.dtype) for one in like):
        return _as_it_is(func, given)
    dtype = _widest(inputs, how)
    rounded = _narrowest(inputs) if params.get(_ROUNDED) else None
    wide = _converted(given, dtype, rounded)
    define = written_out(type_name)
    outputs = tensors_of(define(arguments(func, wide)) if define else _run(func, wide))
    if has_statistics(type_name):
        outputs = outputs[:1]
    pairs = list(zip(outputs, like, strict=False))
    outputs = [_finish(found, own, how) for found, own in pairs]
    return Result(tuple(outputs), dtypes=tuple(own.dtype for _, own in pairs))


def _plain(
    type_name: str, func: Any, inputs: Sequence[Tensor | None], params: Params
) -> Sequence[Tensor]:
    """What the operator itself makes of its inputs here.

    Few processors have products in 16 bits; those of float32, rounded once, take less time.
    """
    call = build_call(func, inputs, params)
    kinds = {one.dtype for one in inputs if one is not None and one.dtype.is_floating_point}
    half = next(iter(kinds)) if len(kinds) == 1 else None
    is_slow = half in _HALVES and is_sum(type_name) and not call.written
    with torch.no_grad():
        if is_slow:
            found = tensors_of(_run(func, _converted(call, torch.float32, None)))
            found = [one.to(half) for one in found if one.dtype.is_floating_point]
        else:
            found = list(_as_it_is(func, call).outputs)
    return found[:1] if has_statistics(type_name) else found


def _as_it_is(func: Any, call: Call) -> Result:
    """Run an operator on its own inputs; what it writes into is copied first."""
    outputs = run_call(func, call)
    return Result(tuple(outputs), dtypes=tuple(one.dtype for one in outputs))


def run_call(func: Any, call: Call) -> list[Tensor]:
    """The tensors that an operator makes; what it writes into is copied first.

    Raises:
        UnverifiableError: no CPU runs it in these types.
    """
    copies = {id(tensor): tensor.clone() for tensor in call.written}
    return tensors_of(_run(func, _mapped(call, lambda value: copies.get(id(value), value))))


def _run(func: Any, call: Call) -> Any:
    try:
        return func(*call.args, **call.kwargs)
    except NotImplementedError as error:
        own = decomposition_table.get(func)
        if own is None:
            raise UnverifiableError(f"{func} cannot be run on a CPU in float64") from error
        return own(*call.args, **call.kwargs)


def _inferred(func: Any, call: Call) -> list[Tensor] | None:
    """Results without values: their shapes and data types, as torch infers them; None if not."""
    meta = _mapped(call, lambda v: v.to("meta") if isinstance(v, Tensor) else v, device="meta")
    places = [one.name for one in func._schema.arguments]
    has_device = "device" in places and places.index("device") >= len(meta.args)
    kwargs = {**meta.kwargs, **({"device": torch.device("meta")} if has_device else {})}
    try:
        return tensors_of(func(*meta.args, **kwargs))
    except _FAILURES:
        return None


def _converted(call: Call, dtype: torch.dtype, rounded: torch.dtype | None) -> Call:
    """The same call in a wider type: copies of floating tensors, and names of floating types."""
    copies: dict[int, Tensor] = {}

    def convert(value: Any) -> Any:
        if isinstance(value, Tensor):
            if id(value) not in copies:
                wide = value.to(_as_wide(value.dtype, dtype)) if _has_parts(value.dtype) else value
                is_written = any(value is one for one in call.written)
                copies[id(value)] = wide.clone() if is_written and wide is value else wide
            return copies[id(value)]
        if isinstance(value, torch.dtype) and _has_parts(value):
            return _as_wide(value, dtype)
        if rounded is not None and type(value) is float:
            return float(torch.tensor(value, dtype=torch.float64).to(rounded))
        return value

    return _mapped(call, convert)


def _mapped(call: Call, change: Callable[[Any], Any], *, device: str = "cpu") -> Call:
    def walk(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [walk(one) for one in value]
        return torch.device(device) if isinstance(value, torch.device) else change(value)

    kwargs = {name: walk(value) for name, value in call.kwargs.items()}
    return Call(tuple(walk(value) for value in call.args), kwargs, call.written)


def _has_floats(call: Call) -> bool:
    values = [*call.args, *call.kwargs.values()]
    flat = [one for value in values for one in (value if isinstance(value, list) else [value])]
    return any(
        _has_parts(one.dtype)
        if isinstance(one, Tensor)
        else isinstance(one, float) or (isinstance(one, torch.dtype) and _has_parts(one))
        for one in flat
    )


def _has_parts(dtype: torch.dtype) -> bool:
    """True for floating numbers, and complex ones, which are two of them."""
    return dtype.is_floating_point or dtype.is_complex


def _as_wide(dtype: torch.dtype, wide: torch.dtype) -> torch.dtype:
    """A floating type, or the complex type of two of its numbers."""
    return wide.to_complex() if dtype.is_complex else wide


def _widest(inputs: Sequence[Tensor | None], how: Arithmetic) -> torch.dtype:
    """The type to compute in: that of the input that asks for most."""
    kinds = {t.dtype.to_real() for t in inputs if t is not None and _has_parts(t.dtype)}
    wide = {how.widen(torch.empty(0, dtype=kind)).dtype for kind in kinds}
    if not wide or any(kind.itemsize < 2 for kind in wide) or torch.float64 in wide:
        return torch.float64
    return torch.float32


def _narrowest(inputs: Sequence[Tensor | None]) -> torch.dtype | None:
    kinds = [t.dtype for t in inputs if t is not None and t.dtype.is_floating_point]
    return min(kinds, key=lambda kind: kind.itemsize, default=None)


def tensors_of(found: Any) -> list[Tensor]:
    """All tensors of a result, those of its lists too."""
    if isinstance(found, Tensor):
        # No format of dumps holds two halves as one number.
        return [found.to(torch.complex64) if found.dtype == torch.complex32 else found]
    items = found if isinstance(found, (list, tuple)) else ()
    return [tensor for item in items for tensor in tensors_of(item)]


def _finish(found: Tensor, like: Tensor, how: Arithmetic) -> Tensor:
    """A result in the type that it has, rounded or not."""
    if not _has_parts(like.dtype):
        return found.to(like.dtype)
    return how.round(found, like.dtype)
