"""Identifiers that the user types: operation ids and step ranges."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ait_llm.errors import UsageError

_MAX_DIGITS = 18  # of a 64-bit number; Python refuses to convert thousands of them
_EVERY = ((0, 2**64 - 1),)
_OP_ID = re.compile(rf"[0-9]{{1,{_MAX_DIGITS}}}(?:_[0-9]{{1,{_MAX_DIGITS}}})*")


def whole_number(text: str) -> int | None:
    """The number that the text spells in ASCII digits; None for other texts and for huge numbers.

    ``str.isdigit`` alone also accepts ``²``, which ``int`` refuses.
    """
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    return int(text) if is_number else None


@dataclass(frozen=True, slots=True, order=True)
class OpId:
    """Position of an operation in the topology: ``2_1_3`` is child 3 of child 1 of operation 2."""

    parts: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> OpId:
        """Parse ``"2_1_3"``.

        Raises:
            UsageError: the text is not numbers joined by underscores.
        """
        if not _OP_ID.fullmatch(text):
            raise UsageError(f"operation id {text!r} is not numbers joined by '_', such as 2_1_3")
        return cls(tuple(int(part) for part in text.split("_")))

    @property
    def parent(self) -> OpId | None:
        """The enclosing graph operation, or None for a top-level operation."""
        return OpId(self.parts[:-1]) if len(self.parts) > 1 else None

    def is_within(self, other: OpId) -> bool:
        """True for ``other`` itself and everything below it."""
        return self.parts[: len(other.parts)] == other.parts

    def __str__(self) -> str:
        return "_".join(map(str, self.parts))


@dataclass(frozen=True, slots=True)
class StepRange:
    """Closed intervals of generation steps, as in ``-er 3,5,7,7``: steps 3, 4, 5 and 7."""

    intervals: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, text: str) -> StepRange:
        """Parse pairs of step numbers; ``all`` means every step.

        Raises:
            UsageError: not numbers, an odd count, or an interval whose end is before its start.
        """
        if text.strip().lower() == "all":
            return cls(_EVERY)
        fields = [field.strip() for field in text.split(",")]
        if not all(re.fullmatch(r"\d{1,19}", field) for field in fields):
            raise UsageError(f"range {text!r} is not whole numbers joined by ',', such as 0,0")
        if len(fields) % 2:
            raise UsageError(
                f"range {text!r} has {len(fields)} numbers; give pairs of first and last, "
                f"such as {fields[-1]},{fields[-1]} for one alone"
            )
        numbers = [int(field) for field in fields]
        pairs = tuple(zip(numbers[::2], numbers[1::2], strict=True))
        for first, last in pairs:
            if last < first:
                raise UsageError(f"range {text!r}: {first},{last} ends before it starts")
        return cls(pairs)

    def __contains__(self, step: int) -> bool:
        return any(first <= step <= last for first, last in self.intervals)

    @property
    def is_every(self) -> bool:
        """True if no step is left out."""
        return self.intervals == _EVERY

    def __str__(self) -> str:
        if self.is_every:
            return "all"
        return ",".join(f"{first},{last}" for first, last in self.intervals)
