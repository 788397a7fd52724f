"""Operators that move elements: Slice, Split, Gather, Transpose, Transdata and their like."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ait_llm.core import DType
from ait_llm.hostatb.acceptance.base import (
    Acceptance,
    Descs,
    Params,
    accept,
    counted_as,
    require_input,
    require_kind,
    require_param,
)
from ait_llm.hostatb.acceptance.matrix import require_rank
from ait_llm.opcheck.golden.base import Refusal

_MOST = (1 << 63) - 1  # of the 64 bits that the library computes sizes in
_MOST_DIMS, _MOST_BATCH = 8, 64


def _slice(params: Params, inputs: Descs) -> None:
    shape = inputs[0].shape
    offsets, sizes = list(params["offsets"]), list(params["size"])
    fits = len(offsets) == len(sizes) == len(shape)
    for offset, size, length in zip(offsets, sizes, shape, strict=False):
        start = offset + length if offset < 0 else offset
        count = length - start if size == -1 else size
        fits = fits and start >= 0 and size >= -1 and start + count <= length
    require_param(fits, "offsets, size", [offsets, sizes], f"-> {list(shape)}")


accept(
    Acceptance(
        "SliceOperation",
        lambda _: "SliceOperation",
        inputs=_slice,
        outputs=counted_as(Refusal.DIM),
    )
)


def _split_inputs(params: Params, inputs: Descs) -> None:
    x, axis, count = inputs[0], params["splitDim"], params["splitNum"]
    sizes, rank = list(params["splitSizes"]), len(inputs[0].shape)
    require_param(-rank <= axis < rank, "splitDim", axis, f"{-rank} to {rank - 1}")
    if not sizes:
        require_input(x.shape[axis] % count == 0, 0, x, f"dim {axis} = {count} * n")
        return
    require_param(axis >= 0, "splitDim", axis, ">= 0 (splitSizes)")
    fits = len(sizes) == count and min(sizes) >= 1 and sum(sizes) == x.shape[axis]
    require_param(fits, "splitSizes", sizes, f"{count}, sum = {x.shape[axis]}")


accept(
    Acceptance(
        "SplitOperation",
        lambda params: f"SplitOperation{'BI' if params['splitNum'] == 2 else 'TRI'}SECT",
        inputs=_split_inputs,
    )
)


def _as_strided(params: Params, inputs: Descs) -> None:
    size, stride = list(params["size"]), list(params["stride"])
    offset = list(params["offset"])
    fits = len(size) <= _MOST_DIMS and len(size) == len(stride) and len(offset) == 1
    fits = fits and offset[0] >= 0 and all(n > 0 for n in size) and all(n >= 0 for n in stride)
    last = sum((n - 1) * step for n, step in zip(size, stride, strict=False))
    elements = math.prod(inputs[0].shape)
    fits = fits and offset[0] + last < elements
    require_param(fits, "size, stride, offset", [size, stride, offset], f"< {elements}")


accept(
    Acceptance(
        "AsStridedOperation",
        lambda _: "AsStridedOperation",
        inputs=_as_strided,
        outputs=counted_as(Refusal.SIZE),
    )
)


def _transpose(params: Params, inputs: Descs) -> None:
    order, rank = list(params["perm"]), len(inputs[0].shape)
    require_param(sorted(order) == list(range(rank)), "perm", order, f"0 to {rank - 1}")


accept(Acceptance("TransposeOperation", lambda _: "TransposeOperation", inputs=_transpose))


def _concat(params: Params, inputs: Descs) -> None:
    x, other = inputs
    axis = params["concatDim"]
    place = axis + len(x.shape) if axis < 0 else axis
    fits = 0 <= place < min(len(x.shape), len(other.shape))
    require_param(fits, "concatDim", axis, f"< {len(x.shape)}")
    alike = len(x.shape) == len(other.shape) and all(
        own == wanted
        for index, (own, wanted) in enumerate(zip(other.shape, x.shape, strict=True))
        if index != place
    )
    require_input(alike, 1, other, f"~ {list(x.shape)}, dim {place}")


accept(Acceptance("ConcatOperation", lambda _: "ConcatOperation", inputs=_concat))


def _gather(params: Params) -> None:
    axis, batch = params["axis"], params["batchDims"]
    require_param(axis >= 0, "axis", axis, ">= 0")
    require_param(0 <= batch <= axis, "batchDims", batch, f"0 to {axis}")


def _gather_inputs(params: Params, inputs: Descs) -> None:
    x, indices = inputs
    axis, batch = params["axis"], params["batchDims"]
    require_param(axis < len(x.shape), "axis", axis, f"< {len(x.shape)}")
    require_param(batch <= len(indices.shape), "batchDims", batch, f"<= {len(indices.shape)}")
    rank = len(x.shape) + len(indices.shape) - 1 - batch
    require_input(rank <= _MOST_DIMS, 1, indices, "ndim <= 8 (output)", Refusal.DIM_COUNT)
    wanted = list(x.shape[:batch])
    require_input(list(indices.shape[:batch]) == wanted, 1, indices, f"{wanted} + ...")


accept(Acceptance("GatherOperation", lambda _: "GatherOperation", _gather, _gather_inputs))


def _repeat(params: Params) -> None:
    times = list(params["multiples"])
    fits = len(times) <= _MOST_DIMS and all(n > 0 for n in times)
    require_param(fits, "multiples", times, "> 0, ndim <= 8")


def _repeat_inputs(params: Params, inputs: Descs) -> None:
    """The kernel puts another dimension before each one that it repeats."""
    x, times = inputs[0], list(params["multiples"])
    rank = len(x.shape)
    fits = rank <= len(times)
    pairs = zip(times, x.shape, strict=False)  # the library pairs them from the front, too
    repeated = sum(n > 1 and length > 1 for n, length in pairs)
    fits = fits and repeated + max(rank, len(times)) <= _MOST_DIMS
    require_input(fits, 0, x, f"ndim <= {len(times)}, + {repeated} <= 8")
    inside = all(n * length <= _MOST for n, length in zip(times[::-1], x.shape[::-1], strict=False))
    require_param(inside, "multiples", times, f"<= {_MOST}")


accept(
    Acceptance(
        "RepeatOperation",
        lambda _: "RepeatOperation",
        _repeat,
        _repeat_inputs,
        counted_as(Refusal.DIM),
    )
)


def _scatter(params: Params) -> None:
    axis, reduction = params["axis"], int(params["reduction"])
    require_param(axis == -1, "axis", axis, "-1")
    require_param(reduction in (0, 1), "reduction", reduction, "0, 1")


def _scatter_inputs(params: Params, inputs: Descs) -> None:
    x, indices, update = inputs
    require_kind(update.dtype is x.dtype, 2, update, x.dtype.label)
    require_input(update.shape == indices.shape, 2, update, str(list(indices.shape)))
    fits = len(indices.shape) == len(x.shape) and indices.shape[1:-1] == x.shape[1:-1]
    fits = fits and indices.shape[0] <= x.shape[0] and indices.shape[-1] <= x.shape[-1]
    require_input(fits, 1, indices, f"<= {list(x.shape)}")


accept(
    Acceptance(
        "ScatterElementsV2Operation",
        lambda _: "ScatterElementsV2Operation",
        _scatter,
        _scatter_inputs,
    )
)


def _set_value(params: Params, inputs: Descs) -> None:
    x, source = inputs
    rank = len(x.shape)
    require_rank(1, source, rank)
    lists: list[Sequence[int]] = [params[name] for name in ("starts", "ends", "strides")]
    starts, ends, strides = (list(one) for one in lists)
    fits = len(starts) == len(ends) == len(strides) == rank
    require_param(fits, "starts, ends, strides", [starts, ends, strides], f"ndim {rank}")
    inside = all(own <= length for own, length in zip(source.shape, x.shape, strict=True))
    require_input(inside, 1, source, f"<= {list(x.shape)}")
    require_param(all(n == 1 for n in strides), "strides", strides, "1")
    fits = all(
        0 <= start < end <= length and end - start == own
        for start, end, length, own in zip(starts, ends, x.shape, source.shape, strict=True)
    )
    require_param(fits, "starts, ends", [starts, ends], f"-> {list(source.shape)}")
    others = sum(own != length for own, length in zip(source.shape[1:], x.shape[1:], strict=True))
    require_input(others == 1, 1, source, f"{list(x.shape)}, one dimension after the first less")


accept(Acceptance("SetValueOperation", lambda _: "SetValueOperation", inputs=_set_value))


def _index_add(params: Params) -> None:
    kind, axis = int(params["indexType"]), params["axis"]
    require_param(kind in (1, 2), "indexType", kind, "1, 2")
    require_param(kind == 1 or axis == 0, "axis", axis, "0 (indexType 2)")


def _index_add_inputs(params: Params, inputs: Descs) -> None:
    x, indices, update, last = inputs
    rank, axis = len(x.shape), params["axis"]
    valid = int(params["indexType"]) == 2
    count = Refusal.SIZE
    if valid:
        if x.dtype is DType.BFLOAT16:
            count = Refusal.DIM
        require_rank(0, x, 2, status=count)
        require_input(x.shape[1] <= 8192, 0, x, "[n, <= 8192]")
    else:
        require_param(-rank <= axis < rank, "axis", axis, f"{-rank} to {rank - 1}")
    require_rank(1, indices, 1, status=count)
    require_rank(2, update, rank, status=count)
    wanted = list(x.shape)
    wanted[axis] = indices.shape[0]
    require_input(list(update.shape) == wanted, 2, update, str(wanted))
    require_rank(3, last, 1, status=count)
    require_input(last.shape == (1,), 3, last, "[1]")


accept(
    Acceptance(
        "IndexAddOperation",
        lambda params: f"IndexAddOperationIndexAdd{['', '', 'Valid'][int(params['indexType'])]}",
        _index_add,
        _index_add_inputs,
    )
)


def _pad(params: Params, inputs: Descs) -> None:
    tokens, places, lengths, batch = inputs
    for index, desc in enumerate(inputs):
        require_rank(index, desc, 2, status=Refusal.DIM)
    require_input(places.shape == (1, tokens.shape[0]), 1, places, f"[1, {tokens.shape[0]}]")
    require_input(batch.shape[0] <= _MOST_BATCH, 3, batch, f"[<= {_MOST_BATCH}, n]")
    require_input(lengths.shape == (batch.shape[0], 1), 2, lengths, f"[{batch.shape[0]}, 1]")


accept(Acceptance("PadOperation", lambda _: "PadOperation", inputs=_pad))


def _unpad(params: Params, inputs: Descs) -> None:
    tokens, offsets, total, lengths = inputs
    for index, desc in enumerate(inputs):
        require_rank(index, desc, 2, status=Refusal.DIM)
    require_input(total.shape == (1, 1), 2, total, "[1, 1]")
    batch = lengths.shape[0]
    require_input(batch <= _MOST_BATCH and lengths.shape[1] == 1, 3, lengths, "[<= 64, 1]")
    require_input(offsets.shape == (batch, 1), 1, offsets, f"[{batch}, 1]")
    require_input(tokens.shape[0] == batch, 0, tokens, f"[{batch}, n]")


def _any_shape(params: Params, inputs: Descs, outputs: Descs, inferred: Descs) -> None:
    return None


accept(
    Acceptance(
        "UnpadOperation",
        lambda _: "UnpadOperation",
        inputs=_unpad,
        outputs=_any_shape,
        free=(0, 1, 2),
    )
)


def _to_blocks(params: Params) -> bool:
    return int(params["transdataType"]) == 2


def _crops(params: Params, inputs: Descs) -> None:
    """Crops may cut less than a block of 16 off."""
    x, crops = inputs[0], list(params["outCrops"])
    require_param(len(crops) == 2, "outCrops", crops, "[rows, columns]")
    _, columns, rows, width = x.shape
    most = [-(-length // 16) * 16 for length in (rows, columns * width)]
    fits = all(top - 16 < crop <= top and crop > 0 for crop, top in zip(crops, most, strict=True))
    require_param(fits, "outCrops", crops, f"{[top - 15 for top in most]} to {most}")


def _transdata(params: Params, inputs: Descs) -> None:
    kind = int(params["transdataType"])
    if _to_blocks(params):
        require_rank(0, inputs[0], 2, 3, status=Refusal.DIM)
        return
    if kind == 1:
        require_rank(0, inputs[0], 4, status=Refusal.DIM)
        _crops(params, inputs)
        return
    require_param(False, "transdataType", kind, "1, 2")


accept(
    Acceptance(
        "TransdataOperation",
        lambda params: f"TransdataOperation{'NdToNz' if _to_blocks(params) else 'NzToNd'}",
        inputs=_transdata,
        outputs=counted_as(Refusal.DIM),
    )
)
