"""Operators of the graph engine that copy, select, order and describe."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ait_llm.opcheck.golden.base import Params, UnverifiableError
from ait_llm.opcheck.golden.engine.table import Compute, Part, engine_op, integers, plain

_MASKS = ("ellipsis_mask", "new_axis_mask")
_SLICE_MASKS = ("begin_mask", "end_mask", "shrink_axis_mask")
_KINDS = (torch.int32, torch.int64)

for _name in ("Identity", "TensorMove", "TransData"):
    engine_op(_name)(plain(lambda x: x))
engine_op("ZerosLike")(plain(torch.zeros_like))
engine_op("OnesLike")(plain(torch.ones_like))
engine_op("Select", "SelectV2")(plain(torch.where))
engine_op("MaskedFill")(plain(lambda x, mask, value: torch.where(mask, value.reshape(()), x)))
engine_op("Fill")(plain(lambda dims, value: value.reshape(()).expand(integers(dims))))
engine_op("BroadcastTo")(plain(lambda x, shape: x.expand(integers(shape))))
engine_op("Tile")(plain(lambda x, times: x.tile(integers(times))))
engine_op("Transpose")(plain(lambda x, order: x.permute(integers(order))))
engine_op("ExpandDims")(plain(lambda x, axis: x.unsqueeze(integers(axis)[0])))


@engine_op("TransposeD", attributes=True)
def _transposed(part: Part) -> Compute | None:
    order = part.axes("perm")
    return None if order is None else lambda x: x.permute(order)


@engine_op("Reshape", "FlattenV2", "Flatten")
def _reshaped(part: Part) -> Compute | None:
    """In the dims that were dumped, else in those that it is given."""

    def compute(x: Tensor, shape: Tensor | None = None) -> Tensor:
        if part.shape is not None:
            return x.reshape(part.shape)
        if shape is None:
            raise UnverifiableError("its dims are not known")
        return x.reshape(integers(shape))

    return compute


@engine_op("Unsqueeze", attributes=True)
def _unsqueezed(part: Part) -> Compute | None:
    axes = part.axes("axes")
    if axes is None or min(axes, default=0) < 0:
        return None

    def compute(x: Tensor) -> Tensor:
        for axis in sorted(axes):
            x = x.unsqueeze(axis)
        return x

    return compute


@engine_op("Squeeze", attributes=True)
def _squeezed(part: Part) -> Compute | None:
    axes = part.axes("axis")
    return None if not axes else lambda x: x.squeeze(tuple(axes))


@engine_op("Pack", attributes=True)
def _packed(part: Part) -> Compute | None:
    axis = part.axis("axis", 0)
    return None if axis is None else lambda *parts: torch.stack(parts, axis)


engine_op("ConcatV2")(plain(lambda *given: torch.cat(given[:-1], integers(given[-1])[0])))
engine_op("Concat")(plain(lambda *given: torch.cat(given[1:], integers(given[0])[0])))


@engine_op("ConcatV2D", "ConcatD", attributes=True)
def _joined(part: Part) -> Compute | None:
    axis = part.axis("concat_dim")
    return None if axis is None else lambda *parts: torch.cat(parts, axis)


@engine_op("SplitV")
def _split(part: Part) -> Compute | None:
    def compute(x: Tensor, sizes: Tensor, axis: Tensor) -> Sequence[Tensor]:
        dim, lengths = integers(axis)[0], integers(sizes)
        rest = x.shape[dim] - sum(one for one in lengths if one >= 0)
        return torch.split(x, [rest if one < 0 else one for one in lengths], dim)

    return compute


@engine_op("SplitVD", attributes=True)
def _split_by_sizes(part: Part) -> Compute | None:
    sizes, axis = part.axes("size_splits"), part.axis("split_dim")
    if sizes is None or axis is None or min(sizes) < 0:
        return None
    return lambda x: torch.split(x, sizes, axis)


@engine_op("Split", attributes=True)
def _split_evenly(part: Part) -> Compute | None:
    count = part.axis("num_split")
    if not count:
        return None
    return lambda axis, x: x.split(x.shape[integers(axis)[0]] // count, integers(axis)[0])


@engine_op("SplitD", attributes=True)
def _split_along(part: Part) -> Compute | None:
    count, axis = part.axis("num_split"), part.axis("split_dim")
    if not count or axis is None:
        return None
    return lambda x: x.split(x.shape[axis] // count, axis)


@engine_op("GatherV2", attributes=True)
def _gathered(part: Part) -> Compute | None:
    if part.attr("batch_dims", 0) != 0:
        return None
    return lambda x, places, axis: _selected(x, places, integers(axis)[0])


@engine_op("Gather", attributes=True)
def _gathered_rows(part: Part) -> Compute | None:
    return None if part.attr("batch_dims", 0) != 0 else lambda x, places: _selected(x, places, 0)


def _selected(x: Tensor, places: Tensor, axis: int) -> Tensor:
    axis %= x.dim()
    size = x.shape[axis]
    if places.numel() and not bool(((places >= -size) & (places < size)).all()):
        raise UnverifiableError("it looks up places that its input does not have")
    found = x.index_select(axis, (places % size).reshape(-1) if places.numel() else places)
    return found.reshape(*x.shape[:axis], *places.shape, *x.shape[axis + 1 :])


@engine_op("GatherElements", attributes=True)
def _gathered_elements(part: Part) -> Compute | None:
    dim = part.axis("dim", 0)
    return None if dim is None else lambda x, places: x.gather(dim, places.long())


@engine_op("Slice")
def _sliced(part: Part) -> Compute | None:
    def compute(x: Tensor, offsets: Tensor, sizes: Tensor) -> Tensor:
        for dim, (begin, size) in enumerate(zip(integers(offsets), integers(sizes), strict=True)):
            x = x.narrow(dim, begin, x.shape[dim] - begin if size < 0 else size)
        return x

    return compute


@engine_op("StridedSlice", attributes=True)
def _strided(part: Part) -> Compute | None:
    if any(part.attr(name, 0) for name in _MASKS):
        return None
    masks = _slice_masks(part)

    def compute(x: Tensor, begin: Tensor, end: Tensor, steps: Tensor) -> Tensor:
        return _cut(x, (integers(begin), integers(end), integers(steps)), None, masks)

    return None if masks is None else compute


@engine_op("StridedSliceV2", attributes=True)
def _strided_along(part: Part) -> Compute | None:
    if any(part.attr(name, 0) for name in _MASKS):
        return None
    masks = _slice_masks(part)

    def compute(
        x: Tensor,
        begin: Tensor,
        end: Tensor,
        axes: Tensor | None = None,
        steps: Tensor | None = None,
    ) -> Tensor:
        first = integers(begin)
        strides = [1] * len(first) if steps is None else integers(steps)
        dims = None if axes is None else integers(axes)
        return _cut(x, (first, integers(end), strides), dims, masks)

    return None if masks is None else compute


def _slice_masks(part: Part) -> tuple[int, ...] | None:
    found = [part.attr(name, 0) for name in _SLICE_MASKS]
    return tuple(found) if all(type(one) is int for one in found) else None


def _cut(
    x: Tensor,
    places: tuple[list[int], list[int], list[int]],
    dims: list[int] | None,
    masks: tuple[int, ...] | None,
) -> Tensor:
    """A box of a tensor. A bit of a mask says that a side is open, or that a dimension goes."""
    whole = [slice(None)] * x.dim()
    index: list[slice | int] = list(whole)
    open_begin, open_end, shrunk = masks or (0, 0, 0)
    for place, (begin, end, step) in enumerate(zip(*places, strict=True)):
        if step <= 0:
            raise UnverifiableError("it goes backwards")
        dim = place if dims is None else dims[place]
        bit = 1 << place
        if shrunk & bit:
            index[dim] = begin
        else:
            first, last = (
                None if m & bit else n for m, n in ((open_begin, begin), (open_end, end))
            )
            index[dim] = slice(first, last, step)
    return x[tuple(index)]


@engine_op("Shape", attributes=True)
def _dims(part: Part) -> Compute | None:
    dtype = part.dtype("dtype")
    if dtype not in _KINDS:
        return None
    return lambda x: torch.tensor(list(x.shape), dtype=dtype)


@engine_op("TopKV2", attributes=True)
def _largest(part: Part) -> Compute | None:
    dim, largest = part.axis("dim", -1), part.attr("largest", True)
    if dim is None or part.attr("sorted", True) is not True or type(largest) is not bool:
        return None

    def compute(x: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        values, places = x.topk(integers(count)[0], dim, largest=largest)
        return values, places.to(torch.int32)

    return compute


@engine_op("ArgMaxV2", attributes=True)
def _place_of_largest(part: Part) -> Compute | None:
    dtype = part.dtype("dtype")
    if dtype not in _KINDS:
        return None
    return lambda x, dim: x.argmax(integers(dim)[0]).to(dtype)


def is_other_choice(
    inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], params: Params
) -> bool:
    """True if the places that an operator returned hold the values that golden's hold.

    Equal values may come in any order. Params: ``type``, and for ``TopKV2`` ``dim`` and
    ``largest``.
    """
    given = inputs[0] if inputs else None
    if given is None:
        return False
    if params.get("type") == "ArgMaxV2" and len(outputs) == 1 and inputs[1] is not None:
        dim = integers(inputs[1])[0]
        places = outputs[0].long().unsqueeze(dim)
        return _are_places(places, given, dim) and torch.equal(
            given.gather(dim, places), given.amax(dim, keepdim=True)
        )
    if params.get("type") != "TopKV2" or len(outputs) != 2:
        return False
    values, places = outputs[0], outputs[1].long()
    dim = params.get("dim", -1)
    if values.dim() != given.dim() or not _are_places(places, given, dim):
        return False
    best, _ = given.topk(values.shape[dim], dim, largest=bool(params.get("largest", True)))
    once = places.sort(dim).values.diff(dim=dim)
    return (
        bool((once != 0).all())
        and torch.equal(given.gather(dim, places), values)
        and torch.equal(values, best)
    )


def _are_places(places: Tensor, given: Tensor, dim: int) -> bool:
    return bool(((places >= 0) & (places < given.shape[dim])).all())
