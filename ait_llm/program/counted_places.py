"""Places of tokens that functions count, to make masks and angles of them.

Each pass counts its own tokens: from 0 on where nothing was read before, and with the padding of
its batch. What two programs count differs wherever one of them reads other tokens in a call; what
is made of it, a mask or angles, is compared for the tokens that both have.
"""

from __future__ import annotations

import numpy as np

from ait_llm.core import DType
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.program.describe import dtype_of, shape_of

PLACES = "each side counts the places of its own tokens"
"""Why such places are not compared."""

_MOST = 1 << 20  # elements: more tokens than a pass reads
_INTEGERS = frozenset({DType.INT32, DType.INT64})


def is_function(operation: Operation) -> bool:
    """True for a call of a function in a capture of the API, which names no arguments."""
    return bool(operation.api_name) and not operation.api_name.startswith(("Module.", "Cell."))


def are_places(tensor: Tensor) -> bool:
    """True for integers of which each is one more than the one before, along the only axis."""
    dtype, shape = dtype_of(tensor), shape_of(tensor)
    if dtype not in _INTEGERS or shape is None or not tensor.has_data:
        return False
    count = max(shape, default=1)
    if sum(size != 1 for size in shape) > 1 or not 0 < count <= _MOST:
        return False
    try:
        values = tensor.nd().reshape(-1).astype(np.int64)
    except (AitError, OverflowError):
        return False
    return bool((np.diff(values) == 1).all()) and int(values[0]) >= 0


def have_same_integers(one: Tensor, other: Tensor) -> bool:
    """True if two small tensors of integers hold the same ones, whatever their shapes."""
    try:
        return np.array_equal(one.nd().reshape(-1), other.nd().reshape(-1))
    except AitError:
        return True
