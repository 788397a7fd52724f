"""What a function of torch did with its inputs: its steps, and which of them made what."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ait_llm.opcheck.golden.aten.arithmetic import kernel_of
from ait_llm.opcheck.golden.aten.kinds import base_name, why_unchecked
from ait_llm.opcheck.golden.aten.kinds import is_exact as moves
from ait_llm.opcheck.golden.base import KernelArithmetic, UnverifiableError

Function = Callable[[Sequence[Tensor | None]], Any]
"""Makes tensors of tensors; it may use nothing else and must leave its inputs as they are."""

_MOST_ELEMENTS = 1 << 31
# They hand out memory that a later operator fills.
_RESERVES = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})


@dataclass(slots=True)
class Step:
    """One operator that a function called and that computes something.

    Attributes:
        name: ``mm`` of ``aten.mm.default``.
        type: of the operator, with library and overload.
        half: type of 16 bits to which its result is rounded, None if none.
        ends: its result is one of the function's, in the type that it was rounded to, and no other
            step reads it.
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
class Trace:
    """What a function did with its own inputs.

    Attributes:
        steps: what computes, in order; copies, views and conversions are none.
        results: what it returned, in the types that it has.
        chosen: results that are no floats and that rounded values decided, by number.
        narrows: it stored an input in fewer bits before it used it.
        reason: why its result does not follow from its inputs; empty if it does.
    """

    steps: Sequence[Step]
    results: Sequence[Tensor]
    chosen: frozenset[int]
    narrows: bool
    reason: str

    @property
    def is_staged(self) -> bool:
        """True if it keeps values in 16 bits on the way."""
        return self.narrows or any(step.half is not None and not step.ends for step in self.steps)


def traced(function: Function, inputs: Sequence[Tensor | None]) -> Trace:
    """Run a function once on the CPU as it is.

    Raises:
        UnverifiableError: the CPU does not have it in these types.
    """
    watcher = _Watcher()
    try:
        with watcher, torch.no_grad():
            results = tensors_in(function(inputs))
    except NotImplementedError as error:
        raise UnverifiableError(
            "the CPU does not compute this in the types of its inputs"
        ) from error
    reason = watcher.reason
    for tensor in results:
        if _memory(tensor) in watcher.reserved - watcher.writers.keys():
            reason = why_unchecked("aten.empty.default")
        for step in watcher.writers.get(_memory(tensor), ()):
            own = watcher.steps[step]
            is_widened = own.half is not None and tensor.dtype != own.half
            own.ends = step not in watcher.read and not is_widened
    chosen = (at for at, tensor in enumerate(results) if _memory(tensor) in watcher.chosen)
    return Trace(watcher.steps, results, frozenset(chosen), watcher.narrows, reason)


class _Watcher(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch is untyped here
    """Notes the operators that a function calls, and which of them made what is in a memory."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch is untyped here
        self.steps: list[Step] = []
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
        read = [*floats_in(args), *floats_in(kwargs.values())]
        _refuse_large(func, args, kwargs)
        sources = {step for one in read for step in self.writers.get(_memory(one), ())}
        found = func(*args, **kwargs)
        made = list(floats_in([found]))
        if sources or any(
            _memory(one) in self.chosen for one in tensors_in([args, *kwargs.values()])
        ):
            others = (one for one in tensors_in([found]) if not one.dtype.is_floating_point)
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
            self.steps.append(Step(name, kind, half, _terms(read, made), kernel, plain))
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
        made = tensors_in(func(*[on_meta(value) for value in args], **meta))
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


def tensors_in(found: Any) -> list[Tensor]:
    if isinstance(found, Tensor):
        return [found]
    items = found if isinstance(found, (list, tuple)) else ()
    return [tensor for item in items for tensor in tensors_in(item)]


def floats_in(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            if value.dtype.is_floating_point:
                yield value
        elif isinstance(value, (list, tuple)):
            yield from floats_in(value)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
