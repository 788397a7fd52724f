"""Hooks on the modules of one model, and which step their calls belong to."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ait_llm.dump.pytorch.operator_mode import OperatorMode
from ait_llm.dump.pytorch.options import CaptureOptions
from ait_llm.dump.pytorch.recorder import Recorder, Unit
from ait_llm.dump.pytorch.selection import layer_number
from ait_llm.dump.pytorch.spans import call_span
from ait_llm.dump.pytorch.steps import StepCounter

_COMPILED = "._orig_mod"


class Session(Protocol):
    """What a model's capture needs of the process's capture."""

    options: CaptureOptions

    @property
    def recorder(self) -> Recorder: ...


class _ThreadState(threading.local):
    """The calls that are open on one thread, innermost last."""

    def __init__(self) -> None:
        self.open: list[Unit] = []
        self.recording = False
        self.mode: OperatorMode | None = None


class ModelCapture:
    """Captures the calls of a model's modules until :meth:`remove`.

    Args:
        model: the outermost module.
        session: the process's capture, which knows where values go.
        root: name of the model in paths and files.
    """

    def __init__(self, model: nn.Module, session: Session, root: str = "root") -> None:
        self.model = model
        self.root = root
        self.steps = StepCounter(session.options.warmup)
        self._session = session
        self._handles: list[RemovableHandle] = []
        self._state = _ThreadState()
        self._calls: Counter[str] = Counter()
        self._called: set[str] = set()
        self._selected: dict[str, nn.Module] = {}
        self._depth = 0
        self._active = False
        self._generate: Callable[..., Any] | None = None
        self._install()

    @property
    def selected(self) -> dict[str, nn.Module]:
        """The modules that are recorded, by path."""
        return dict(self._selected)

    def remove(self) -> None:
        """Take every hook off the model; it is then as it was before."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._generate is not None:
            del self.model.__dict__["generate"]
            self._generate = None
        self._close_open("capture ended during the call")

    def unseen(self) -> list[str]:
        """Selected modules that were not called as Python modules in a captured step."""
        return [path for path in self._selected if path not in self._called]

    def enter_root(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Account for a forward call of the model itself."""
        if self._depth == 0:
            before = self.steps.step
            step = self.steps.call(call_span(args, kwargs))
            if step != before:
                self._close_open("the forward call did not return")
                self._calls.clear()
                self._session.recorder.forget_saved()
            self._active = step >= 0 and step in self._session.options.steps
            if self._active and self._session.options.operators:
                self._state.mode = OperatorMode(self._begin_operator, lambda: self._session.recorder)
                self._state.mode.__enter__()
        self._depth += 1

    def enter(
        self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Begin the record of one module call with its inputs."""
        if not self._active:
            return
        self._called.add(path)
        unit = self._unit(path, type(module).__name__, _own_layer(path, module))
        self._state.open.append(unit)
        if self._session.options.inputs:
            values = {f"input_{index}": value for index, value in enumerate(args)}
            values |= {f"input_{name}": value for name, value in kwargs.items()}
            self._record(unit, values)

    def leave(self, path: str, output: Any) -> None:
        """Finish the record of one module call with its outputs."""
        unit = self._pop(path)
        if unit is None:
            return
        if self._session.options.outputs:
            self._record(unit, {"output": output})
        self._session.recorder.finish(unit)

    def leave_root(self) -> None:
        """Account for the return of a forward call of the model itself."""
        self._depth = max(0, self._depth - 1)
        if self._depth == 0:
            self._active = False
            self._leave_mode()

    def _unit(self, path: str, type_name: str, layer: int | None) -> Unit:
        unit = self._session.recorder.unit(
            path,
            type_name,
            self.steps.step,
            generation=self.steps.generation,
            call=self._calls[path],
            layer=layer,
        )
        self._calls[path] += 1
        return unit

    def _record(self, unit: Unit, values: dict[str, Any]) -> None:
        """Record values without the operator mode seeing the copies that this makes."""
        self._state.recording = True
        try:
            for name, value in values.items():
                self._session.recorder.values(unit, value, name)
        finally:
            self._state.recording = False

    def _begin_operator(self, name: str) -> Unit | None:
        """The unit for an operator called now, below the innermost module that is recorded."""
        if self._state.recording or not self._state.open:
            return None
        return self._unit(f"{self._state.open[-1].path}.{name}", name, None)

    def _leave_mode(self) -> None:
        if self._state.mode is not None:
            self._state.mode.__exit__(None, None, None)
            self._state.mode = None

    def _pop(self, path: str) -> Unit | None:
        """The open call of ``path``; calls above it that never returned are closed as failed."""
        open_units = self._state.open
        if not any(unit.path == path for unit in open_units):
            return None
        while open_units:
            unit = open_units.pop()
            if unit.path == path:
                return unit
            self._session.recorder.finish(unit, "the module raised an exception")
        return None

    def _close_open(self, reason: str) -> None:
        while self._state.open:
            self._session.recorder.finish(self._state.open.pop(), reason)
        self._leave_mode()
        self._depth = 0

    def _install(self) -> None:
        selection = self._session.options.selection
        self._handles.append(
            self.model.register_forward_pre_hook(self._root_pre_hook, with_kwargs=True)
        )
        for name, module in self.model.named_modules():
            path = (f"{self.root}.{name}" if name else self.root).replace(_COMPILED, "")
            if selection.covers(path, module) and path not in self._selected:
                self._selected[path] = module
                self._hook(path, module)
        self._handles.append(
            self.model.register_forward_hook(
                self._root_post_hook, with_kwargs=True, always_call=True
            )
        )
        self._wrap_generate()

    def _hook(self, path: str, module: nn.Module) -> None:
        def before(
            module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> None:
            if not torch.compiler.is_compiling():
                self.enter(path, module, args, kwargs)

        def after(
            module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
        ) -> None:
            if not torch.compiler.is_compiling():
                self.leave(path, output)

        self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        self._handles.append(module.register_forward_hook(after, with_kwargs=True))

    def _root_pre_hook(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if not torch.compiler.is_compiling():
            self.enter_root(args, kwargs)

    def _root_post_hook(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        if not torch.compiler.is_compiling():
            self.leave_root()

    def _wrap_generate(self) -> None:
        """Learn the prompt's length from transformers' ``generate``, where the model has it."""
        generate = getattr(self.model, "generate", None)
        if not callable(generate) or "generate" in self.model.__dict__:
            return
        self._generate = generate

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.steps.begin_generation(_prompt_length(self.model, args, kwargs))
            return generate(*args, **kwargs)

        self.model.__dict__["generate"] = counted


def _own_layer(path: str, module: nn.Module) -> int | None:
    """The layer whose part of a cache belongs to this module, if it is one of the layers."""
    index = getattr(module, "layer_idx", None)
    return index if isinstance(index, int) else layer_number(path)


def _prompt_length(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Tokens of the prompt given to ``generate``; None where the decoder starts by itself."""
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        return None
    for value in (*args[:1], kwargs.get("inputs"), kwargs.get("input_ids")):
        if isinstance(value, torch.Tensor) and value.dim() == 2:
            return int(value.shape[1])
    value = kwargs.get("inputs_embeds")
    if isinstance(value, torch.Tensor) and value.dim() == 3:
        return int(value.shape[1])
    return None
