"""How many bytes all captures together may write."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """A number of bytes, or a share of what full dumps of both programs would take.

    Attributes:
        bytes: the limit; None where a share is given.
        share: share of the full dumps, in (0, 1]; None where bytes are given.
    """

    bytes: int | None = None
    share: float | None = None

    def __post_init__(self) -> None:
        if (self.bytes is None) == (self.share is None):
            raise ValueError("a budget is a number of bytes or a share")

    def limit(self, full: int | None) -> int | None:
        """Bytes that may be written; None while a share of an unknown size is asked for.

        Args:
            full: bytes of full dumps of both programs, None while unknown.
        """
        if self.bytes is not None:
            return self.bytes
        assert self.share is not None
        return None if full is None else int(self.share * full)
