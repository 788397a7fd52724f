"""Calls of modules within compiled and replayed graphs, for the capture of their model."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ait_llm.dump.pytorch.values import leaves
from ait_llm.dump.taps import operator, tracing
from ait_llm.dump.taps.operator import (
    ENTER,
    ENTER_OPERATOR,
    ENTER_ROOT,
    LEAVE,
    LEAVE_OPERATOR,
)
from ait_llm.dump.taps.replays import recordings

if TYPE_CHECKING:
    from ait_llm.dump.pytorch.model_capture import ModelCapture

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_CONSTANTS = {"None": None, "True": True, "False": False}


class TappedCalls:
    """Turns what graphs report of a model into calls of its capture.

    Args:
        capture: of the model.
        device: where the model is.
    """

    def __init__(self, capture: ModelCapture, device: torch.device) -> None:
        self._capture = capture
        self._clock = operator.clock_name(device)
        self.number = operator.register(self, device, operators=capture.options.operators)

    @property
    def is_tapping(self) -> bool:
        """False while the capture is off, or over."""
        return self._capture.is_on

    @property
    def wants_numbers_only(self) -> bool:
        """True if statistics are recorded and no values."""
        return self._capture.options.statistics and not self._capture.options.data

    def _wants(self, path: str) -> bool:
        """True if values of this module are recorded."""
        return self._capture.options.modules and self._capture.is_selected(path)

    @property
    def are_compiled(self) -> bool:
        """True once a graph has taps of this model."""
        return self.number in tracing.COMPILED

    @property
    def hidden(self) -> set[str]:
        """Paths of modules that run in a graph which could not have a tap."""
        own = f"{self.number} "
        return {each.removeprefix(own) for each in tracing.HIDDEN if each.startswith(own)}

    def tapped(
        self, event: str, path: str, values: Sequence[tuple[str, object]], texts: Sequence[str]
    ) -> None:
        """A graph reached the hook before or behind a module, or behind the model."""
        if event == ENTER_ROOT:
            self._capture.enter_root((), dict(values), tapped=True)
        elif event == ENTER:
            self._capture.enter_tapped(path, _named(values, texts))
        elif event == LEAVE:
            self._capture.leave_tapped(path, _named(values, texts))
        elif event == ENTER_OPERATOR:
            self._capture.enter_operator(path, _named(values, texts, _read))
        elif event == LEAVE_OPERATOR:
            self._capture.leave_operator(_named(values, texts, _read))
        else:
            self._capture.leave_root()

    @property
    def is_recording(self) -> bool:
        """True while a device records a graph: hooks run, and nothing is computed."""
        return recordings.is_open

    def note(self, event: str, path: str, values: Iterable[tuple[str, Any]]) -> None:
        """Have each replay of the graph that is recorded report these values."""
        found = (leaf for name, value in values for leaf in leaves(value, name))
        tensors = [(leaf.name, leaf.tensor) for leaf in found if leaf.tensor is not None]
        recordings.note(self.number, event, path, tensors, [])

    def before(self, path: str) -> Callable[..., None]:
        """What the hook before a module's call is while it is traced."""
        return tracing.before_module(self.number, self._clock, path, values=self._wants(path))

    def after(self, path: str) -> Callable[..., None]:
        """The same for the hook behind it."""
        return tracing.after_module(self.number, self._clock, path, values=self._wants(path))

    def before_model(self, path: str, parameters: tuple[str, ...]) -> Callable[..., None]:
        """The same for the model itself."""
        return tracing.before_model(self.number, self._clock, path, parameters)

    def after_model(self, path: str) -> Callable[..., None]:
        """The same for its return."""
        return tracing.after_model(self.number, self._clock, path)


def _named(
    values: Sequence[tuple[str, object]],
    texts: Sequence[str],
    read: Callable[[str], object] = lambda text: _CONSTANTS.get(text, text),
) -> list[tuple[str, object]]:
    """Tensors and constants with names that files can have."""
    found: list[tuple[str, object]] = [(_UNSAFE.sub("-", name), value) for name, value in values]
    for text in texts:
        name, _, value = text.partition("=")
        found.append((_UNSAFE.sub("-", name), read(value)))
    return found


def _read(text: str) -> object:
    """What ``repr`` wrote of a constant."""
    try:
        return ast.literal_eval(text)
    except ValueError:
        return text  # inf and nan
