"""Capture of some forward passes only: generated tokens of a language model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from ait_llm.dump.api.recording import Recording
from ait_llm.errors import UsageError


def token_window(
    token_range: Sequence[int] | None, models: Sequence[nn.Module]
) -> tuple[int, int] | None:
    """The first and the last forward pass of a range; None without a range.

    Raises:
        UsageError: the range means nothing, or there is no model whose passes could be counted.
    """
    if token_range is None:
        return None
    if not models:
        raise UsageError("token_range counts forward passes of the model: give it too")
    first, last = token_range if len(token_range) == 2 else (1, 0)
    if not 0 <= first <= last:
        raise UsageError(f"token_range: first and last forward pass, not {list(token_range)}")
    return first, last


class TokenWatch:
    """Lets a recording rest outside a range of forward passes.

    Args:
        recording: that rests.
        tokens: numbers of the first and the last forward pass.
    """

    def __init__(self, recording: Recording, tokens: tuple[int, int]) -> None:
        self.recording = recording
        self._tokens = tokens
        self._passed = -1
        self._handles: list[Any] = []

    def install(self, models: Sequence[nn.Module]) -> None:
        """Count forward passes of the first model from now on."""
        self.recording.paused = True
        self._handles = [models[0].register_forward_pre_hook(self._count, prepend=True)]

    def remove(self) -> None:
        """End it; the recording goes on."""
        for handle in self._handles:
            handle.remove()
        self.recording.paused = False

    def _count(self, *_: Any) -> None:
        self._passed += 1
        first, last = self._tokens
        self.recording.paused = not first <= self._passed <= last
