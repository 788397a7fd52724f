"""Finding the outermost models of a running program.

Hooks on all modules see every call. A module that is called while no other module is running is an
outermost model; it gets the ordinary capture hooks. Parts that a program calls before the model
they belong to, such as an encoder or a vision tower, are captured as parts of that model.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from ait_llm.core.notices import notice
from ait_llm.dump.golden_tokens import GoldenTokens
from ait_llm.dump.inject.api_calls import ApiCalls
from ait_llm.dump.inject.channel import report
from ait_llm.dump.inject.compile_calls import capture_compiled
from ait_llm.dump.inject.compiled import watch_compiled_modules
from ait_llm.dump.inject.models import (
    generating_models,
    is_model,
    is_wrapper,
    outermost_owner,
    prompt_length,
    unwrapped,
)
from ait_llm.dump.inject.observer import observe_outputs, report_output
from ait_llm.dump.inject.settings import CHANNEL_VARIABLE, VARIABLE, TorchSettings
from ait_llm.dump.inject.site.ait_torch_capture import when_imported
from ait_llm.dump.inject.switch import Switch
from ait_llm.dump.inject.vllm import VllmRunners, compile_anew
from ait_llm.dump.pytorch.compiling import is_compiling
from ait_llm.dump.pytorch.engine_run import EngineRun
from ait_llm.dump.pytorch.engine_selection import RequestSelection
from ait_llm.dump.pytorch.following import Follower
from ait_llm.dump.pytorch.generating import UTILS, watch_generate
from ait_llm.dump.pytorch.hooks import model_device
from ait_llm.dump.pytorch.model_capture import ModelCapture
from ait_llm.dump.pytorch.notes import Notes
from ait_llm.dump.pytorch.options import CaptureOptions
from ait_llm.dump.pytorch.selection import ModuleSelection
from ait_llm.dump.pytorch.session import CaptureSession, device_text, sessions


class _Depth(threading.local):
    """How many module calls are open on one thread."""

    def __init__(self) -> None:
        self.value = 0


class RootFinder:
    """Hooks each outermost model when it is first called.

    Args:
        settings: what to record of it, and whether to report digests of what it returns.
    """

    def __init__(self, settings: TorchSettings) -> None:
        self._settings = settings
        self._options = capture_options(settings)
        self._depth = _Depth()
        self._known: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._captures: list[ModelCapture] = []
        self._belongs: weakref.WeakKeyDictionary[nn.Module, ModelCapture] = (
            weakref.WeakKeyDictionary()
        )
        self._preamble: set[nn.Module] = set()
        self._names: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
        self._found = 0
        self._lock = threading.RLock()
        self._follower = _follower(settings)
        self._notes = Notes() if self._follower is None else self._follower.notes
        selection = RequestSelection(settings.steps, settings.requests, settings.passes)
        self._engines = VllmRunners(
            selection, self._on_sampled, self._follow_switch, self._while_compiled
        )
        channel = os.environ.get(CHANNEL_VARIABLE)
        self._switch = Switch(channel, settings.control, on=settings.start)
        self._handles: list[RemovableHandle] = []
        self._begins_inside = False

    def install(self) -> None:
        """Watch all module calls of this process."""
        # torch.compile says that global hooks fire once more for its wrapper: they count depth.
        warnings.filterwarnings(
            "ignore", message=r"Using `torch\.compile\(module\)` when there are"
        )
        watch_compiled_modules(self)
        if self._settings.capture:
            compile_anew()
        self._engines.install()
        if self._settings.start:
            self._hook()
        else:
            self._switch.when_on(self._turn_on_outside)
        self._watch_generate()
        if UTILS not in sys.modules:
            when_imported(UTILS, self._watch_generate)
        atexit.register(self._report_end)

    def _hook(self) -> None:
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
                    self._turn_on()
                else:
                    self._turn_off()
        return on

    def _turn_on(self) -> None:
        """Capture from the next outermost call on; the program may be within one."""
        with self._lock:
            if self._handles:
                return
            self._begins_inside = self._engines.running is None
            self._depth = _Depth()
            for session in self._sessions():
                session.resume()
            self._hook()
            self._report_switch()

    def _turn_on_outside(self) -> None:
        """The same from another thread; an engine looks at the switch itself."""
        if not self._engines.seen:
            self._turn_on()

    def _turn_off(self) -> None:
        """Leave no hook; a thread waits for the switch where no engine looks at it."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        for session in self._sessions():
            session.pause()
        self._report_switch()
        if not self._engines.seen:
            self._switch.when_on(self._turn_on_outside)

    @contextmanager
    def _while_compiled(self) -> Iterator[None]:
        """Have a model know its hooks while an engine compiles it, for when they are wanted."""
        if self._handles or not self._settings.capture:
            yield
            return
        self._depth = _Depth()
        self._hook()
        try:
            yield
        finally:
            for handle in self._handles:
                handle.remove()
            self._handles = []
            for session in self._sessions():
                session.pause()

    def _report_switch(self) -> None:
        """Tell whoever switched it; processes without a model have nothing to tell."""
        if self._captures or self._engines.seen:
            steps = [capture.steps.step for capture in self._captures]
            report("switch", on=bool(self._handles), steps=steps or [self._engines.step])

    def _sessions(self) -> list[CaptureSession]:
        found = sessions.find(self._options) if self._settings.capture else None
        return [] if found is None else [found]

    def enter_compiled(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Account for a call of a module that was compiled in place; its hooks are silent."""
        self._depth.value += 1
        if self._depth.value == 1:
            self._guarded(module, sys._getframe(1), None)
        capture = self._belongs.get(module)
        if capture is None:
            return
        if capture.model is module:
            capture.enter_root(args, kwargs)
        for path in capture.paths_of(module):
            capture.enter(path, module, args, kwargs, early=True)

    def leave_compiled(self, module: nn.Module, output: Any) -> None:
        """Account for the return of a module that was compiled in place."""
        self._depth.value = max(0, self._depth.value - 1)
        if self._settings.observe and output is not None and module in self._names:
            report_output(self._names[module], output)
        capture = self._belongs.get(module)
        if capture is None:
            return
        for path in capture.paths_of(module):
            capture.leave(path, output)
        if capture.model is module:
            capture.leave_root()

    def _before(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if is_compiling():
            return
        if is_wrapper(module):
            # Its inner model must have hooks before it is called, or copied to other devices.
            if self._depth.value == 0 and module not in self._known:
                self._known.add(module)
                self._guarded(unwrapped(module), None, None)
            return
        if self._begins_inside:
            if _is_inside_a_call(sys._getframe(1)):
                return
            self._begins_inside = False
        self._depth.value += 1
        if self._depth.value == 1:
            if not self._engines.seen and not self._follow_switch():
                return
            self._guarded(module, sys._getframe(1), args)

    def _after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not is_compiling() and not is_wrapper(module):
            self._depth.value = max(0, self._depth.value - 1)

    def _guarded(
        self, module: nn.Module, frame: FrameType | None, args: tuple[Any, ...] | None
    ) -> None:
        """Look at an outermost call; a failure of ours is said and is never the program's.

        Args:
            module: what is called.
            frame: the caller's; None if the module is not called itself, but what it wraps.
            args: what the call gets, if its inputs are to be recorded here.
        """
        hooks = len(module._forward_pre_hooks)  # that this call runs: torch has listed them
        try:
            with self._lock:
                if module not in self._known:
                    self._find(module, frame, args)
                elif frame is not None and module in self._belongs:
                    self._begin_preamble(module, frame)
                    if len(module._forward_pre_hooks) > hooks:  # another thread called it first
                        self._enter_late(module, frame, args)
        except Exception as error:  # noqa: BLE001 - whatever fails here must not fail the program
            reason = f"{type(error).__name__}: {error}"
            report("failed", reason=reason, executable=sys.executable)
            notice(f"{type(module).__name__} is not captured: {reason}")

    def _find(
        self, module: nn.Module, frame: FrameType | None, args: tuple[Any, ...] | None
    ) -> None:
        """Decide what a module that was never seen belongs to, and capture that."""
        for number, (model, arguments) in enumerate(generating_models(frame)):
            if model not in self._known:
                capture = self._adopt(model)
                if capture is not None:
                    capture.steps.begin_generation(prompt_length(model, arguments))
                    if number:
                        capture.ledger.told("assistant", {"root": capture.root})
        if module not in self._known:
            self._known.add(module)
            owner = outermost_owner(module) if frame is not None else module
            if not is_model(owner):
                return
            self._adopt(owner)
        capture = self._belongs.get(module)
        if capture is None or frame is None:
            return
        if capture.model is not module:
            self._begin_preamble(module, frame)
        self._enter_late(module, frame, args)

    def _enter_late(
        self, module: nn.Module, frame: FrameType, args: tuple[Any, ...] | None
    ) -> None:
        """Account for a call that began before its module had our hooks."""
        capture = self._belongs[module]
        if args is None:
            return
        # Global hooks get no keyword arguments: they are a variable of torch's caller.
        kwargs = frame.f_locals.get("kwargs") or {}
        if capture.model is module:
            capture.enter_root(args, kwargs)
        for path in capture.paths_of(module):
            capture.enter(path, module, args, kwargs)

    def _begin_preamble(self, module: nn.Module, frame: FrameType) -> None:
        """Count a part that is called by itself to the step of its model's next call.

        A part that comes again before the model is called begins the next step. Recomputation in a
        backward pass is no call of the program.
        """
        capture = self._belongs[module]
        if capture.model is module or torch._C._current_graph_task_id() != -1:
            return
        if capture.engine is not None:  # it says itself what a step is
            return
        repeated = module in self._preamble and not generating_models(frame)
        if repeated or not capture.steps.expects_prefill:
            self._preamble = set()
            capture.steps.begin_generation()
        self._preamble.add(module)

    def _adopt(self, model: nn.Module) -> ModelCapture | None:
        """Hook a model; its hooks take effect from its next call on."""
        self._known.update(model.modules())
        device = model_device(model)
        wanted = self._settings.device_id
        if wanted is not None and device.type != "cpu" and (device.index or 0) != wanted:
            report("skipped", device=device_text(device), type=type(model).__name__)
            return None
        report("model", device=device_text(device), type=type(model).__name__)
        name = f"root{self._found or ''}"
        self._found += 1
        capture = None
        if self._settings.capture:
            session = sessions.find(self._options)
            if session is None:
                session = CaptureSession(self._options, device, self._follower, self._notes)
                sessions.add(session)
            capture = session.capture(model)
            capture.engine = self._engines.running
            self._captures.append(capture)
            self._belongs.update(dict.fromkeys(model.modules(), capture))
        if self._settings.observe:
            observe_outputs(model, name)
        self._names[model] = name
        return capture

    def _watch_generate(self) -> None:
        """See what transformers chooses, as soon as it is there, and follow golden."""
        watch_generate(self._notes, self._step_of, self._follower)

    def _step_of(self, model: nn.Module) -> int:
        capture = self._belongs.get(model)
        return -1 if capture is None else capture.steps.step

    def _on_sampled(self, run: EngineRun, step: int, tokens: dict[str, Sequence[int]]) -> None:
        """Write down what a pass of an engine chose; the first of its models is the one."""
        for capture in self._captures:
            if capture.engine is run and not capture.removed:
                run.sampled(capture.root, step, tokens, capture.ledger)
                return

    def _report_end(self) -> None:
        for capture in self._captures:
            report("steps", root=capture.root, last=capture.steps.step)
        if not self._found:
            dynamo = sys.modules.get("torch._dynamo.utils")
            report("end", compiled=dynamo is not None and bool(dynamo.counters["frames"]["ok"]))


def _is_inside_a_call(frame: FrameType | None) -> bool:
    """True if another module's call is among the callers of the one whose frame is given."""
    is_own = True
    while frame is not None:
        is_call = frame.f_globals.get("__name__") == "torch.nn.modules.module"
        if is_call and not is_own:
            return True
        is_own = is_own and is_call
        frame = frame.f_back
    return False


def capture_options(settings: TorchSettings) -> CaptureOptions:
    """The settings in the form that the capture itself takes."""
    return CaptureOptions(
        output=settings.output,
        steps=settings.steps,
        selection=ModuleSelection(
            names=settings.module_names,
            type_prefixes=settings.type_prefixes,
            layers=settings.layers,
        ),
        inputs=settings.inputs,
        outputs=settings.outputs,
        data=settings.data,
        statistics=settings.statistics,
        descriptions=settings.descriptions,
        modules=settings.modules,
        operators=settings.operators,
        own_code=settings.own_code,
        device_id=settings.device_id,
        weights=settings.weights,
        warmup=settings.warmup,
        queue_bytes=settings.queue_bytes,
        run=settings.run,
        survey=settings.survey,
        follow=settings.follow,
        budget=settings.budget,
        channel=os.environ.get(CHANNEL_VARIABLE),
        patches=settings.patches,
    )


def _follower(settings: TorchSettings) -> Follower | None:
    if settings.tokens is None:
        return None
    return Follower(GoldenTokens.from_json(settings.tokens.read_text("utf-8")))


def start_from_environment() -> None:
    """Install the capture with the settings that the launcher put into the environment.

    Raises:
        UsageError: the settings are damaged.
    """
    settings = TorchSettings.from_json(os.environ[VARIABLE])
    if settings.is_compiled:
        capture_compiled(settings)
    elif settings.is_api:
        ApiCalls(settings).install()
    else:
        RootFinder(settings).install()
        if settings.change:
            from ait_llm.dump.changes.start import start_change  # most captures change nothing

            start_change(settings.change)
