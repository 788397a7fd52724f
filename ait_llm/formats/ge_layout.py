"""Private device layouts with recorded logical dims, to row-major arrays.

Dump files of the graph engine hold both the stored and the logical dims of a tensor. The block
size C0 is the last stored dim; it does not follow from the element type. Source: the layout
descriptions in the CANN documentation.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ait_llm.formats.elements import Array
from ait_llm.formats.ge_types import (
    FORMAT_FRACTAL_Z,
    FORMAT_NDC1HWC0,
    GE_NZ_FORMATS,
    GE_PLAIN_FORMATS,
    ge_format_name,
)
from ait_llm.formats.names import FORMAT_NC1HWC0

_COLUMNS_AT_ONCE = 8  # blocks of FRACTAL_NZ; so many make whole cache lines of a row

# Orders of the dims of an image or of a weight, and where N, C, (D,) H, W lie in them.
_FOUR: dict[str, tuple[int, ...]] = {
    "NCHW": (0, 1, 2, 3),
    "NHWC": (0, 3, 1, 2),
    "HWCN": (3, 2, 0, 1),
    "CHWN": (3, 0, 1, 2),
}
_FIVE: dict[str, tuple[int, ...]] = {
    "NCDHW": (0, 1, 2, 3, 4),
    "NDHWC": (0, 4, 1, 2, 3),
    "DHWCN": (4, 3, 0, 1, 2),
}
_ORDER_OF_FORMAT = {0: "NCHW", 1: "NHWC", 14: "CHWN", 16: "HWCN", 27: "NDHWC", 30: "NCDHW"}
_ORDER_OF_FORMAT[31] = "DHWCN"


def to_logical(
    flat: Array,
    shape: Sequence[int],
    format: int,
    logical: Sequence[int] | None,
    *,
    groups: int = 0,
    origin: int | None = None,
) -> Array:
    """The row-major array of the logical dims.

    Args:
        flat: the stored elements.
        shape: stored dims.
        format: layout of the stored elements.
        logical: logical dims, None if they were not recorded; then padding cannot be told from
            values, and only layouts without padding are restored.
        groups: group count of FRACTAL_Z.
        origin: format of the logical dims, which tells NHWC from NCHW where both fit.

    Returns:
        Dims ``logical``, or ``shape`` without them. A view of ``flat`` where the layout is plain.

    Raises:
        ValueError: the dims do not belong together, or the layout is not converted.
    """
    if flat.size != prod(shape):
        raise ValueError(f"{flat.size} elements do not fill the stored dims {list(shape)}")
    if format in GE_PLAIN_FORMATS:
        return flat.reshape(known_dims(shape, format, logical))
    name = ge_format_name(format)
    if logical is None or min(logical, default=0) < 0:
        raise ValueError(f"holds {name} and not the logical dims, padding cannot be cut off")
    if flat.size == 0 and prod(logical) == 0:
        return flat.reshape(tuple(logical))
    if flat.size == 0:
        raise ValueError(f"dims {list(logical)} are not those of {name} {list(shape)}")
    stored = flat.reshape(tuple(shape))
    order = _ORDER_OF_FORMAT.get(-1 if origin is None else origin)
    if format in GE_NZ_FORMATS:
        return _from_nz(stored, tuple(logical))
    if format == FORMAT_NC1HWC0 and stored.ndim == 5:
        return _from_blocked_channels(stored, tuple(logical), order)
    if format == FORMAT_NDC1HWC0 and stored.ndim == 6:
        return _from_blocked_volume(stored, tuple(logical), order)
    if format == FORMAT_FRACTAL_Z and stored.ndim == 4 and groups <= 1:
        return _from_fractal_z(stored, tuple(logical), order)
    grouped = f" of {groups} groups" if format == FORMAT_FRACTAL_Z and groups > 1 else ""
    raise ValueError(f"{name}{grouped} with stored dims {list(shape)} is not converted")


def known_dims(shape: Sequence[int], format: int, logical: Sequence[int] | None) -> tuple[int, ...]:
    """The logical dims where they are recorded and can be those of the tensor, else the stored."""
    if logical is None or min(logical, default=0) < 0:
        return tuple(shape)
    if format in GE_PLAIN_FORMATS and prod(logical) != prod(shape):
        return tuple(shape)
    return tuple(logical)


def _from_nz(stored: Array, logical: tuple[int, ...]) -> Array:
    """[..., N1, M1, M0, C0] to [..., M, N]; a vector is the only row of a matrix."""
    refusal = ValueError(f"dims {list(logical)} are not those of FRACTAL_NZ {list(stored.shape)}")
    if stored.ndim < 4 or not logical:
        raise refusal
    *batch, columns_1, rows_1, rows_0, c0 = stored.shape
    *outer, rows, columns = (1, *logical) if len(logical) == 1 else logical
    if prod(batch) != prod(outer) or -(-rows // rows_0) != rows_1 or -(-columns // c0) != columns_1:
        raise refusal
    blocks = stored.reshape(prod(outer), columns_1, rows_1 * rows_0, c0)[:, :, :rows]
    matrix = np.empty((prod(outer), rows, columns_1, c0), stored.dtype)
    for first in range(0, columns_1, _COLUMNS_AT_ONCE):
        some = slice(first, first + _COLUMNS_AT_ONCE)
        matrix[:, :, some] = blocks[:, some].transpose(0, 2, 1, 3)
    cropped: Array = matrix.reshape(prod(outer), rows, columns_1 * c0)[:, :, :columns].reshape(
        logical
    )
    return cropped


def _from_blocked_channels(stored: Array, logical: tuple[int, ...], order: str | None) -> Array:
    """[N, C1, H, W, C0] to the order of the logical dims."""
    images, groups, height, width, c0 = stored.shape
    places = _places(_FOUR, logical, order, (images, groups, c0, height, width), "NC1HWC0")
    channels = logical[places[1]]
    merged = stored.transpose(0, 1, 4, 2, 3).reshape(images, groups * c0, height, width)
    return _in_order(merged[:, :channels], places)


def _from_blocked_volume(stored: Array, logical: tuple[int, ...], order: str | None) -> Array:
    """[N, D, C1, H, W, C0] to the order of the logical dims."""
    images, depth, groups, height, width, c0 = stored.shape
    places = _places(_FIVE, logical, order, (images, groups, c0, depth, height, width), "NDC1HWC0")
    channels = logical[places[1]]
    merged = stored.transpose(0, 2, 5, 1, 3, 4).reshape(images, groups * c0, depth, height, width)
    return _in_order(merged[:, :channels], places)


def _from_fractal_z(stored: Array, logical: tuple[int, ...], order: str | None) -> Array:
    """A weight, [C1*H*W, N1, N0, C0], to the order of the logical dims."""
    blocks, outer, inner, c0 = stored.shape
    candidates = sorted(_FOUR, key=lambda candidate: candidate != order)
    for places in (_FOUR[candidate] for candidate in candidates if len(logical) == 4):
        number, channels, height, width = (logical[place] for place in places)
        groups = -(-channels // c0)
        if groups * height * width == blocks and -(-number // inner) == outer:
            split = stored.reshape(groups, height, width, outer, inner, c0)
            merged = split.transpose(3, 4, 0, 5, 1, 2)
            merged = merged.reshape(outer * inner, groups * c0, height, width)
            return _in_order(merged[:number, :channels], places)
    raise ValueError(f"dims {list(logical)} are not those of FRACTAL_Z {list(stored.shape)}")


def _places(
    orders: dict[str, tuple[int, ...]],
    logical: tuple[int, ...],
    order: str | None,
    stored: tuple[int, ...],
    name: str,
) -> tuple[int, ...]:
    """Where N, C and the extents lie in the logical dims.

    Args:
        orders: the candidates; the first that fits is taken.
        logical: logical dims.
        order: the recorded order, tried before the others.
        stored: N, C1, C0, then the extents.
        name: of the format, for the message.
    """
    images, groups, c0, *extents = stored
    candidates = sorted(orders, key=lambda candidate: candidate != order)
    for places in (orders[candidate] for candidate in candidates):
        if len(logical) != len(places):
            continue
        number, channels, *sizes = (logical[place] for place in places)
        if number == images and sizes == extents and -(-channels // c0) == groups:
            return places
    raise ValueError(f"dims {list(logical)} are not those of {name} {list(stored)}")


def _in_order(array: Array, places: tuple[int, ...]) -> Array:
    """Put the axes N, C, … where the logical dims have them."""
    axes = sorted(range(len(places)), key=lambda axis: places[axis])
    ordered: Array = array.transpose(axes)
    return ordered
