"""Shapes, types and parameters, where a damaged file is no reason to stop."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.match.shapes import logical_shape


def shape_of(tensor: Tensor) -> tuple[int, ...] | None:
    """Dims of the values in row-major order; None if the file is damaged."""
    try:
        return logical_shape(tensor)
    except AitError:
        return None


def params_of(operation: Operation) -> Mapping[str, Any]:
    """The parameters of an operation; none if their file is damaged."""
    try:
        return operation.params
    except AitError:
        return {}


def is_float(tensor: Tensor) -> bool:
    """True for floating-point values; False if the file is damaged."""
    try:
        return tensor.dtype.is_floating
    except AitError:
        return False


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
