"""Recording the calls of a model's modules, their gradients and those of their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from ait_llm.dump.api.recording import Recording


class ModuleWatch:
    """Hooks on every submodule of some models; see :meth:`install`.

    Args:
        recording: where records go.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._handles: list[Any] = []

    def install(self, models: Sequence[nn.Module]) -> None:
        """Hook the submodules of the models; with several, names begin with the model's number."""

    def remove(self) -> None:
        """Take all hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
