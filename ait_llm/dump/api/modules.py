"""Recording the calls of a model's modules, their gradients and those of their parameters."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch._C import _get_tracing_state

from ait_llm.dump.api.capture import Running, local
from ait_llm.dump.api.gradients import ModuleGradients, ParameterGradients
from ait_llm.dump.api.recording import Recording
from ait_llm.dump.pytorch.compiling import is_compiling, is_dynamo_compiling
from ait_llm.dump.pytorch.hooks import Hook, not_by_itself, unseen
from ait_llm.dump.taps.operator import ENTER, LEAVE
from ait_llm.dump.taps.replays import recordings

if TYPE_CHECKING:
    from ait_llm.dump.api.graph_calls import GraphCalls

# Wrappers that only gather parameters: what is inside them is what the model computes.
_TRANSPARENT = frozenset({"FullyShardedDataParallel"})


class ModuleWatch:
    """Hooks on every submodule of some models; the models themselves are not recorded.

    Args:
        recording: where records go; can be exchanged between steps. None: nowhere.
        graphs: told what compiled and replayed graphs have of the modules.
    """

    def __init__(self, recording: Recording | None, graphs: GraphCalls | None = None) -> None:
        self.recording = recording
        self._graphs = graphs
        self.removed = False
        self._handles: list[Any] = []
        self._parameters = ParameterGradients(self)

    def install(self, models: Sequence[nn.Module], *, numbered: bool = False) -> None:
        """Hook the submodules of the models.

        Args:
            models: to record.
            numbered: names begin with the number of the model.
        """
        local.running.clear()
        for number, model in enumerate(models):
            start = f"Module.{number}." if numbered else "Module."
            for path, module in model.named_modules():
                if path and type(module).__name__ not in _TRANSPARENT:
                    self.watch(module, f"{start}{path}.{type(module).__name__}")

    def watch(self, module: nn.Module, name: str) -> None:
        """Hook one module under a name."""
        hooks = _ModuleHooks(self, name, self._parameters, self._graphs)
        before, after = (None, None) if self._graphs is None else self._graphs.taps(name, module)
        self._handles += [
            module.register_forward_pre_hook(
                _PreHook(hooks.before, before, takes=3), with_kwargs=True
            ),
            module.register_forward_hook(
                Hook(hooks.after, after, takes=4), with_kwargs=True, always_call=True, prepend=True
            ),
        ]

    def rest(self) -> None:
        """Record nothing until there is another recording."""
        self._parameters.remove()
        local.running.clear()
        self.recording = None

    def remove(self) -> None:
        """Take all hooks off."""
        self.removed = True
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._parameters.remove()


class _PreHook(Hook):
    """A hook that may hand other arguments to the module."""

    def __call__(self, *args: Any) -> Any:
        if len(args) < self._takes:
            return None
        if is_compiling():
            if self._traced is not None and is_dynamo_compiling():
                self._traced(*args)
            return None
        return None if _get_tracing_state() is not None else unseen(self._function, args)


not_by_itself(_PreHook.__call__)


class _ModuleHooks:
    """The two hooks of one module."""

    def __init__(
        self,
        watch: ModuleWatch,
        name: str,
        parameters: ParameterGradients,
        graphs: GraphCalls | None,
    ) -> None:
        self._watch = watch
        self._name = name
        self._parameters = parameters
        self._graphs = graphs

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record what the module gets."""
        if recordings.is_open:
            if self._graphs is not None:
                self._graphs.note_module(ENTER, self._name, (args, kwargs))
            return None
        recording = self._watch.recording
        if recording is None or not recording.active:
            return None
        busy, local.busy = local.busy, True
        try:
            with torch._C.DisableTorchFunction():
                name = f"{self._name}.forward.{recording.count(self._name)}"
                frame = sys._getframe(1)
                call = recording.begin_module(name, args, kwargs, frame, local.modules)
                running = Running(module, name, call, sys.exc_info()[1])
                local.running.append(running)
                if call is None or not recording.settings.backward or not torch.is_grad_enabled():
                    return None
                gradients = ModuleGradients(self._watch, recording, name, call.parent)
                running.gradients = gradients
                try:
                    self._parameters.watch(recording, module, self._name)
                    seen = gradients.watch_inputs(module, args)
                except RuntimeError as error:  # tensors without hooks or views
                    gradients.lose_inputs(error)
                    return None
                return None if seen is args else (seen, kwargs)
        finally:
            local.busy = busy

    def after(
        self,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        output: Any,
    ) -> None:
        """Record what the module returned, or that it raised."""
        if recordings.is_open:
            if self._graphs is not None:
                self._graphs.note_module(LEAVE, self._name, output)
            return
        running = None
        while local.running and running is None:
            last = local.running.pop()
            if last.module is module:
                running = last
        if running is None or running.call is None:
            return
        recording = self._watch.recording
        if recording is None:
            return
        busy, local.busy = local.busy, True
        try:
            with torch._C.DisableTorchFunction():
                error = sys.exc_info()[1]
                if output is None and error is not None and error is not running.error:
                    recording.raised_module(running.call, module, error)
                    return
                recording.end_module(running.call, module, output)
                if running.gradients is not None:
                    try:
                        running.gradients.watch_outputs(output)
                    except RuntimeError as error:
                        running.gradients.lose(error)
        finally:
            local.busy = busy
