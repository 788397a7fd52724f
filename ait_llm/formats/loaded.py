"""What a reader of any file format hands back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ait_llm.core import FORMAT_ND, DType
from ait_llm.formats.elements import Array

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class LoadedTensor:
    """Values with their logical type.

    Attributes:
        array: the values; widened where NumPy has no type for them (HiFloat8, complex32).
        dtype: the logical element type.
        format: ATB format code of the layout, ND unless the file says otherwise.
    """

    array: Array
    dtype: DType
    format: int = FORMAT_ND

    def torch(self) -> torch.Tensor:
        """The values as a CPU torch tensor, see ``torch_bridge.to_torch``.

        Raises:
            MissingDependencyError: torch is not installed.
        """
        from ait_llm.formats.torch_bridge import to_torch

        return to_torch(self.array, self.dtype)


def dtype_of(array: Array) -> DType:
    """Logical type of an array that carries it itself.

    Raises:
        ValueError: NumPy holds it, but no dump format has such elements.
    """
    plain = array.dtype.newbyteorder("=")
    for member in DType:
        if member.numpy_type is not None and plain == member.numpy_type:
            return member
    raise ValueError(f"elements of type {array.dtype} have no counterpart in a dump")
