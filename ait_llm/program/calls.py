"""Operators as a graph of values, whatever dump they come from.

The smallest common form of the operators of FX, of the graph engine, of torch and of API captures:
a kind in the words of torch (``mm``, ``add``, ``softmax``), ids of values, plain numbers. What they
make together is found in ``composites``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

CASTS = frozenset(
    {"to", "_to_copy", "type_as", "convert_element_type", "float", "half", "bfloat16", "_cast"}
)
"""They change the element type only."""

_KEEPING = CASTS | frozenset(
    {"alias", "clone", "contiguous", "detach", "dropout", "lift_fresh_copy", "identity"}
)
_SHAPING = frozenset(
    {
        *("view", "reshape", "_unsafe_view", "_reshape_alias", "flatten", "unflatten", "view_as"),
        *("expand", "expand_as", "unsqueeze", "squeeze", "broadcast_to", "repeat_interleave"),
    }
)
_ORDERING = frozenset({"t", "transpose", "permute", "swapaxes", "movedim", "numpy_t"})
_PIECES = frozenset(
    {"slice", "select", "split", "split_with_sizes", "chunk", "unbind", "narrow", "getitem"}
)


@dataclass(frozen=True, slots=True)
class Call:
    """One operator that ran.

    Attributes:
        kind: what it computes, in the words of torch, without overload: ``mm``.
        inputs: ids of the tensors that it reads, in order, lists written out.
        outputs: ids of the tensors that it makes.
        numbers: plain numbers that it was called with, in order.
    """

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    numbers: tuple[float, ...] = ()


@dataclass(frozen=True)
class CallGraph:
    """Calls in execution order.

    Attributes:
        calls: the operators.
        shapes: dims of values, as far as they are known.
        whole: values of eight bits or less that are whole numbers, as far as that is known.
    """

    calls: Sequence[Call]
    shapes: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    whole: Collection[int] = ()

    def __post_init__(self) -> None:
        readers: dict[int, list[int]] = defaultdict(list)
        writers: dict[int, int] = {}
        # What made nothing, as a call that failed, is not what its name says.
        known = tuple(each if each.outputs else replace(each, kind="") for each in self.calls)
        object.__setattr__(self, "calls", known)
        for place, call in enumerate(self.calls):
            for value in dict.fromkeys(call.inputs):
                readers[value].append(place)
            for value in call.outputs:
                # what returns what it got passes a value on
                if value not in call.inputs:
                    writers.setdefault(value, place)
        object.__setattr__(self, "_readers", dict(readers))
        object.__setattr__(self, "_writers", writers)

    _readers: Mapping[int, list[int]] = field(init=False, repr=False, default_factory=dict)
    _writers: Mapping[int, int] = field(init=False, repr=False, default_factory=dict)

    def writer(self, value: int) -> int | None:
        """The call that makes a value; None for one from outside."""
        return self._writers.get(value)

    def readers(self, value: int) -> Sequence[int]:
        """Calls that read a value, in execution order."""
        return self._readers.get(value, ())

    def kind(self, place: int | None) -> str:
        """Kind of a call; empty for none."""
        return "" if place is None else self.calls[place].kind

    def before(self, value: int, *, order: bool = False, pieces: bool = False) -> int:
        """The value before casts and changes of shape.

        Args:
            value: where to begin.
            order: also before another order of axes.
            pieces: also the whole of which it is a piece.
        """
        seen = {value}
        while (place := self.writer(value)) is not None:
            call = self.calls[place]
            if not call.inputs or not self.is_passing(call.kind, order=order, pieces=pieces):
                break
            value = call.inputs[0]
            if value in seen:
                break
            seen.add(value)
        return value

    def before_casts(self, value: int) -> int:
        """The value before changes of element type, and what else hands on all elements."""
        while (place := self.writer(value)) is not None and self.kind(place) in _KEEPING:
            value = self.calls[place].inputs[0]
        return value

    @staticmethod
    def is_passing(kind: str, *, order: bool = False, pieces: bool = False) -> bool:
        """True for a call whose result has the numbers of its first input."""
        if kind in _KEEPING or kind in _SHAPING:
            return True
        return (order and kind in _ORDERING) or (pieces and kind in _PIECES)

    def after(self, value: int, *, order: bool = False) -> Iterator[tuple[int, int]]:
        """Calls that read a value, also behind casts and changes of shape, with what they read."""
        waiting, seen = [value], {value}
        while waiting:
            current = waiting.pop(0)
            for place in self.readers(current):
                call = self.calls[place]
                first = bool(call.inputs) and call.inputs[0] == current
                if first and self.is_passing(call.kind, order=order):
                    fresh = [out for out in call.outputs if out not in seen]
                    seen.update(fresh)
                    waiting += fresh
                else:
                    yield place, current

    def is_outside(self, value: int, *, order: bool = True) -> bool:
        """True for a value that no call computed: a weight, or an input of the program."""
        return self.writer(self.before(value, order=order)) is None

    def is_constant(self, value: int, depth: int = 6) -> bool:
        """True for what is made of values from outside and numbers alone: ``1 + weight``."""
        place = self.writer(value)
        if place is None:
            return True
        call = self.calls[place]
        if depth == 0 or not call.inputs or len(call.outputs) != 1:
            return False
        if call.kind not in ("add", "mul", "sub", "neg") and not self.is_passing(
            call.kind, order=True
        ):
            return False
        return all(self.is_constant(each, depth - 1) for each in call.inputs)

    def outside_of(self, value: int) -> int | None:
        """The value from outside that a constant was made of; None if there are several."""
        waiting, found = [value], set()
        while waiting:
            current = waiting.pop()
            place = self.writer(current)
            if place is None:
                found.add(current)
            else:
                waiting += self.calls[place].inputs
        return found.pop() if len(found) == 1 else None

    def path(self, start: int, end: int) -> tuple[int, ...]:
        """Calls by which a value was made of an earlier one, by first inputs."""
        found = []
        while start != end and (place := self.writer(start)) is not None:
            found.append(place)
            if not self.calls[place].inputs:
                break
            start = self.calls[place].inputs[0]
        return tuple(found)
