"""How much a capture writes, by the kind of file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DEFAULT_BLOCK = 4096
"""Bytes that file systems give out at a time, where nothing else is known."""


@dataclass(slots=True)
class Amount:
    """Files and their bytes; sums over steps that were not looked at need not be whole.

    Attributes:
        files: how many.
        bytes: of all files together.
        room: bytes that they take on the disk, in whole blocks.
    """

    files: float = 0.0
    bytes: float = 0.0
    room: float = 0.0

    def add(self, size: int, block: int, weight: float = 1.0) -> None:
        """Count one file of ``size`` bytes, ``weight`` times."""
        self.files += weight
        self.bytes += weight * size
        self.room += weight * (-(-size // block) * block)

    def grow(self, size: float, weight: float = 1.0) -> None:
        """Count bytes that are added to a file that is there."""
        self.bytes += weight * size
        self.room += weight * size

    def include(self, other: Amount, weight: float = 1.0) -> None:
        """Count everything of another amount, ``weight`` times."""
        self.files += weight * other.files
        self.bytes += weight * other.bytes
        self.room += weight * other.room


@dataclass(slots=True)
class Estimate:
    """What one capture would write.

    Attributes:
        parts: amounts by kind: ``tensors``, ``parameters``, ``tables``, ``topology``, ….
        operations, kernels, tensors: how many are captured; a tensor before and after its
            operation counts twice.
        steps: how many steps are captured.
        largest: bytes of the largest step.
    """

    parts: dict[str, Amount] = field(default_factory=dict)
    operations: float = 0.0
    kernels: float = 0.0
    tensors: float = 0.0
    steps: int = 0
    largest: float = 0.0

    def part(self, name: str) -> Amount:
        """The amount of a kind."""
        return self.parts.setdefault(name, Amount())

    @property
    def total(self) -> Amount:
        """All kinds together."""
        total = Amount()
        for amount in self.parts.values():
            total.include(amount)
        return total

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return round(self.total.bytes)

    @property
    def files(self) -> int:
        """Number of files."""
        return round(self.total.files)

    def as_dict(self) -> dict[str, Any]:
        """The estimate in JSON types."""
        return {
            "bytes": self.bytes,
            "room": round(self.total.room),
            "files": self.files,
            "operations": round(self.operations),
            "kernels": round(self.kernels),
            "tensors": round(self.tensors),
            "steps": self.steps,
            "largest_step": round(self.largest),
            "parts": {
                name: {"files": round(amount.files), "bytes": round(amount.bytes)}
                for name, amount in self.parts.items()
            },
        }
