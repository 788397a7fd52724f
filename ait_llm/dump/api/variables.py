"""Level ``debug``: single variables and their gradients, as the program hands them over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ait_llm.dump.api.calls import Call
from ait_llm.dump.api.recording import Recording
from ait_llm.errors import UsageError

_MAX_DEPTH = 400


def save_variable(recording: Recording, variable: Any, name: str, save_backward: bool) -> None:
    """Record a variable, and its gradient when there will be one.

    Args:
        recording: of level ``debug``.
        variable: a tensor, string, number, list or dictionary, nested as it may be.
        name: of the variable; calls with one name are counted.
        save_backward: also record the gradients of its tensors.

    Raises:
        UsageError: the variable or the name is of another kind.
    """
    if not isinstance(name, str) or not name:
        raise UsageError("save: the name of a variable is a text")
    _check(variable, name, 0)
    number = recording.count(name)
    record = f"{name}.{number}.debug"
    call = Call(record, recording.next_order(), None, recording.saves(record))
    with torch._C.DisableTorchFunction():
        entry = recording.describer(call).value(variable, record)
        recording.put(call, entry)
        if save_backward:
            gradient = _Gradient(recording, f"{name}_grad.{number}.debug", variable)
            gradient.watch()


class _Gradient:
    """The gradients of the tensors of one variable, in its structure."""

    def __init__(self, recording: Recording, name: str, variable: Any) -> None:
        self._recording = recording
        self._name = name
        self._variable = variable
        self._order = recording.next_order()
        self._entry: Any = _nothing(variable)

    def watch(self) -> None:
        """Write the structure, and fill it as the gradients come."""
        self._write(self._call())
        variable, self._variable = self._variable, None
        self._watch(variable, self._name, self._fill_all)

    def _watch(self, value: Any, name: str, fill: Callable[[Any], None]) -> None:
        if isinstance(value, Tensor):
            if value.requires_grad:
                hook: Any = self._hook(name, fill)
                value.register_hook(hook)  # type: ignore[no-untyped-call]  # torch is untyped
        elif isinstance(value, dict):
            for key, item in value.items():
                self._watch(item, f"{name}.{key}", _setter(self._at(name), str(key)))
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                self._watch(item, f"{name}.{index}", _setter(self._at(name), index))

    def _at(self, name: str) -> Any:
        """The part of the structure that a name leads to."""
        found = self._entry
        for step in name.removeprefix(self._name).split(".")[1:]:
            found = found[int(step)] if isinstance(found, list) else found[step]
        return found

    def _hook(self, name: str, fill: Callable[[Any], None]) -> Callable[[Tensor], None]:
        def hook(grad: Tensor) -> None:
            recording = self._recording
            if not recording.active:
                return
            call = self._call()
            with torch._C.DisableTorchFunction():
                fill(recording.describer(call).value(grad, name))
                self._write(call)

        return hook

    def _fill_all(self, entry: Any) -> None:
        self._entry = entry

    def _call(self) -> Call:
        return Call(self._name, self._order, None, self._recording.saves(self._name))

    def _write(self, call: Call) -> None:
        self._recording.put(call, self._entry)


def _setter(container: Any, key: Any) -> Callable[[Any], None]:
    def fill(entry: Any) -> None:
        container[key] = entry

    return fill


def _nothing(value: Any) -> Any:
    """The structure of a variable, with nothing in it."""
    if isinstance(value, dict):
        return {str(key): _nothing(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_nothing(item) for item in value]
    return None


def _check(value: Any, name: str, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise UsageError(f"save: {name} is nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        for item in value.values():
            _check(item, name, depth + 1)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check(item, name, depth + 1)
    elif value is not None and not isinstance(value, (Tensor, str, int, float)):
        raise UsageError(
            f"save: {name} holds a {type(value).__name__}; tensors, texts, numbers, lists and "
            "dictionaries can be recorded"
        )
