"""Rows of a pass out of the values of a group's batch.

A value of the batch has an axis of tokens, with the requests before it or in it. What is kept of it
are the rows that some pass wants, once for all values that lie in the same memory: so what were
views of one another are views again in every pass, and what a module hands on is what the next one
reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ait_llm.dump.golden.groups import Group
from ait_llm.program.row_plan import PassRows, Row

_ATTRIBUTE = "_ait_llm_rows"


@dataclass(slots=True)
class Block:
    """The wanted rows of some memory, each as wide as it lies there.

    Attributes:
        rows: ``[rows, width]``.
        laid: what was laid out for passes, with the blocks of all groups that it is made of.
    """

    rows: Tensor
    laid: dict[tuple[int, ...], tuple[Tensor, tuple[Block, ...]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kept:
    """What one group keeps of a value.

    Attributes:
        block: its rows.
        rest: axes behind those of the rows, and the strides of these in a row.
        offset: where a row begins in that of the block.
        flat: requests and tokens are one axis.
        of_logits: its rows are those of logits.
        turned: an axis, such as that of heads, stands between requests and tokens.
    """

    block: Block
    rest: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    flat: bool
    of_logits: bool
    turned: bool = False


def keep(value: Tensor, group: Group) -> Kept | None:
    """The wanted rows of a value; None where it has no axis of tokens.

    Args:
        value: dense, of a forward pass of the group.
        group: it.
    """
    shape = tuple(value.shape)
    count, length = group.count, group.length
    if value.layout is not torch.strided or not shape or _is_of_pairs(shape, length):
        return None
    logits = len(group.logits)
    if shape[:2] == (count, length):
        return _kept(value, group, 2, group.flat(group.rows), count * length)
    if shape[:2] == (1, logits) and logits:
        return _kept(value, group, 2, None, logits, of_logits=True)
    if shape[0] == count * length:
        return _kept(value, group, 1, group.flat(group.rows), count * length)
    if shape[:2] == (1, length):
        return _kept(value, group, 2, [place for _, place in group.rows], length)
    if len(shape) == 4 and (shape[0], shape[2]) == (count, length):
        kept = _kept(value.transpose(1, 2), group, 2, group.flat(group.rows), count * length)
        return replace(kept, turned=True)
    if shape == (length,):
        return _kept(value[None], group, 2, [place for _, place in group.rows], length)
    return None


def _is_of_pairs(shape: tuple[int, ...], length: int) -> bool:
    """True for masks and scores, which have an axis of tokens for queries and one for keys."""
    return len(shape) > 2 and shape[-2:] == (length, length)


def _kept(
    value: Tensor,
    group: Group,
    axes: int,
    rows: Sequence[int] | None,
    count: int,
    *,
    of_logits: bool = False,
) -> Kept:
    """Keep rows of a value whose first axes are those of the rows.

    Args:
        value: the value.
        group: whose it is.
        axes: how many axes the rows are.
        rows: those that are wanted; None for all.
        count: how many there are.
        of_logits: they are rows of logits.
    """
    rest = tuple(value.shape[axes:])
    # nothing steps along an axis of one, whatever the length of the batch makes of its stride
    strides = tuple(
        stride if size > 1 else 1 for size, stride in zip(rest, value.stride()[axes:], strict=True)
    )
    width = value.stride()[axes - 1]
    begin = int(value.storage_offset())
    offset = begin % width if width else 0
    reach = 1 + sum((size - 1) * stride for size, stride in zip(rest, strides, strict=True))
    start = begin - offset
    known: dict[Any, Block] = {}
    in_rows = axes == 1 or value.shape[0] == 1 or value.stride(0) == value.shape[1] * width
    if (
        width
        and in_rows
        and offset + reach <= width
        and 0 not in rest
        and _is_within(value, start + count * width)
    ):
        known = value.untyped_storage().__dict__.setdefault(_ATTRIBUTE, {})
        parent = value.as_strided((count, width), (width, 1), start)
    else:
        parent = value.reshape(count, -1)
        width, offset = max(1, parent.shape[1]), 0
        strides = torch.empty(rest, device="meta").stride()
    key = (value._version, start, width, count, value.dtype, of_logits, id(group))
    if key not in known:
        index = None if rows is None else torch.tensor(rows, device=value.device)
        kept = parent.clone() if index is None else parent.index_select(0, index)
        known[key] = Block(kept)
    return Kept(known[key], rest, strides, offset, axes == 1, of_logits)


def _is_within(value: Tensor, end: int) -> bool:
    return end * value.element_size() <= value.untyped_storage().nbytes()


def laid_out(
    kept: Mapping[int, Kept], groups: Sequence[Group], wanted: PassRows, number: int
) -> Tensor | None:
    """The rows of a value that a pass computes, in the layout of the pass.

    Args:
        kept: what each group keeps of the value, by the number of the group.
        groups: all of them.
        wanted: the pass.
        number: of the pass, which tells it from the others.

    Returns:
        None where a group that has rows of the pass did not compute the value, or not alike.
    """
    first = next(iter(kept.values()))
    rows: Sequence[Row | None] = wanted.newest if first.of_logits else wanted.rows
    homes = {request: home for home, group in enumerate(groups) for request in group.requests}
    used = sorted({homes[row[0]] for row in rows if row is not None})
    if not used or any(home not in kept or not _is_alike(kept[home], first) for home in used):
        return None
    blocks = tuple(kept[home].block for home in used)
    key = (number, *map(id, blocks))
    base, _ = blocks[0].laid.get(key, (None, ()))
    if base is None:
        starts: dict[int, int] = {}
        start = 0
        for home, block in zip(used, blocks, strict=True):
            starts[home] = start
            start += len(block.rows)
        places = [
            0 if row is None else starts[homes[row[0]]] + _place(groups[homes[row[0]]], row, first)
            for row in rows
        ]
        every = torch.cat([block.rows for block in blocks]) if len(blocks) > 1 else blocks[0].rows
        base = every.index_select(0, torch.tensor(places, device=every.device))
        padding = [place for place, row in enumerate(rows) if row is None]
        if padding:
            base[padding] = 0
        blocks[0].laid[key] = base, blocks
    width = base.shape[1]
    shape, strides = _axes(wanted, first, len(rows), width)
    found = base.as_strided((*shape, *first.rest), (*strides, *first.strides), first.offset)
    return found.transpose(1, 2) if first.turned and len(shape) == 2 else found


def _is_alike(one: Kept, other: Kept) -> bool:
    same = (one.rest, one.strides, one.offset) == (other.rest, other.strides, other.offset)
    widths = one.block.rows.shape[1], other.block.rows.shape[1]
    return same and one.of_logits == other.of_logits and widths[0] == widths[1]


def _place(group: Group, row: Row, kept: Kept) -> int:
    return (group.logits_place if kept.of_logits else group.place)[row]


def _axes(
    wanted: PassRows, kept: Kept, count: int, width: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of the axes of the rows."""
    if len(wanted.shape) == 1 or kept.flat:
        return (count,), (width,)
    if kept.of_logits:
        return (count, 1), (width, width)
    batch, length = wanted.shape
    return (batch, length), (length * width, width)
