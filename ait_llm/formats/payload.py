"""Where the bytes of a tensor lie in a file, so that they can be mapped or read in blocks."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from ait_llm.core import FORMAT_ND, DType
from ait_llm.errors import FormatError


@dataclass(frozen=True, slots=True)
class Payload:
    """One tensor within a file; its place was checked against the size of the file.

    Attributes:
        path: the file that holds the bytes, links and references followed.
        offset: of the first byte that belongs to the tensor's storage.
        length: bytes of that storage.
        dtype: logical element type.
        shape: dims as recorded; storage dims for private formats.
        format: ATB format code.
        strides: in elements, where the elements are not stored in row-major order.
        logical: dims that a private format stands for, in files that record both; empty if
            not recorded in such a file, None elsewhere.
        groups: group count of FRACTAL_Z in such files.
        origin: format of the logical dims in such files, None if not recorded.
        kept: the bytes themselves where whoever found the place had read them, with size in bytes
            and time of the last change in ns of the file.
    """

    path: Path | str
    offset: int
    length: int
    dtype: DType
    shape: tuple[int, ...]
    format: int = FORMAT_ND
    strides: tuple[int, ...] | None = None
    logical: tuple[int, ...] | None = None
    groups: int = 0
    origin: int | None = None
    kept: tuple[bytes, tuple[int, int]] | None = field(default=None, repr=False, compare=False)

    @property
    def elements(self) -> int:
        """Number of elements; 1 for rank 0."""
        return prod(self.shape)

    def read_into(self, descriptor: int, memory: memoryview) -> None:
        """Read all bytes into their place at once.

        Args:
            descriptor: of the open file.
            memory: ``length`` bytes.

        Raises:
            FormatError: it cannot be read, or became shorter.
        """
        filled = 0
        while filled < self.length:
            try:
                count = os.preadv(descriptor, [memory[filled:]], self.offset + filled)
            except OSError as error:
                reason = error.strerror or str(error)
                raise FormatError(self.path, f"cannot be read: {reason}") from None
            if not count:
                raise FormatError(self.path, "became shorter while it was read")
            filled += count
