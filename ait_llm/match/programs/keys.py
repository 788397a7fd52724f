"""Which place along an axis of keys is the same token on both sides.

Masks, attention weights and caches have an axis with all tokens so far. Padding on the left or on
the right, other requests beside, and a window that only one side cuts make it another one. A mask
``[batch, keys]`` tells which places are real; tokens are counted from the newest one, which every
pass holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ait_llm.match.views import Part, Reorder, Reshape, Rows, View
from ait_llm.program import rows as layout
from ait_llm.program.program import Program
from ait_llm.program.token_places import first_place

Shape = tuple[int, ...]
_MOST = 1 << 16  # elements that are picked one by one
_WINDOWS = ("sliding_window", "window_size")


@dataclass(frozen=True, slots=True)
class Axis:
    """The keys of one side.

    Attributes:
        rows: how it lays out its tokens.
        real: for each request the places of real keys, ascending; None without a mask.
        total: length of the mask.
        windows: lengths to which layers cut the axis; None where the capture holds no definitions.
    """

    rows: layout.Rows
    real: tuple[tuple[int, ...], ...] | None
    total: int
    windows: frozenset[int] | None

    def read(self, length: int, request: int, *, is_cache: bool) -> dict[int, int] | None:
        """Places of real keys by their distance from the newest one; None for another axis."""
        if self.real is None:
            return None
        every = self.real[request]
        first, end = 0, self.total
        if length != self.total:
            if is_cache and length == self.total - self.rows.seq:
                end = length
            elif is_cache and length > self.total:  # it has room for more
                end = self.total
            elif length < self.total and self._is_window(length, is_cache=is_cache):
                first = self.total - length
            else:
                return None
        return {
            len(every) - 1 - number: place - first
            for number, place in enumerate(every)
            if first <= place < end
        }

    def _is_window(self, length: int, *, is_cache: bool) -> bool:
        """True for what a window leaves of the keys, the newest ones.

        A cache keeps all that the next token attends to but itself; several new tokens attend to
        that much before the first of them.
        """
        if self.windows is None:  # only newest keys are ever kept
            return not is_cache
        if is_cache:
            return length + 1 in self.windows
        return length in self.windows or length - self.rows.seq + 1 in self.windows


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of both sides.

    Attributes:
        left, right: axes of either side.
        requests: rows of the batch that are the same request.
    """

    left: Axis
    right: Axis
    requests: tuple[tuple[int, int], ...]

    def differ_in_past(self, left: Shape, right: Shape) -> bool:
        """True for two caches of earlier tokens that lie at other places, or beside padding.

        What a cache holds for padding is up to the implementation of the attention.
        """
        if len(left) != 4 or len(right) != 4:
            return False
        same = self.left.real == self.right.real and all(a == b for a, b in self.requests)
        is_padded = any(len(each) < self.left.total for each in self.left.real or ())
        return (
            (is_padded or not same)
            and left[2] != self.left.rows.seq
            and right[2] != self.right.rows.seq
        )

    def places(
        self, lengths: tuple[int, int], pair: tuple[int, int], *, is_cache: bool
    ) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Places of the same tokens along two axes of these lengths, oldest first."""
        if lengths[0] > self.left.total and lengths[1] > self.right.total:
            return None  # keys of something else, such as those that an encoder made
        ours = self.left.read(lengths[0], pair[0], is_cache=is_cache)
        theirs = self.right.read(lengths[1], pair[1], is_cache=is_cache)
        if ours is None or theirs is None:
            return None
        both = sorted(ours.keys() & theirs.keys(), reverse=True)
        return (tuple(ours[k] for k in both), tuple(theirs[k] for k in both)) if both else None


def find_keys(
    left: Program,
    right: Program,
    rows: tuple[layout.Rows, layout.Rows],
    pairs: Sequence[tuple[int, int]],
) -> Keys | None:
    """Align the keys of two padded sides; None if a mask of either side does not show them.

    Args:
        left, right: the programs.
        rows: how either side lays out its tokens.
        pairs: flat rows of the same token.
    """
    axes = _axis(left, rows[0]), _axis(right, rows[1])
    requests = tuple(dict.fromkeys((a // rows[0].seq, b // rows[1].seq) for a, b in pairs))
    if axes[0].real is None and axes[1].real is None:
        return _by_places(left, right, rows, pairs)
    axes = _without_padding(left, axes[0]), _without_padding(right, axes[1])
    if axes[0].real is None or axes[1].real is None:
        return None
    if any(len(axes[0].real[a]) != len(axes[1].real[b]) for a, b in requests):
        return None
    return Keys(axes[0], axes[1], requests)


def _without_padding(program: Program, axis: Axis) -> Axis:
    """Keys of a side that pads nothing, beside one that does: all of them are real."""
    first = None if axis.real is not None else _first(program, axis.rows)
    if first is None:
        return axis
    total = first + axis.rows.seq
    return replace(axis, real=(tuple(range(total)),) * max(1, axis.rows.batch), total=total)


def _by_places(
    left: Program,
    right: Program,
    rows: tuple[layout.Rows, layout.Rows],
    pairs: Sequence[tuple[int, int]],
) -> Keys | None:
    """Keys of requests whose tokens have the same places, where no mask tells: up to the last."""
    firsts = _first(left, rows[0]), _first(right, rows[1])
    known = [each for each in firsts if each is not None]
    if not known or not pairs:
        return None
    # a side that does not tell reads the same tokens, so they have the places of the other's
    begins, starts = (known[0] if each is None else each for each in firsts)
    places = [(begins + a % rows[0].seq, starts + b % rows[1].seq) for a, b in pairs]
    if any(one != other for one, other in places):
        return None
    same = max(place for place, _ in places) + 1
    requests = tuple(dict.fromkeys((a // rows[0].seq, b // rows[1].seq) for a, b in pairs))
    ours, theirs = (
        Axis(side, (tuple(range(same)),) * side.batch, begin + side.seq, _windows(program))
        for program, side, begin in zip((left, right), rows, (begins, starts), strict=True)
    )
    return Keys(ours, theirs, requests)


def _first(program: Program, rows: layout.Rows) -> int | None:
    """Place of the first token that a pass reads, the same for all requests of its batch."""
    if layout.key_mask(program, rows) is not None:
        return None
    schedule = program.run.schedule
    if rows.batch == 1 and schedule is not None:
        return schedule.stretches[0].first if len(schedule.stretches) == 1 else None
    return first_place(program.run, rows.seq)


def _axis(program: Program, rows: layout.Rows) -> Axis:
    mask = layout.key_mask(program, rows)
    if mask is None:
        return Axis(rows, None, 0, _windows(program))
    real = tuple(tuple(int(place) for place in np.flatnonzero(row)) for row in mask)
    return Axis(rows, real, mask.shape[1], _windows(program))


def _windows(program: Program) -> frozenset[int] | None:
    """How many tokens layers attend to that do not attend to all; None if nothing is stated."""
    if not any(operation.definition for operation in program.operations):
        return None
    stated = (operation.definition.get(key) for operation in program.operations for key in _WINDOWS)
    return frozenset(number for number in stated if type(number) is int)


def key_views(
    left: Shape, right: Shape, keys: Keys, pairs: Sequence[tuple[int, int]]
) -> tuple[tuple[View, ...], tuple[View, ...]] | None:
    """Views of two tensors with an axis of keys that leave the same tokens.

    Args:
        left, right: their shapes.
        keys: of both sides.
        pairs: flat rows of the same token on both sides.
    """
    found = _with_queries(left, right, keys, pairs)
    return found if found is not None else _of_cache(left, right, keys)


def _with_queries(
    left: Shape, right: Shape, keys: Keys, pairs: Sequence[tuple[int, int]]
) -> tuple[tuple[View, ...], tuple[View, ...]] | None:
    """Masks and weights of attention, ``[batch, heads, queries, keys]``."""
    sides = (left, keys.left.rows), (right, keys.right.rows)
    if len(left) != 4 or len(right) != 4 or left[1] != right[1]:
        return None
    if any((shape[0], shape[2]) != (rows.batch, rows.seq) for shape, rows in sides):
        return None
    chosen: list[tuple[list[int], tuple[int, ...]]] = []
    other: list[tuple[list[int], tuple[int, ...]]] = []
    seqs = keys.left.rows.seq, keys.right.rows.seq
    for pair in keys.requests:
        places = keys.places((left[3], right[3]), pair, is_cache=False)
        if places is None or (len(keys.requests) > 1 and len(pairs) * len(places[0]) > _MOST):
            return None
        mine = [(a, b) for a, b in pairs if (a // seqs[0], b // seqs[1]) == pair]
        chosen.append(([a for a, _ in mine], places[0]))
        other.append(([b for _, b in mine], places[1]))
    return _picked(left, chosen), _picked(right, other)


def _picked(
    shape: Shape, requests: Sequence[tuple[list[int], tuple[int, ...]]]
) -> tuple[View, ...]:
    """Rows and keys of each request of ``[batch, heads, queries, keys]``."""
    batch, heads, seq, total = shape
    if len(requests) == 1:
        rows, places = requests[0]
        request = rows[0] // seq
        views: list[View] = [Part(0, request, request + 1)] if batch > 1 else []
        return (
            *views,
            *_rows(2, tuple(row % seq for row in rows), seq),
            *_rows(3, places, total),
        )
    every = tuple(
        row * total + place for rows, places in requests for row in rows for place in places
    )
    return (
        Reorder((0, 2, 3, 1)),
        Reshape((batch * seq * total, heads)),
        *_rows(0, every, batch * seq * total),
    )


def _of_cache(
    left: Shape, right: Shape, keys: Keys
) -> tuple[tuple[View, ...], tuple[View, ...]] | None:
    """Keys and values of all tokens so far, ``[batch, heads, keys, dim]``, or a mask of them."""
    axis = {4: 2, 2: 1}.get(len(left))
    if axis is None or len(left) != len(right):
        return None
    rest = [[n for at, n in enumerate(shape) if at not in (0, axis)] for shape in (left, right)]
    if rest[0] != rest[1] or left[0] != keys.left.rows.batch or right[0] != keys.right.rows.batch:
        return None
    chosen: list[tuple[int, tuple[int, ...]]] = []
    other: list[tuple[int, tuple[int, ...]]] = []
    for pair in keys.requests:
        places = keys.places((left[axis], right[axis]), pair, is_cache=True)
        if places is None:
            return None
        chosen.append((pair[0], places[0]))
        other.append((pair[1], places[1]))
    return _held(left, axis, chosen), _held(right, axis, other)


def _held(
    shape: Shape, axis: int, requests: Sequence[tuple[int, tuple[int, ...]]]
) -> tuple[View, ...]:
    """Places of each request along an axis."""
    batch, total = shape[0], shape[axis]
    if len(requests) == 1:
        request, places = requests[0]
        part: tuple[View, ...] = (Part(0, request, request + 1),) if batch > 1 else ()
        return (*part, *_rows(axis, places, total))
    order = (0, axis, *(at for at in range(len(shape)) if at not in (0, axis)))
    rest = tuple(shape[at] for at in order[2:])
    every = tuple(request * total + place for request, places in requests for place in places)
    turned: tuple[View, ...] = () if order == tuple(range(len(shape))) else (Reorder(order),)
    return (*turned, Reshape((batch * total, *rest)), *_rows(0, every, batch * total))


def _rows(axis: int, chosen: tuple[int, ...], length: int) -> tuple[View, ...]:
    if chosen == tuple(range(length)):
        return ()
    if chosen == tuple(range(chosen[0], chosen[-1] + 1)):
        return (Part(axis, chosen[0], chosen[-1] + 1),)
    return (Rows(axis, chosen),)
