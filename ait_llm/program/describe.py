"""Shapes, types and parameters, where a damaged file is no reason to stop."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from ait_llm.core import FORMAT_ND, DType
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.formats.layout import NZ_ROWS, nz_c0
from ait_llm.formats.names import FORMAT_FRACTAL_NZ_C0_16, FORMAT_FRACTAL_NZ_C0_32, FORMAT_NC1HWC0

NZ_FORMATS = frozenset({29, FORMAT_FRACTAL_NZ_C0_16, FORMAT_FRACTAL_NZ_C0_32})
"""Formats in tiles of 16 rows, by code."""


_NODE_INPUT = "INPUT."


def logical_shape(tensor: Tensor) -> tuple[int, ...]:
    """Dims of the row-major array that :meth:`Tensor.nd` returns.

    Raises:
        FormatError: the header is damaged.
    """
    shape, code = tuple(tensor.shape), tensor.format
    if code == FORMAT_ND or tensor.source.has_logical_dims(tensor):
        return shape
    if code in NZ_FORMATS and len(shape) >= 4 and _is_storage(shape, tensor.dtype, code):
        *batch, columns, rows, c0 = shape
        return (*batch, rows, columns * c0)
    if code == FORMAT_NC1HWC0 and len(shape) == 5:
        images, groups, height, width, c0 = shape
        return (images, groups * c0, height, width)
    return shape


def _is_storage(shape: tuple[int, ...], dtype: DType, code: int) -> bool:
    try:
        return shape[-1] == nz_c0(dtype, code) and shape[-2] % NZ_ROWS == 0
    except ValueError:
        return False


def shape_of(tensor: Tensor) -> tuple[int, ...] | None:
    """Dims of the values in row-major order; None if the file is damaged."""
    try:
        return logical_shape(tensor)
    except AitError:
        return None


def dtype_of(tensor: Tensor) -> DType | None:
    """Element type; None if the file is damaged, of which whoever reads it says what is wrong."""
    try:
        return tensor.dtype
    except AitError:
        return None


def params_of(operation: Operation) -> Mapping[str, Any]:
    """The parameters of an operation; none if their file is damaged."""
    try:
        return dict(operation.params)
    except AitError:
        return {}


def plain_arguments(operation: Operation) -> frozenset[str]:
    """Stems of inputs that are numbers of the program's text: a node's dump saves these, too."""
    if not any(each.stem.startswith(_NODE_INPUT) for each in operation.inputs):
        return frozenset()  # nobody asks for a file of parameters in vain
    return frozenset(f"{_NODE_INPUT}{name}" for name in params_of(operation))


def is_float(tensor: Tensor) -> bool:
    """True for floating-point values; False if the file is damaged."""
    dtype = dtype_of(tensor)
    return dtype is not None and dtype.is_floating


def width_of(tensor: Tensor) -> int:
    """Elements of the last axis, 0 if unknown."""
    shape = shape_of(tensor)
    return shape[-1] if shape else 0


def size_of(tensor: Tensor) -> int:
    """Number of elements, 0 if unknown."""
    shape = shape_of(tensor)
    return prod(shape) if shape else 0


def integers(tensor: Tensor, most: int = 1 << 24) -> Array | None:
    """The values of a tensor of integers or truth values.

    Returns:
        None for other types, more than ``most`` elements, or values that cannot be read.
    """
    try:
        if tensor.dtype.is_floating or size_of(tensor) > most or not tensor.has_data:
            return None
        array = tensor.nd()
    except AitError:
        return None
    return array.astype(np.int64) if array.dtype.kind in "iub" else None
