"""What is known of a tensor without its values."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ait_llm.core.dtype import DType

# ATB format codes that this project computes with; the full table is in formats.
FORMAT_ND = 2
FORMAT_FRACTAL_NZ = 29


@dataclass(frozen=True, slots=True)
class TensorDesc:
    """Element type, storage format (ATB code) and storage shape of a tensor."""

    dtype: DType
    shape: tuple[int, ...]
    format: int = FORMAT_ND

    @property
    def elements(self) -> int:
        """Number of elements; 1 for rank 0."""
        return math.prod(self.shape)

    @property
    def is_absent(self) -> bool:
        """No tensor to the acceleration library: without type, dimensions or elements."""
        return self.dtype is DType.UNDEFINED or not self.shape or 0 in self.shape

    @property
    def byte_count(self) -> int:
        """Bytes of the packed data."""
        return self.dtype.byte_count(self.elements)
