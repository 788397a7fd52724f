"""A function of torch as a golden operator: computed again in float64, step by step.

Modules, API calls and nodes of compilers compute with several operators of torch. Which ones, and
in which types they keep what they hand to one another, is seen when the function is run once as it
is. Each of these steps rounds its result to its type; a kernel that fuses them rounds less often.

The function then is run on widened inputs. For error bounds it is also run with every value on the
way moved by about what one rounding of it may do, so that what cancels in a later step counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ait_llm.core import TensorDesc
from ait_llm.errors import OperationError
from ait_llm.opcheck.golden.aten.arithmetic import kernel_of
from ait_llm.opcheck.golden.aten.kinds import base_name, is_attention, why_unchecked
from ait_llm.opcheck.golden.aten.kinds import is_exact as moves
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

Function = Callable[[Sequence[Tensor | None]], Any]
"""Makes tensors of tensors; it may use nothing else and must leave its inputs as they are."""

_APART = "rounded_apart"  # set by ``alternatives``: a product is rounded before its bias is added
_WITH_BIAS = frozenset({"addmm", "baddbmm", "convolution", "linear", "mkldnn_linear"})
_NEIGHBOUR = 1.44  # root mean square of the distance to a neighbour, in units of the type
_FLOAT32_STEP = 2.0**-20  # some roundings of float32, where the bound is that of 16 bits
_SEED = 20251122
_MOST_ELEMENTS = 1 << 31
_AHEAD = 8  # steps that a wider type may leave out
# They hand out memory that a later operator fills.
_RESERVES = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})


@dataclass(slots=True)
class _Step:
    """One operator that a function called and that computes something.

    Attributes:
        name: ``mm`` of ``aten.mm.default``.
        type: of the operator, with library and overload.
        half: type of 16 bits to which its result is rounded, None if none.
        ends: its result is one of the function's, and no other step reads it.
        terms: of its longest sum.
        kernel: how correct ones of it compute.
        plain: its arguments that are no tensors, by their places or keywords.
    """

    name: str
    type: str
    half: torch.dtype | None
    terms: int
    kernel: KernelArithmetic
    plain: Mapping[str, Any]
    ends: bool = False


@dataclass(frozen=True, eq=False)
class _Trace:
    """What a function did with its own inputs.

    Attributes:
        steps: what computes, in order; copies, views and conversions are none.
        results: what it returned, in the types that it has.
        chosen: results that are no floats and that rounded values decided, by number.
        narrows: it stored an input in fewer bits before it used it.
        reason: why its result does not follow from its inputs; empty if it does.
    """

    steps: Sequence[_Step]
    results: Sequence[Tensor]
    chosen: frozenset[int]
    narrows: bool
    reason: str

    @property
    def is_staged(self) -> bool:
        """True if it keeps values in 16 bits on the way."""
        return self.narrows or any(step.half is not None and not step.ends for step in self.steps)


def golden_function(
    name: str,
    function: Function,
    *,
    accepts: Accepts | None = None,
    roundings: int = 0,
    in_place: bool = False,
) -> GoldenOp:
    """The golden operator of one call of a function.

    Args:
        name: of the operator in reports.
        function: what it computes.
        accepts: see :class:`GoldenOp`.
        roundings: how often kernels store values in 16 bits on the way beside the function's own
            steps, such as weights that were dequantised.
        in_place: its result is the memory of its first input, which may have been saved after it.
    """
    own = _Golden(name, function, roundings, in_place=in_place)
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

    def __init__(self, name: str, function: Function, roundings: int, *, in_place: bool) -> None:
        self._in_place = in_place
        self._name = name
        self._function = function
        self._roundings = roundings
        self._trace: _Trace | None = None

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
        for made, mine in zip(self._traced(inputs).results, outputs, strict=False):
            if mine is None or made.dtype == mine.dtype or not mine.dtype.is_floating_point:
                continue
            if made.dtype.is_floating_point:
                names = (str(one.dtype).removeprefix("torch.") for one in (mine, made))
                raise UnverifiableError(
                    "its result is {} where its inputs make {}: types were chosen from "
                    "outside, as by autocast".format(*names)
                )
        return params

    def alternatives(self, params: Params) -> tuple[Params, ...]:
        steps = () if self._trace is None else self._trace.steps
        apart = any(step.name in _WITH_BIAS and step.half for step in steps)
        return ({**params, _APART: True},) if apart else ()

    def kernel(self, params: Params) -> KernelArithmetic:
        if self._trace is None:
            return FLOAT32_KERNEL
        kernel = _kernel_of(self._trace)
        apart = int(bool(params.get(_APART))) + self._roundings
        return kernel if kernel.moves else replace(kernel, roundings=kernel.roundings + apart)

    def plain(self, inputs: Sequence[Tensor | None], params: Params) -> Sequence[Tensor]:
        """What the function itself makes here; it is traced, which refuses what is too large."""
        trace = self._traced(inputs)
        if trace.reason:
            raise UnverifiableError(trace.reason)
        return trace.results

    def compute(self, inputs: Sequence[Tensor | None], params: Params, how: Arithmetic) -> Result:
        trace = self._traced(inputs)
        if trace.reason:
            raise UnverifiableError(f"{self._name} calls operators that {trace.reason}")
        if not trace.steps:
            return Result(tuple(_tensors(self._function(inputs))))
        dtype = _widest(inputs, how)
        wide = [_widened(tensor, dtype) for tensor in inputs]
        with _Wide(trace, dtype, how), torch.no_grad():
            found = _tensors(self._function(wide))
        if len(found) != len(trace.results):
            raise UnverifiableError(f"{self._name} makes other tensors in float64")
        outputs, undefined = [], {}
        for index, (own, like) in enumerate(zip(found, trace.results, strict=True)):
            if like.dtype.is_floating_point:
                outputs.append(how.round(own, like.dtype))
                continue
            outputs.append(own.to(like.dtype))
            if index in trace.chosen:
                undefined[index] = torch.ones((), dtype=torch.bool)
        return Result(tuple(outputs), undefined=undefined)

    def _traced(self, inputs: Sequence[Tensor | None]) -> _Trace:
        if self._trace is None:
            self._trace = _traced(self._function, inputs)
        return self._trace


def _is_same(inputs: Sequence[Tensor | None], outputs: Sequence[Tensor | None]) -> bool:
    first, made = inputs[0] if inputs else None, outputs[0] if outputs else None
    if first is None or made is None or first.shape != made.shape or first.dtype != made.dtype:
        return False
    return torch.equal(first, made)


def _kernel_of(trace: _Trace) -> KernelArithmetic:
    """How correct kernels compute what a function computes step by step."""
    if not trace.steps:
        return MOVES
    terms = max(step.terms for step in trace.steps)
    if any(is_attention(step.type) for step in trace.steps):
        return replace(ATTENTION, terms=terms)
    first, *others = trace.steps
    kernel = FLOAT32_KERNEL if others else replace(first.kernel, once=False)
    roundings = max(step.kernel.roundings for step in trace.steps) + int(trace.is_staged)
    unknown = any(step.kernel.unknown for step in trace.steps)
    return replace(kernel, roundings=roundings, terms=terms, unknown=unknown)


def _traced(function: Function, inputs: Sequence[Tensor | None]) -> _Trace:
    """Run a function once on the CPU as it is.

    Raises:
        UnverifiableError: the CPU does not have it in these types.
    """
    watcher = _Watcher()
    try:
        with watcher, torch.no_grad():
            results = _tensors(function(inputs))
    except NotImplementedError as error:
        raise UnverifiableError(
            "the CPU does not compute this in the types of its inputs"
        ) from error
    reason = watcher.reason
    for tensor in results:
        if _memory(tensor) in watcher.reserved - watcher.writers.keys():
            reason = why_unchecked("aten.empty.default")
        for step in watcher.writers.get(_memory(tensor), ()):
            watcher.steps[step].ends = step not in watcher.read
    chosen = (at for at, tensor in enumerate(results) if _memory(tensor) in watcher.chosen)
    return _Trace(watcher.steps, results, frozenset(chosen), watcher.narrows, reason)


class _Watcher(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch is untyped here
    """Notes the operators that a function calls, and which of them made what is in a memory."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch is untyped here
        self.steps: list[_Step] = []
        self.writers: dict[int, set[int]] = {}
        self.reserved: set[int] = set()
        self.read: set[int] = set()
        self.chosen: set[int] = set()  # memories of what is no float and was decided by steps
        self.narrows = False
        self.reason = ""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        read = [*_floats(args), *_floats(kwargs.values())]
        _refuse_large(func, args, kwargs)
        sources = {step for one in read for step in self.writers.get(_memory(one), ())}
        found = func(*args, **kwargs)
        made = list(_floats([found]))
        if sources or any(
            _memory(one) in self.chosen for one in _tensors([args, *kwargs.values()])
        ):
            others = (one for one in _tensors([found]) if not one.dtype.is_floating_point)
            self.chosen.update(map(_memory, others))
        name, kind = base_name(str(func)), str(func)
        if name not in _RESERVES:
            self.reason = self.reason or why_unchecked(kind)
        if name in _RESERVES:
            self.reserved.update(map(_memory, made))
        if not made or name in _RESERVES:
            return found
        if moves(kind):
            self._copied(read, made, sources)
        else:
            self.read |= sources
            half = next((one.dtype for one in made if one.dtype.itemsize == 2), None)
            plain = _plain(args, kwargs)
            kernel = kernel_of(kind, plain)
            self.steps.append(_Step(name, kind, half, _terms(read, made), kernel, plain))
            sources = {len(self.steps) - 1}
        for one in made:
            self.writers[_memory(one)] = sources
        return found

    def _copied(self, read: Sequence[Tensor], made: Sequence[Tensor], sources: set[int]) -> None:
        """A copy in fewer bits rounds what was computed before."""
        narrow = next(
            (
                one.dtype
                for one in made
                if any(
                    one.dtype != own.dtype and one.dtype.itemsize <= own.dtype.itemsize
                    for own in read
                )
            ),
            None,
        )
        if narrow is None:
            return
        self.narrows = self.narrows or not sources
        for step in sources:
            self.steps[step].half = narrow


class _Wide(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch is untyped here
    """Lets a function keep all floats in one wide type, and moves what is on the way if asked."""

    def __init__(self, trace: _Trace, dtype: torch.dtype, how: Arithmetic) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch is untyped here
        self._steps = trace.steps
        self._staged = trace.is_staged
        self._dtype = dtype
        info = torch.finfo(dtype)
        self._limits = (info.eps, info.min, info.max, info.tiny)
        self._move = how.move
        self._generator = torch.Generator().manual_seed(_SEED + how.sample)
        self._next = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        step = self._step(str(func))
        own = {} if step is None else step.plain
        kwargs = {name: self._wide(value, own.get(name)) for name, value in (kwargs or {}).items()}
        given = [self._wide(value, own.get(str(place))) for place, value in enumerate(args)]
        found = func(*given, **kwargs)
        if not self._move or step is None or step.ends:
            return found
        if func._schema.is_mutable:
            for tensor in _floats([found]):
                tensor.mul_(self._factors(tensor, step))
            return found
        return self._shaken(found, step)  # autograd may keep what was found: that must not change

    def _wide(self, value: Any, own: Any) -> Any:
        """An argument in the wide type; a number of that type itself is the one of the own type."""
        if isinstance(value, torch.dtype) and value.is_floating_point:
            return self._dtype
        return own if isinstance(own, float) and value in self._limits else value

    def _step(self, kind: str) -> _Step | None:
        """The step that an operator is; wider types may take other ways."""
        if moves(kind):
            return None
        name = base_name(kind)
        for place in range(self._next, min(self._next + _AHEAD, len(self._steps))):
            if self._steps[place].name == name:
                self._next = place + 1
                return self._steps[place]
        return None

    def _shaken(self, found: Any, step: _Step) -> Any:
        """The same with each element moved up or down."""
        if isinstance(found, Tensor):
            return found * self._factors(found, step) if found.is_floating_point() else found
        if isinstance(found, (list, tuple)):
            return type(found)(self._shaken(each, step) for each in found)
        return found

    def _factors(self, tensor: Tensor, step: _Step) -> Tensor:
        """One and a little more or less, by chance, as one rounding may change an element."""
        if step.half is not None:
            move = _NEIGHBOUR * torch.finfo(step.half).eps / 2
        else:
            move = _FLOAT32_STEP if self._staged else self._move
        signs = torch.randint(0, 2, tensor.shape, generator=self._generator, dtype=torch.int8)
        return 1 + move * signs.mul_(2).sub_(1).to(tensor.dtype)


def _refuse_large(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """A dump names the sizes of what functions make; memory is reserved for no more than so much.

    Raises:
        UnverifiableError: it is too much.
    """

    def on_meta(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to("meta")
        if isinstance(value, (list, tuple)):
            return [on_meta(each) for each in value]
        return torch.device("meta") if isinstance(value, torch.device) else value

    try:
        meta = {name: on_meta(value) for name, value in kwargs.items()}
        if any(one.name == "device" for one in func._schema.arguments):
            meta["device"] = torch.device("meta")
        made = _tensors(func(*[on_meta(value) for value in args], **meta))
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return  # what depends on values
    if (count := sum(one.numel() for one in made)) > _MOST_ELEMENTS:
        raise UnverifiableError(f"{func} makes {count} elements of these arguments")


def _terms(read: Sequence[Tensor], made: Sequence[Tensor]) -> int:
    """Terms of the longest sum of one operator, as far as shapes tell."""
    largest = max((tensor.numel() for tensor in read), default=1)
    written = min((tensor.numel() for tensor in made if tensor.numel()), default=1)
    rows = (tensor.shape[-1] for tensor in read if tensor.dim())
    windows = (math.prod(tensor.shape[1:]) for tensor in read[1:2] if tensor.dim() > 2)
    return max(1, -(-largest // written), *rows, *windows)


def _plain(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an operator that are no tensors, by place or keyword."""
    given = {**{str(place): value for place, value in enumerate(args)}, **kwargs}
    return {name: value for name, value in given.items() if not isinstance(value, Tensor)}


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


def _tensors(found: Any) -> list[Tensor]:
    if isinstance(found, Tensor):
        return [found]
    items = found if isinstance(found, (list, tuple)) else ()
    return [tensor for item in items for tensor in _tensors(item)]


def _floats(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            if value.dtype.is_floating_point:
                yield value
        elif isinstance(value, (list, tuple)):
            yield from _floats(value)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
