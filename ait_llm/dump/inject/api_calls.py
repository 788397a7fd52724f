"""Recording the API calls of a program that does not know of it, in msprobe's files.

A step is a pass of an engine, or else one call of an outermost model. The window of capture is open
from the first call of the model in it to its end, so that logits and what is chosen of them belong
to their pass. Calls that overlap, on several threads, are one step: it ends when none of them runs.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from ait_llm.core.notices import notice
from ait_llm.dump.api.session import ApiSession
from ait_llm.dump.api.settings import ApiSettings
from ait_llm.dump.inject.channel import report
from ait_llm.dump.inject.models import is_model, is_wrapper, outermost_owner
from ait_llm.dump.inject.settings import CHANNEL_VARIABLE, TorchSettings
from ait_llm.dump.inject.switch import Switch
from ait_llm.dump.inject.vllm import VllmRunners
from ait_llm.dump.pytorch.compiling import is_compiling
from ait_llm.dump.pytorch.engine_run import EngineRun
from ait_llm.dump.pytorch.engine_selection import RequestSelection
from ait_llm.dump.pytorch.hooks import model_device
from ait_llm.dump.pytorch.model_capture import parameter_names
from ait_llm.dump.pytorch.session import device_text

_ROOT = "root"


class _Depth(threading.local):
    """How many module calls are open on one thread, and whether the outermost is in the window."""

    value = 0
    is_inside = False


class ApiCalls:
    """Opens a window of capture for each step that was asked for.

    Args:
        settings: what to record.
    """

    def __init__(self, settings: TorchSettings) -> None:
        self._settings = settings
        self._session: ApiSession | None = None
        self._depth = _Depth()
        self._lock = threading.RLock()
        self._models: weakref.WeakKeyDictionary[nn.Module, nn.Module | None] = (
            weakref.WeakKeyDictionary()
        )
        self._handles: list[RemovableHandle] = []
        self._step = -1
        self._is_open = self._failed = False
        self._running = 0  # outermost calls in the window, one for each thread
        channel = os.environ.get(CHANNEL_VARIABLE)
        self._switch = Switch(channel, settings.control, on=settings.start)
        selection = RequestSelection(settings.steps, settings.requests, settings.passes)
        self._engines = VllmRunners(
            selection, self._on_sampled, self._follow_switch, on_end=self._end
        )

    def install(self) -> None:
        """Watch all module calls of this process."""
        self._engines.install()
        if self._settings.start:
            self._hook()
        else:
            self._switch.when_on(self._turn_on_outside)
        os.register_at_fork(after_in_child=self._continue_in_child)
        atexit.register(self.close)

    def close(self) -> None:
        """End the capture: nothing is watched any more, and the ledger is sealed."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        session, self._session = self._session, None
        if session is not None:
            session.close()
        report("steps", root=_ROOT, last=max(self._step, self._engines.step))

    def _hook(self) -> None:
        self._depth = _Depth()
        self._running = 0
        self._handles = [
            register_module_forward_pre_hook(self._before),
            register_module_forward_hook(self._after, always_call=True),
        ]

    def _follow_switch(self) -> bool:
        """Capture, or stop, as the switch says; between two passes. True while it captures."""
        on = self._switch.is_on()
        if on != bool(self._handles):
            with self._lock:
                if on:
                    self._hook()
                else:
                    self._turn_off()
                self._report_switch()
        return on

    def _turn_on_outside(self) -> None:
        """From another thread; an engine looks at the switch itself."""
        if not self._engines.seen:
            self._hook()
            self._report_switch()

    def _turn_off(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if not self._engines.seen:
            self._switch.when_on(self._turn_on_outside)

    def _report_switch(self) -> None:
        if self._models or self._engines.seen:
            report("switch", on=bool(self._handles), steps=[max(self._step, self._engines.step)])

    def _before(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if is_compiling() or is_wrapper(module):
            return
        self._depth.value += 1
        if self._depth.value == 1:
            try:
                with self._lock:
                    self._begin(module, args, sys._getframe(1).f_locals.get("kwargs") or {})
                    self._depth.is_inside = self._is_open
                    if self._is_open and self._session is not None:
                        self._running += 1
                        self._session.enter_thread()
            except Exception as error:  # noqa: BLE001 - a failure of ours is never the program's
                self._say(error)

    def _after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if is_compiling() or is_wrapper(module):
            return
        self._depth.value = max(0, self._depth.value - 1)
        if self._depth.value or not self._depth.is_inside:
            return
        self._depth.is_inside = False
        with self._lock:
            self._running = max(0, self._running - 1)
            if self._engines.seen:
                return
            if not self._running:
                self._end(None)
            elif self._session is not None:
                self._session.leave_thread()

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Open the window of the step that an outermost call belongs to, if it was asked for."""
        if module not in self._models:
            self._models[module] = self._adopted(module)
        model = self._models[module]
        if model is None or self._is_open or self._failed:
            return
        run = self._engines.running
        if run is None:
            if self._engines.seen or not self._follow_switch():
                return
            self._step += 1
            if self._step in self._settings.steps:
                self._open(model, self._step)
            return
        if run.now < 0:
            return
        session = self._session_of_process()
        if model is module:
            named = {**dict(zip(parameter_names(model), args, strict=False)), **kwargs}
            run.called(_ROOT, named, session.ledger)
        if run.is_selected:
            self._open(model, run.now)

    def _adopted(self, module: nn.Module) -> nn.Module | None:
        """The model that a module is, or is a part of; None where it is none."""
        model = outermost_owner(module)
        if not is_model(model):
            return None
        if model not in self._models:
            report("model", device=device_text(model_device(model)), type=type(model).__name__)
            self._models[model] = model
        return model

    def _open(self, model: nn.Module, step: int) -> None:
        session = self._session_of_process()
        session.step_number = step
        self._is_open = session.start(model)

    def _end(self, run: EngineRun | None) -> None:
        """Close the window of the step that has ended; all of it is then in the files."""
        with self._lock:
            self._running = 0
            if self._is_open and self._session is not None:
                self._is_open = False
                try:
                    self._session.stop()
                    self._session.step()
                except Exception as error:  # noqa: BLE001 - a failure of ours is never the program's
                    self._say(error)

    def _on_sampled(self, run: EngineRun, step: int, tokens: dict[str, Sequence[int]]) -> None:
        if self._session is not None:
            run.sampled(_ROOT, step, tokens, self._session.ledger)

    def _session_of_process(self) -> ApiSession:
        if self._session is None:
            self._session = ApiSession(api_settings(self._settings))
        return self._session

    def _continue_in_child(self) -> None:
        """After a fork: what is open belongs to the parent."""
        self._lock = threading.RLock()
        self._depth = _Depth()
        self._session = None
        self._is_open = False
        self._running = 0

    def _say(self, error: Exception) -> None:
        """Tell once that the capture has failed; nothing more is tried."""
        if self._failed:
            return
        self._failed = True
        reason = f"{type(error).__name__}: {error}"
        report("failed", reason=reason, executable=sys.executable)
        notice(f"API calls are not captured: {reason}")


def api_settings(settings: TorchSettings) -> ApiSettings:
    """The settings in the form that the capture itself takes."""
    task = "structure" if settings.description_only else "tensor"
    return ApiSettings(
        dump_path=settings.dump_dir,
        task="statistics" if settings.statistics else task,
        level="mix",
        backward=False,
        inputs=settings.inputs,
        outputs=settings.outputs,
    )
