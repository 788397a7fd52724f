"""Which value a tensor is: its storage, how often that was written, and where in it it lies.

Addresses are used again, and a reference to a storage, weak ones included, keeps its memory from
the allocator. What stands for a storage here is a mark in the attributes of its Python object:
torch keeps that object as long as the storage lives, through views, detached tensors and inference
mode alike, and both are freed together.

Writes are known from three sources, each where it can be relied on:

- Where every operator is seen (:class:`ObservedWrites`), schemas say what an operator writes.
- Tensors outside of inference mode count their changes.
- What a capture finds in the bytes shows changes behind both, and that a tensor of inference mode,
  which counts nothing, is as it was.

Where none of them tells, a tensor has no identity.
"""

from __future__ import annotations

import functools
import itertools
import struct
import threading
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from ait_llm.core.kernels import Numbers
from ait_llm.dump.pytorch.layouts import is_lazy

Identity = tuple[int, int, int, tuple[int, ...]]
"""Storage, version, offset and strides in elements, as the ledger has them."""

_ATTRIBUTE = "_ait_llm_mark"
# Places in one storage whose values are remembered; a growing cache has one more each step.
_MAX_PLACES = 64
# They change what a tensor is, not what a storage holds, though their schemas call that a write.
_MOVES = frozenset({"aten::detach_", "aten::set_", "aten::requires_grad_"})
# They write their running mean and variance (arguments 3 and 4) when they train (argument 5), which
# their schemas do not say.
_BATCH_NORMS = frozenset(
    f"aten::{name}" for name in ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm")
)
# They write their first argument while they run beside the program; their schemas do not say so,
# and no counter of the tensor shows it.
_COLLECTIVES = frozenset(
    f"c10d::{name}"
    for name in (
        *("_allgather_base_", "_reduce_scatter_base_", "allgather_", "allreduce_", "alltoall_"),
        *("alltoall_base_", "allreduce_coalesced_", "broadcast_", "gather_", "reduce_"),
        *("reduce_scatter_", "scatter_"),
    )
)

_numbers = itertools.count()
_periods = itertools.count(1)
_lock = threading.Lock()
_Place = tuple[int, tuple[int, ...], torch.Size, torch.dtype]


class Mark:
    """What is known of a storage while it lives.

    Attributes:
        number: stands for it; no other storage of this process ever has it.
        version: writes that were seen.
        counter: autograd's count of changes after those; None in inference mode.
        period: of which all writes are counted, see :class:`ObservedWrites`; 0 for none, and None
            if the storage was never seen.
        known: by place, the version at which a tensor was seen there and its numbers; for the last
            tensor only, but for all where nothing counts changes.
    """

    __slots__ = ("counter", "known", "number", "period", "version")

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.version = 0
        self.counter: int | None = None
        self.period: int | None = None
        self.known: dict[_Place, tuple[int, Numbers | None]] = {}


class _Thread(threading.local):
    """How many observers run on this thread, and the number of its present period."""

    observers = 0
    period = 0


_thread = _Thread()


def _marks_last() -> bool:
    """True if this torch keeps the Python object of a storage, which it does since 2.1."""
    tensor = torch.empty(1)
    tensor.untyped_storage().__dict__[_ATTRIBUTE] = None
    return _ATTRIBUTE in tensor.untyped_storage().__dict__


MARKS_LAST = _marks_last()


def identity_of(
    tensor: Tensor,
    *,
    unchanged: bool | None = None,
    numbers: Numbers | None = None,
) -> Identity | None:
    """The identity of a tensor's present value; None where it cannot be told.

    Args:
        tensor: an ordinary dense tensor of the program.
        unchanged: True if its bytes are those that this object had when it was last seen, False if
            they are not and no counter shows why; None if nobody looked.
        numbers: statistics of its elements; None if there are none.
    """
    # Negated and conjugated views have other values than those at their place of the storage.
    if not MARKS_LAST or is_lazy(tensor):
        return None
    storage = _marked(tensor)
    if storage is None:
        return None
    offset, strides = int(tensor.storage_offset()), tensor.stride()
    place = (offset, strides, tensor.shape, tensor.dtype)
    if tensor.is_inference():
        with _lock:
            version = _uncounted(storage, place, unchanged, numbers)
        return None if version is None else (storage.number, version, offset, strides)
    counter = tensor._version
    if storage.counter != counter or storage.period != _thread.period:
        with _lock:
            _count(storage, counter)
    if numbers is not None or unchanged is False:
        with _lock:
            _look_behind(storage, place, unchanged, numbers)
    return storage.number, storage.version, offset, strides


def ordinary_identity(tensor: Tensor, known: Mark, numbers: Numbers) -> Identity | None:
    """The same of what :func:`ait_llm.dump.pytorch.layouts.is_ordinary` is true for.

    Args:
        tensor: the tensor.
        known: what is known of its storage.
        numbers: statistics of its elements.
    """
    if not MARKS_LAST:
        return None
    offset, strides = int(tensor.storage_offset()), tensor.stride()
    with _lock:
        version = _uncounted(known, (offset, strides, tensor.shape, tensor.dtype), None, numbers)
    return None if version is None else (known.number, version, offset, strides)


def _marked(tensor: Tensor) -> Mark | None:
    """The mark on a tensor's storage, made if there is none."""
    try:
        return mark_of(tensor.untyped_storage())
    except (RuntimeError, NotImplementedError):  # wrappers of transforms have no storage
        return None


def is_as_told(known: Mark, identity: Identity, counter: int | None) -> bool:
    """True if a tensor whose numbers are what they were is still the value that it was.

    Args:
        known: what is known of its storage.
        identity: what was told of the tensor.
        counter: its count of changes, then and now; None if it counts none.
    """
    if known.version != identity[1]:
        return False
    return counter is None or (known.counter == counter and known.period == _thread.period)


def mark_of(storage: torch.UntypedStorage) -> Mark:
    """What is known of a storage; it lasts as long as the storage where :data:`MARKS_LAST`."""
    attributes = storage.__dict__
    known: Mark | None = attributes.get(_ATTRIBUTE)
    if known is None:  # setdefault: another thread may be here too
        known = attributes.setdefault(_ATTRIBUTE, Mark())
    return known


def _count(storage: Mark, counter: int) -> None:
    """Account for what the counter of a tensor in a storage says."""
    period, before = _thread.period, storage.period
    storage.period = period
    # An operator that is seen raises the counter after it was accounted for.
    is_late = before == period != 0 and counter < (storage.counter or 0)
    if before is not None and counter != storage.counter and not is_late:
        storage.version += 1
    if not is_late:
        storage.counter = counter


def _look_behind(
    storage: Mark, place: _Place, unchanged: bool | None, numbers: Numbers | None
) -> None:
    """Account for a change that no counter showed, where the elements do."""
    then = next(iter(storage.known.items()), None)
    seen = (storage.version, numbers) if then is None or then[0] != place else then[1]
    if unchanged is False or (seen[0] == storage.version and _differ(numbers, seen[1])):
        storage.version += 1
    storage.known = {place: (storage.version, numbers)}


def _uncounted(
    storage: Mark, place: _Place, unchanged: bool | None, numbers: Numbers | None
) -> int | None:
    """The version of a storage whose tensors count no changes; None where it cannot be told."""
    version, then = storage.known.get(place, (None, None))
    if storage.period is None or storage.period == _thread.period != 0:  # new, or all is seen
        storage.period = _thread.period
        if unchanged is False or (version == storage.version and _differ(numbers, then)):
            storage.version += 1
    elif version is None:
        return None
    elif unchanged or (numbers is not None and then is not None and not _differ(numbers, then)):
        return version
    elif unchanged is False or _differ(numbers, then):
        storage.version += 1
        storage.period = _thread.period
    else:
        return None
    if len(storage.known) >= _MAX_PLACES:
        storage.known.clear()
    storage.known[place] = (storage.version, numbers)
    return storage.version


def _differ(one: Numbers | None, other: Numbers | None) -> bool:
    """True if both are known and not the same, NaN being NaN."""
    if one is None or other is None or one == other:
        return False
    return struct.pack("6d", *one) != struct.pack("6d", *other)


class ObservedWrites:
    """A period in which every operator of this thread is told, so that its writes are known.

    A context; where one is inside another, as for two models that call each other, the outer one
    says when the period begins and ends.
    """

    def __enter__(self) -> ObservedWrites:
        if not _thread.observers:
            _thread.period = next(_periods)
        _thread.observers += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _thread.observers -= 1
        if not _thread.observers:
            _thread.period = 0

    @staticmethod
    def begin(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Writes:
        """An operator that may write is about to run.

        Args:
            func: an ``OpOverload``, or something without a schema, which may write every argument.
            args, kwargs: its arguments.
        """
        is_counted = not isinstance(func, torch._ops.OpOverload) or not is_collective(func)
        return Writes(_written(func, args, kwargs), moves=_moves(func), is_counted=is_counted)


def may_write(func: Any) -> bool:
    """True if an ``OpOverload`` may change a tensor that it is given."""
    schema = func._schema
    return schema.is_mutable or schema.name in _BATCH_NORMS or is_collective(func)


def is_collective(func: Any) -> bool:
    """True if an ``OpOverload`` is a collective that writes its first argument."""
    return func._schema.name in _COLLECTIVES


class Writes:
    """What one operator is about to write; :meth:`done` when it has.

    Args:
        tensors: arguments that it writes.
        moves: it changes only which part of its storage a tensor is.
        is_counted: torch counts the change.
    """

    __slots__ = ("_is_counted", "_moves", "_storages")

    def __init__(self, tensors: Iterator[Tensor], *, moves: bool, is_counted: bool = True) -> None:
        self._moves = moves
        self._is_counted = is_counted
        self._storages: list[tuple[Mark, int, int | None]] = []
        for tensor in tensors:
            storage = _marked(tensor)
            if storage is not None:
                counter = None if tensor.is_inference() else tensor._version
                self._storages.append((storage, storage.version, counter))

    def done(self) -> None:
        """Count the writes, unless an observer inside has done so."""
        with _lock:
            for storage, version, counter in self._storages:
                if storage.version == version:
                    if not self._moves:
                        storage.version += 1
                        storage.period = _thread.period
                    if counter is not None:
                        storage.counter = counter + self._is_counted


def _written(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[Tensor]:
    """The tensors among the arguments of an operator that it writes."""
    for place, name in _written_arguments(func):
        yield from _tensors(args[place] if place < len(args) else kwargs.get(name))
    if not isinstance(func, torch._ops.OpOverload):
        for value in (*args, *kwargs.values()):
            yield from _tensors(value)
    elif func._schema.name in _BATCH_NORMS and len(args) > 5 and args[5]:
        yield from _tensors(args[3:5])


@functools.cache
def _moves(func: Any) -> bool:
    """True if an operator changes the place of a tensor and no element of any."""
    if not isinstance(func, torch._ops.OpOverload):
        return False
    return torch.Tag.inplace_view in func.tags or func._schema.name in _MOVES


@functools.cache
def _written_arguments(func: Any) -> tuple[tuple[int, str], ...]:
    """Places and names of the arguments that the schema of an operator says it writes."""
    if not isinstance(func, torch._ops.OpOverload):
        return ()
    if is_collective(func):
        return ((0, func._schema.arguments[0].name),)
    return tuple(
        (place, argument.name)
        for place, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors(each)
