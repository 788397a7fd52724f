"""How often a file may have its elements repeated: views cost a file nothing, and readers much."""

from __future__ import annotations

from pathlib import Path

from ait_llm.errors import FormatError

FREE = 1 << 28
"""Elements that any file may describe, as masks expanded to all heads do."""
PER_STORED = 64
"""And so many for each one that it stores: masks for each head, weights under many names."""


def check_repeats(path: Path | str, described: int, stored: int) -> None:
    """Refuse a file whose tensors have far more elements than it stores.

    A step of 0 or steps that overlap describe tensors of any size in a few bytes.

    Args:
        path: the file, for the message.
        described: elements of all of its tensors.
        stored: elements that it has bytes for.

    Raises:
        FormatError: there are too many.
    """
    if described > FREE + PER_STORED * stored:
        raise FormatError(
            path,
            f"stores {stored} elements and describes {described}",
            "Save such a tensor as it was before it was expanded",
        )
