"""Signatures of right values in wrong places: permuted, transposed, shifted, or copied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from ait_llm.diagnosis.kinds import Kind
from ait_llm.diagnosis.places import ranges
from ait_llm.diagnosis.residual import Array, Hypothesis, Residual

_MOST_GROUPS = 512  # wrong rows or heads whose place is looked for
_ALIKE = 0.05  # squared distance over the squared norm: closer is the same, roughly
_GROUPS = (2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class Groups:
    """A view of an output as blocks that may be in each other's place, ``[outer, count, inner]``.

    Attributes:
        outer, count, inner: sizes.
        word: what a block is.
        kind: what it is when blocks are swapped.
    """

    outer: int
    count: int
    inner: int
    word: str
    kind: Kind


def orders(residual: Residual, heads: Sequence[int]) -> Iterator[Hypothesis]:
    """Permutations, copies, shifts and transpositions.

    Args:
        residual: of the output.
        heads: numbers of heads that the operator's parameters name.
    """
    if int(residual.wrong.sum()) < 2:
        return
    for groups in _views(residual.mine.shape, heads):
        yield from _moved(residual, groups)
    yield from _shifted(residual)
    yield from _transposed(residual, heads)


def _views(shape: Sequence[int], heads: Sequence[int]) -> Iterator[Groups]:
    """Rows of all lengths; heads, or equal parts, of the rows."""
    seen = set()
    for split in range(1, max(2, len(shape))):
        outer, inner = prod(shape[:split]), prod(shape[split:])
        if len(shape) == 1:
            yield (
                Groups(1, 2, outer // 2, "half", Kind.SWAPPED_ROWS)
                if outer % 2 == 0
                else Groups(1, outer, 1, "element", Kind.SWAPPED_ROWS)
            )
            continue
        if outer > 1:
            yield Groups(1, outer, inner, "row", Kind.SWAPPED_ROWS)
        for count in dict.fromkeys((*heads, *shape[split:-1], *_GROUPS)):
            if count > 1 and inner % count == 0 and inner > count:
                key = (outer, count)
                if key not in seen:
                    seen.add(key)
                    word = "head" if count in heads else "part"
                    yield Groups(outer, count, inner // count, word, Kind.SWAPPED_HEADS)


def _moved(residual: Residual, groups: Groups) -> Iterator[Hypothesis]:
    """Blocks that hold what others should: swapped, shifted, or copied from one."""
    shape = (groups.outer, groups.count, groups.inner)
    if prod(shape) != residual.size:
        return
    mine, right = residual.mine.reshape(shape), residual.right.reshape(shape)
    off = np.flatnonzero(residual.wrong.reshape(shape).any(axis=(0, 2)))
    if not 1 <= len(off) <= _MOST_GROUPS or groups.count < 2:
        return
    source = _sources(mine, right, off)
    if source is None:
        return
    values = right.copy()
    values[:, off] = right[:, source]
    values = values.reshape(residual.mine.shape)
    steps = np.unique(source - off)
    first = f"{groups.word} {off[0]} holds {groups.word} {source[0]}"
    many = (
        f"{len(off)} of {groups.count} {'halves' if groups.word == 'half' else groups.word + 's'}"
    )
    if sorted(source) == sorted(off):
        text = f"{many} are in each other's place, {first}"
        kind = groups.kind
    elif len(steps) == 1 and len(off) > 1:
        text = f"{groups.word}s {ranges(off)} hold those {abs(int(steps[0]))} "
        text += "before" if steps[0] < 0 else "after"
        kind = Kind.SHIFTED
    elif len(np.unique(source)) < len(off) or not np.isin(source, off).any():
        text = f"{many} hold a copy of another, {first}"
        kind = Kind.STALE
    else:
        text, kind = f"{many} hold another, {first}", groups.kind
    parameters = {"first": float(off[0]), "from": float(source[0]), "parts": float(len(off))}
    yield Hypothesis(kind, values, text, parameters, 2.0 * len(off) if len(steps) > 1 else 4.0)


def _sources(mine: Array, right: Array, off: NDArray[np.integer]) -> NDArray[np.integer] | None:
    """For each block that is off, the block whose right values it holds; None if one has none."""
    got = mine[:, off].swapaxes(0, 1).reshape(len(off), -1)
    all_ = right.swapaxes(0, 1).reshape(right.shape[1], -1)
    distance = (got**2).sum(1)[:, None] - 2 * got @ all_.T + (all_**2).sum(1)[None, :]
    source: NDArray[np.intp] = distance.argmin(1)
    near = distance[np.arange(len(off)), source] <= _ALIKE * (got**2).sum(1)
    if not near.all() or (source == off).any():
        return None
    return source


def _shifted(residual: Residual) -> Iterator[Hypothesis]:
    """Elements of each row one or two places too far left or right; the edge may hold anything."""
    width = residual.mine.shape[-1] if residual.mine.ndim else 0
    for step in (1, -1, 2, -2):
        if width < 8:
            return
        values = np.roll(residual.right, step, axis=-1)
        if step > 0:
            values[..., :step] = np.nan
        else:
            values[..., step:] = np.nan
        way = "right" if step > 0 else "left"
        text = f"the elements of each row are {abs(step)} too far {way}"
        yield Hypothesis(Kind.SHIFTED, values, text, {"step": float(step)})


def _transposed(residual: Residual, heads: Sequence[int]) -> Iterator[Hypothesis]:
    """The last two axes, rows and columns, or tokens and heads in each other's place."""
    right, shape = residual.right, residual.mine.shape
    views: dict[str, Array] = {}
    if len(shape) >= 2 and min(shape[-2:]) > 1:
        views["its last two axes"] = right.swapaxes(-1, -2).reshape(shape)
    if len(shape) >= 3:
        views["its first two axes"] = right.swapaxes(0, 1).reshape(shape)
    for count in heads:
        rows = right.reshape(shape[0], -1) if shape else right
        if rows.ndim == 2 and rows.shape[1] % count == 0 and count > 1 and len(rows) > 1:
            split = rows.reshape(len(rows), count, -1)
            views[f"tokens and its {count} heads"] = split.swapaxes(0, 1).reshape(shape)
    for what, values in views.items():
        text = f"it is stored with {what} in each other's place"
        yield Hypothesis(Kind.TRANSPOSED, values, text, {"axes": what})
