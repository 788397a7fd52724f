"""Sizes of dumped tensors, known from their headers."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ait_llm.dumps.model import Tensor
from ait_llm.errors import UsageError


def check_size(name: str, tensors: Iterable[Tensor], max_bytes: int) -> None:
    """Refuse more bytes than wanted, before any of them is read.

    Raises:
        UsageError: they are more.
    """
    size = sum(tensor.dtype.byte_count(math.prod(tensor.shape)) for tensor in tensors)
    if size > max_bytes:
        raise UsageError(
            f"{name}: its tensors are {size:,} bytes, more than {max_bytes:,}; raise --max-size"
        )
