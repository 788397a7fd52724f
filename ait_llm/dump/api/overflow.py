"""Finding the call in which numbers overflow: bad values leave it, and none entered it.

Bad is a NaN, an infinity, and a value at the limit of its type, which is where devices that
saturate stop. It is read from the numbers of the tensors, so it works on every device.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from ait_llm.dump.api.call_stacks import Stack, call_stack
from ait_llm.dump.api.calls import Call
from ait_llm.dump.api.names import Api
from ait_llm.dump.api.recording import Recording

# Memory that nobody has written yet holds anything.
_UNINITIALISED = frozenset(
    {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_"}
)
_INPUTS = ("input_args", "input_kwargs", "parameters")


class OverflowRecording(Recording):
    """Keeps only calls that overflow, with the data of what they got and returned.

    Attributes:
        found: records of the calls that overflowed so far.
        on_overflow: called with this recording after each of them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.found: list[str] = []
        self.on_overflow: Callable[[OverflowRecording], None] | None = None
        self._held: dict[str, dict[str, Any]] = {}
        self._came_from: dict[str, tuple[Stack, str | None]] = {}

    @property
    def is_full(self) -> bool:
        """True when as many calls were found as were asked for."""
        return 0 < self.settings.overflow_nums <= len(self.found)

    def saves(self, name: str) -> bool:
        """No: whether data are wanted is known only when the call has returned."""
        return False

    def begin(
        self,
        found: Api,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        frame: FrameType | None,
        modules: list[str],
    ) -> Call | None:
        """Look at what a function gets."""
        if self.is_full or found.name in _UNINITIALISED:
            return None
        call = super().begin(found, args, kwargs, frame, modules)
        if call is not None:
            changes = _changes_inputs(found.name) or "out" in kwargs
            keep = _copied if changes else _as_it_is
            self._held[call.name] = {
                "input_args": [keep(value) for value in args],
                "input_kwargs": {key: keep(value) for key, value in kwargs.items()},
            }
        return call

    def end(self, call: Call, output: Any, found: Api | None = None) -> None:
        """Look at what a function returned."""
        if call.name in self._held:
            self._held[call.name]["output"] = output
        super().end(call, output, found)

    def begin_module(
        self,
        name: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        frame: FrameType | None,
        modules: list[str],
    ) -> Call | None:
        """Look at what a module gets."""
        if self.is_full:
            return None
        call = super().begin_module(name, args, kwargs, frame, modules)
        if call is not None:
            self._held[name] = {"input_args": list(args), "input_kwargs": dict(kwargs)}
        return call

    def end_module(self, call: Call, module: nn.Module, output: Any) -> None:
        """Look at what a module returned."""
        if call.name in self._held:
            self._held[call.name]["output"] = output
        super().end_module(call, module, output)

    def gradients(
        self,
        name: str,
        parent: str | None,
        arriving: Any,
        leaving: Any,
        lost: Exception | None = None,
    ) -> None:
        """Look at the gradients of a call."""
        if self.is_full:
            return
        self._held[name] = {"input": arriving, "output": leaving}
        super().gradients(name, parent, arriving, leaving, lost)
        self._held.pop(name, None)

    def drop(self, call: Call) -> None:
        """Forget a call."""
        self._forget(call.name)

    def put(self, call: Call, record: Any) -> None:
        """Write the record of a call that overflowed, now with its data; forget any other."""
        try:
            for fill in call.deferred:
                fill()
            if not self.is_full and overflows(record):
                self._keep(call.name, record, call.order)
        finally:
            self._forget(call.name)

    def _keep(self, name: str, record: Mapping[str, Any], order: float) -> None:
        self.found.append(name)
        held = self._held.get(name, {})
        call = Call(name, order, None, save=True)
        describer = self.describer(call)
        complete = dict(record)
        for key, value in held.items():
            if key not in record:
                continue
            if key == "input_kwargs":
                complete[key] = describer.keywords(value, f"{name}.kwargs")
            else:
                item = "input" if key.startswith("input") else "output"
                complete[key] = describer.outputs(value, f"{name}.{item}")
        for fill in call.deferred:
            fill()
        stack, parent = self._came_from.get(name, (None, None))
        if self._stacks is not None and stack is not None:
            self._stacks.add(name, stack)
        if self.settings.modules:
            self.belongs(name, parent)
        self._put_now(call, complete)
        if self.on_overflow is not None:
            self.on_overflow(self)

    def _place(self, call: Call, frame: FrameType | None) -> None:
        self._came_from[call.name] = (call_stack(frame), call.parent)

    def _show(self, call: Call) -> None:
        """Nothing is written before it is known that the call overflows."""

    def _forget(self, name: str) -> None:
        self._held.pop(name, None)
        self._came_from.pop(name, None)


def overflows(record: Mapping[str, Any]) -> bool:
    """True if a record has bad values in what left the call, and none in what entered it.

    Args:
        record: JSON of a call of a function or module, or of its gradients.
    """
    entered = [record[key] for key in _INPUTS if key in record] or [record.get("input")]
    return _is_bad(record.get("output")) and not _is_bad(entered)


def _is_bad(entry: Any) -> bool:
    if isinstance(entry, Mapping):
        if "dtype" in entry and "Max" in entry:
            return any(_is_bad_number(entry[key], entry["dtype"]) for key in ("Max", "Min"))
        if "value" in entry and "type" in entry:
            return isinstance(entry["value"], float) and _is_limit(entry["value"])
        return any(_is_bad(value) for value in entry.values())
    if isinstance(entry, list):
        return any(_is_bad(value) for value in entry)
    return False


def _is_bad_number(value: Any, dtype: str) -> bool:
    if not isinstance(value, float):
        return False
    return not math.isfinite(value) or abs(value) >= _limit(dtype)


@functools.cache
def _limit(dtype: str) -> float:
    """The largest finite number of a floating type."""
    kind = getattr(torch, dtype.removeprefix("torch."), None)
    if isinstance(kind, torch.dtype) and kind.is_floating_point:
        try:
            return float(torch.finfo(kind).max)
        except TypeError:
            return math.inf
    return math.inf


def _is_limit(value: float) -> bool:
    """True for what programs mask with: an infinity, or the limit of a type."""
    limits = ("torch.float16", "torch.bfloat16", "torch.float32", "torch.float64")
    return not math.isfinite(value) or abs(value) in {_limit(name) for name in limits}


def _changes_inputs(name: str) -> bool:
    if name.startswith("__"):
        return name.startswith("__i") or name == "__setitem__"
    return name.endswith("_")


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if type(value) in (list, tuple):
        return type(value)(_copied(item) for item in value)
    return value


def _as_it_is(value: Any) -> Any:
    return value
