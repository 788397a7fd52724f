"""Private device layouts to row-major arrays and back.

FRACTAL_NZ stores a matrix as columns of blocks, each block 16 rows of C0 elements; C0 is 32 bytes'
worth (16 for 16-bit types, 32 for 8-bit ones). NC1HWC0 splits the channels of an image into C1
groups of C0. Both pad with zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ait_llm.core import FORMAT_FRACTAL_NZ, DType
from ait_llm.formats.elements import Array
from ait_llm.formats.names import (
    FORMAT_FRACTAL_NZ_C0_16,
    FORMAT_FRACTAL_NZ_C0_32,
    FORMAT_NC1HWC0,
    PLAIN_FORMATS,
    format_name,
)

NZ_ROWS = 16  # rows of a block
_BLOCK_ROW_BYTES = 32  # a row of a block
_NZ_FORMATS = frozenset({FORMAT_FRACTAL_NZ, FORMAT_FRACTAL_NZ_C0_16, FORMAT_FRACTAL_NZ_C0_32})


def nz_c0(dtype: DType, format: int = FORMAT_FRACTAL_NZ) -> int:
    """Elements in a row of an NZ block.

    Raises:
        ValueError: elements of that type have no fixed size.
    """
    if format == FORMAT_FRACTAL_NZ_C0_16:
        return 16
    if format == FORMAT_FRACTAL_NZ_C0_32:
        return 32
    if dtype.bits == 0:
        raise ValueError(f"{dtype.label} elements have no size")
    return min(_BLOCK_ROW_BYTES * 8 // dtype.bits, 64)


def nz_storage_shape(shape: Sequence[int], c0: int) -> tuple[int, ...]:
    """Storage dims [..., n1, m, C0] of a matrix [..., rows, columns], m padded to 16 rows.

    Raises:
        ValueError: fewer than two dims.
    """
    if len(shape) < 2:
        raise ValueError(f"FRACTAL_NZ needs a matrix, not dims {list(shape)}")
    *batch, rows, columns = shape
    return (*batch, -(-columns // c0), -(-rows // NZ_ROWS) * NZ_ROWS, c0)


def nd_to_nz(array: Array, c0: int) -> Array:
    """Store a matrix as FRACTAL_NZ.

    Args:
        array: [..., rows, columns].
        c0: elements in a row of a block, see :func:`nz_c0`.

    Returns:
        [..., ceil(columns / c0), rows padded to 16, c0], padding zero.
    """
    *batch, columns_1, rows_padded, _ = nz_storage_shape(array.shape, c0)
    padded = np.zeros((*batch, rows_padded, columns_1 * c0), dtype=array.dtype)
    padded[..., : array.shape[-2], : array.shape[-1]] = array
    blocks = padded.reshape(*batch, rows_padded, columns_1, c0)
    return np.ascontiguousarray(np.moveaxis(blocks, -2, -3))


def nz_to_nd(array: Array, logical: Sequence[int] | None = None) -> Array:
    """Restore a matrix from FRACTAL_NZ.

    Args:
        array: [..., n1, m, C0].
        logical: wanted dims; padding beyond them is cut. None keeps the padding.

    Returns:
        [..., m, n1 * C0], or an array of dims ``logical``.

    Raises:
        ValueError: the storage dims cannot hold the logical ones.
    """
    if array.ndim < 3:
        raise ValueError(f"FRACTAL_NZ storage needs 3 dims, not {list(array.shape)}")
    *batch, columns_1, rows, c0 = array.shape
    matrix: Array = np.moveaxis(array, -3, -2).reshape(*batch, rows, columns_1 * c0)
    if logical is None:
        return matrix
    if len(logical) == 1:  # a vector is stored as a matrix of one row
        logical = (1, *logical)
        vector = True
    else:
        vector = False
    if (
        logical[-2] > rows
        or logical[-1] > columns_1 * c0
        or math.prod(batch) != math.prod(logical[:-2])
    ):
        raise ValueError(f"storage dims {list(array.shape)} do not hold dims {list(logical)}")
    cropped: Array = matrix[..., : logical[-2], : logical[-1]].reshape(logical)
    return cropped[0] if vector else cropped


def nc1hwc0_to_nchw(array: Array, channels: int | None = None) -> Array:
    """[N, C1, H, W, C0] to [N, C, H, W]; ``channels`` cuts the padding of C.

    Raises:
        ValueError: not five dims, or fewer channels stored than wanted.
    """
    if array.ndim != 5:
        raise ValueError(f"NC1HWC0 storage has 5 dims, not {list(array.shape)}")
    images, groups, height, width, c0 = array.shape
    merged: Array = array.transpose(0, 1, 4, 2, 3).reshape(images, groups * c0, height, width)
    if channels is None:
        return merged
    if channels > groups * c0:
        raise ValueError(f"storage dims {list(array.shape)} do not hold {channels} channels")
    return merged[:, :channels]


def nchw_to_nc1hwc0(array: Array, c0: int) -> Array:
    """[N, C, H, W] to [N, ceil(C / c0), H, W, c0], padding zero."""
    images, channels, height, width = array.shape
    groups = -(-channels // c0)
    padded = np.zeros((images, groups * c0, height, width), dtype=array.dtype)
    padded[:, :channels] = array
    split = padded.reshape(images, groups, c0, height, width)
    return np.ascontiguousarray(split.transpose(0, 1, 3, 4, 2))


def stored_shape(shape: Sequence[int], format: int, dtype: DType, stored: int) -> tuple[int, ...]:
    """Dims in which ``stored`` elements of a tensor with those header dims really lie.

    The header of a FRACTAL_NZ tensor holds its storage dims, or, where a framework cast a weight
    in place, the logical ones, whose storage is padded.

    Raises:
        ValueError: the number of elements fits neither.
    """
    if math.prod(shape) == stored:
        return tuple(shape)
    if format in _NZ_FORMATS and len(shape) >= 2:
        padded = nz_storage_shape(shape, nz_c0(dtype, format))
        if math.prod(padded) == stored:
            return padded
    raise ValueError(
        f"{stored} elements do not fill dims {list(shape)} of format {format_name(format)}"
    )


def to_nd(array: Array, header_shape: Sequence[int], format: int, dtype: DType) -> Array:
    """The row-major array that a stored one stands for, as far as its header tells.

    Plain formats pass unchanged. FRACTAL_NZ with logical header dims is restored to exactly those;
    with storage dims the padding cannot be known and stays.

    Args:
        array: as stored, in the dims of :func:`stored_shape`.
        header_shape: dims in the header.
        format: ATB format code.
        dtype: logical element type.

    Raises:
        ValueError: a format that is not converted, or dims that are not of that format.
    """
    if format in PLAIN_FORMATS:
        return array
    if format == FORMAT_NC1HWC0:
        return nc1hwc0_to_nchw(array)
    if format not in _NZ_FORMATS:
        raise ValueError(f"format {format_name(format)} is not converted to ND")
    c0 = nz_c0(dtype, format)
    if tuple(array.shape) != tuple(header_shape):  # logical dims, padded storage
        return nz_to_nd(array, header_shape)
    if len(header_shape) >= 4 and header_shape[-1] == c0 and header_shape[-2] % NZ_ROWS == 0:
        return nz_to_nd(array)
    if len(header_shape) >= 2:  # logical dims that happen to need no padding
        padded = nz_storage_shape(header_shape, c0)
        if math.prod(padded) == array.size:
            return nz_to_nd(array.reshape(padded), header_shape)
    raise ValueError(f"dims {list(header_shape)} are not those of FRACTAL_NZ")
