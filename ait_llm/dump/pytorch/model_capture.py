"""Hooks on the modules of one model, and which step their calls belong to."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ait_llm.dump.pytorch.definition import MODE, depends_on_mode
from ait_llm.dump.pytorch.engine_run import EngineRun
from ait_llm.dump.pytorch.hooks import (
    CountedGenerate,
    Hook,
    class_name,
    generating_member,
    model_device,
    module_paths,
    wrapped_module,
)
from ait_llm.dump.pytorch.ledger import Ledger
from ait_llm.dump.pytorch.module_paths import layer_number
from ait_llm.dump.pytorch.operator_mode import OperatorMode, OperatorsOutsideGraphs
from ait_llm.dump.pytorch.options import CaptureOptions
from ait_llm.dump.pytorch.recorder import Recorder
from ait_llm.dump.pytorch.spans import call_span
from ait_llm.dump.pytorch.steps import StepCounter
from ait_llm.dump.pytorch.tapped_calls import TappedCalls
from ait_llm.dump.pytorch.unit import Unit
from ait_llm.dump.taps.operator import ENTER, ENTER_ROOT, LEAVE, LEAVE_ROOT
from ait_llm.dump.taps.operators import is_inside_graph, will_be_compiled


class Session(Protocol):
    """What a model's capture needs of the process's capture."""

    options: CaptureOptions

    @property
    def recorder(self) -> Recorder: ...


@dataclass(slots=True)
class _Step:
    """One step of the generation and how often each path was called in it."""

    number: int
    generation: int
    selected: bool
    calls: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _RootCall:
    """A forward call of the model itself that is running.

    Attributes:
        frame: torch's frame that runs it, to recognise a call that ended without its hooks.
        step: the step it belongs to.
        opened: units that were open before it.
    """

    frame: FrameType | None
    step: _Step
    opened: int


@dataclass(slots=True)
class _OpenUnit:
    """A module call that has not returned.

    Attributes:
        handled: the exception that the caller was handling, to tell it from one of the module.
        early: entered around the call, so that the module's own hook may follow.
        is_member: nothing of it is recorded; it stands for a member of a module whose own code is.
    """

    unit: Unit
    step: _Step
    handled: BaseException | None
    early: bool = False
    is_member: bool = False


class _Kind(NamedTuple):
    """What a module is.

    Attributes:
        of: its class.
        name: its :func:`class_name`.
        by_mode: it may compute something else while it trains.
    """

    of: type[nn.Module]
    name: str
    by_mode: bool


class _ThreadState(threading.local):
    """The calls that are open on one thread, innermost last."""

    def __init__(self) -> None:
        self.roots: list[_RootCall] = []
        self.open: list[_OpenUnit] = []
        self.recording = False
        self.mode: OperatorMode | None = None
        self.operators: list[Unit | None] = []


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
        self.removed = False
        self.on_call: Callable[[Mapping[str, Any]], None] | None = None
        self.engine: EngineRun | None = None
        self._session = session
        self._options = session.options
        self._records_inputs = self._options.modules and self._options.inputs
        self._records_outputs = self._options.modules and self._options.outputs
        self._handles: list[RemovableHandle] = []
        self._state = _ThreadState()
        self._lock = threading.Lock()
        self._now = _Step(-1, -1, selected=False)
        self._running_roots = 0
        self._called: set[str] = set()
        self._outside: Counter[str] = Counter()
        self._selected: dict[str, nn.Module] = {}
        self._layers: dict[str, int] = {}
        self._kinds: dict[str, _Kind] = {}
        self._aliases: dict[str, list[str]] = {}
        self._parameters = parameter_names(model)
        self._generate: CountedGenerate | None = None
        self._is_paused = False
        self._taps = TappedCalls(self, model_device(model))
        self._install()

    @property
    def is_on(self) -> bool:
        """True while calls are recorded."""
        return bool(self._handles) and not self._is_paused

    @property
    def options(self) -> CaptureOptions:
        """What is recorded."""
        return self._options

    @property
    def hidden(self) -> set[str]:
        """Modules that run in compiled graphs which nothing could be put into."""
        return self._taps.hidden

    @property
    def selected(self) -> dict[str, nn.Module]:
        """The modules that are recorded, by path."""
        return dict(self._selected)

    def is_selected(self, path: str) -> bool:
        """True if the module at a path is recorded."""
        return path in self._selected

    def paths_of(self, module: nn.Module) -> list[str]:
        """Where a module is recorded: nowhere, or at one path."""
        return [path for path, selected in self._selected.items() if selected is module]

    @property
    def aliases(self) -> dict[str, list[str]]:
        """Further places of modules that are registered more than once, by recorded path."""
        return dict(self._aliases)

    @property
    def outside(self) -> dict[str, int]:
        """Calls by path that belong to no forward call of the model, and were not recorded."""
        return dict(self._outside)

    @property
    def ledger(self) -> Ledger:
        """What is written down of the process that runs the model."""
        return self._session.recorder.ledger

    def remove(self) -> None:
        """Take every hook off the model; it is then as it was before."""
        self.removed = True
        self._take_off()
        self._abandon("the capture ended during the call")

    def pause(self) -> None:
        """Record nothing until :meth:`resume`, between two forward calls of the model.

        The hooks are taken off, but for those of a model that torch.compile has compiled with them:
        it would compile it again without them.
        """
        self._is_paused = True
        if not self._taps.are_compiled:
            self._take_off()
        self._abandon("the capture was switched off during the call")

    def resume(self) -> None:
        """Record again."""
        self._is_paused = False
        if not self.removed and not self._handles:
            self._aliases.clear()
            self._selected.clear()
            self._install()

    def _take_off(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._generate is not None and self.model.__dict__.get("generate") is self._generate:
            del self.model.__dict__["generate"]
        self._generate = None

    def unseen(self) -> list[str]:
        """Selected modules that were not called as Python modules in a captured step."""
        return [path for path in self._selected if path not in self._called]

    def continue_in_child(self) -> None:
        """After a fork: calls that are open belong to the parent."""
        self._state = _ThreadState()
        self._lock = threading.Lock()
        self._running_roots = 0

    def enter_root(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        names: tuple[str, ...] = (),
        tapped: bool = False,
    ) -> None:
        """Account for a forward call of the model itself, perhaps within a graph.

        Args:
            args, kwargs: what it is called with.
            names: of its parameters, where it is not the model that is captured but what that
                one generates with.
            tapped: it runs within a graph.
        """
        named = {**dict(zip(names or self._parameters, args, strict=False)), **kwargs}
        if self._taps.is_recording:
            self._taps.note(ENTER_ROOT, self.root, named.items())
            return
        if not self.is_on:
            return
        state = self._state
        frame = _module_frame()
        if state.roots and not _is_running(state.roots[-1].frame, frame):
            # KeyboardInterrupt and its like pass by torch's hooks.
            self._abandon("the forward call did not return")
        if self.on_call is not None and not state.roots:
            self.on_call(named)
        step = state.roots[-1].step if state.roots else self._next_step(args, named)
        state.roots.append(_RootCall(frame, step, len(state.open)))
        with self._lock:
            self._running_roots += 1
        if not tapped:  # a graph reports its operators itself
            self._enter_mode(step)

    def enter(
        self,
        path: str,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        early: bool = False,
    ) -> None:
        """Begin the record of one module call with its inputs.

        Args:
            path: where the module is recorded.
            module: the module.
            args, kwargs: what it is called with.
            early: the module's own hook may report the same call once more.
        """
        values: list[tuple[str, Any]] = list(zip(_input_names(len(args)), args, strict=True))
        if kwargs:
            values += [(f"input_{name}", value) for name, value in kwargs.items()]
        if self._taps.is_recording:
            self._taps.note(ENTER, path, values)
            return
        unit = self._open_unit(path, module, early=early)
        if unit is not None and self._records_inputs:
            self._record(unit, values)

    def enter_tapped(self, path: str, values: Iterable[tuple[str, object]]) -> None:
        """Begin the record of a call within a graph, with the inputs that it reported."""
        module = self._selected.get(path)
        if module is None:
            self.enter_member(path)
            return
        unit = self._open_unit(path, module, early=False, tapped=True)
        if unit is not None and self._records_inputs:
            self._record(unit, values, tapped=True)

    def enter_operator(self, name: str, values: Iterable[tuple[str, object]]) -> None:
        """Begin the record of an operator within a graph, with the inputs that it reported."""
        unit = self._begin_operator(name) if self.is_on else None
        self._state.operators.append(unit)
        if unit is not None:
            unit.in_graph = True
        if unit is not None and self._options.inputs:
            self._record(unit, values, tapped=True)

    def leave_operator(self, values: Iterable[tuple[str, object]]) -> None:
        """Finish it with its outputs."""
        opened = self._state.operators
        unit = opened.pop() if opened else None
        if unit is None:
            return
        if self._options.outputs:
            self._record(unit, values, tapped=True)
        self._session.recorder.finish(unit)

    def leave_tapped(self, path: str, values: Iterable[tuple[str, object]]) -> None:
        """Finish it with its outputs."""
        self._leave(path, values, tapped=True)

    def _open_unit(
        self, path: str, module: nn.Module, *, early: bool, tapped: bool = False
    ) -> Unit | None:
        """The record of a call that begins; None for one that is not recorded."""
        if not self.is_on:
            return None
        state = self._state
        step = state.roots[-1].step if state.roots else self._step_of_call(path)
        if not step.selected or self._is_entered(path):
            return None
        self._called.add(path)
        if not tapped:
            self._enter_mode(step)
        kind = self._kind(path, module)
        unit = self._unit(path, kind.name, step, self._layers.get(path))
        if kind.by_mode and not tapped:
            unit.values[MODE] = module.training
        state.open.append(_OpenUnit(unit, step, sys.exc_info()[1], early))
        return unit

    def enter_member(self, path: str) -> None:
        """Note that a module is running of which nothing is recorded, within one that is."""
        opened = self._state.open
        if opened:
            step = opened[-1].step
            unit = self._session.recorder.unit(path, "", step.number)
            opened.append(_OpenUnit(unit, step, sys.exc_info()[1], is_member=True))

    def leave_member(self, path: str) -> None:
        """Account for the return of such a module."""
        self._pop(path)

    def _kind(self, path: str, module: nn.Module) -> _Kind:
        """What a module is; its class may change while the capture runs."""
        known = self._kinds.get(path)
        if known is None or known.of is not type(module):
            known = _Kind(type(module), class_name(module), depends_on_mode(module))
            self._kinds[path] = known
        return known

    def _is_entered(self, path: str) -> bool:
        """True if this call was accounted for before the module's own hook ran."""
        opened = self._state.open
        if not opened or opened[-1].unit.path != path or not opened[-1].early:
            return False
        opened[-1].early = False
        return True

    def leave(self, path: str, output: Any) -> None:
        """Finish the record of one module call with its outputs, or with its exception."""
        if self._taps.is_recording:
            self._taps.note(LEAVE, path, (("output", output),))
            return
        self._leave(path, (("output", output),), tapped=False)

    def _leave(self, path: str, values: Iterable[tuple[str, Any]], *, tapped: bool) -> None:
        opened = self._pop(path)
        if opened is None:
            return
        error = sys.exc_info()[1]
        if error is not None and error is not opened.handled:
            self._finish(opened, f"the module raised {type(error).__name__}")
        else:
            if self._records_outputs:
                self._record(opened.unit, values, tapped=tapped)
            self._finish(opened)
        if self._options.operators:
            self._leave_mode()

    def leave_root(self) -> None:
        """Account for the return of a forward call of the model itself."""
        if self._taps.is_recording:
            self._taps.note(LEAVE_ROOT, self.root, ())
            return
        state = self._state
        if not state.roots:
            return
        call = state.roots.pop()
        self._close_units(call.opened, "the module raised an exception")
        with self._lock:
            self._running_roots = max(0, self._running_roots - 1)
        self._leave_mode()

    def _next_step(self, args: tuple[Any, ...], named: dict[str, Any]) -> _Step:
        """The step of a forward call that begins now."""
        if self.engine is not None:
            self.engine.called(self.root, named, self.ledger)
            return self._step_of_engine(self.engine)
        span = call_span(args, named)
        with self._lock:
            return self._step(self.steps.call(span))

    def _step_of_engine(self, engine: EngineRun) -> _Step:
        """The step of the pass that an engine runs now."""
        if engine.now < 0:
            return _NO_STEP
        with self._lock:
            self.steps.at(engine.now)
            return self._step(engine.now, is_wanted=engine.is_selected)

    def _step(self, number: int, *, is_wanted: bool | None = None) -> _Step:
        """The step that the counter is at; a new one starts its own counts of calls.

        Args:
            number: of the step.
            is_wanted: what an engine says of it; None leaves it to the number.
        """
        if number != self._now.number or self.steps.generation != self._now.generation:
            wanted = number in self._options.steps if is_wanted is None else is_wanted
            selected = number >= 0 and wanted
            if selected:
                selected = self._session.recorder.begin_step(number)
            else:
                self._session.recorder.forget_saved()
            self._now = _Step(number, self.steps.generation, selected)
        return self._now

    def _step_of_call(self, path: str) -> _Step:
        """The step of a module call on this thread."""
        state = self._state
        if state.roots:
            return state.roots[-1].step
        with self._lock:
            if self._running_roots:  # modules may run on threads that the model starts
                return self._now
        if self.engine is not None:
            return self._step_of_engine(self.engine)
        with self._lock:
            if self.steps.begin_preamble():
                return self._step(self.steps.step)
            self._outside[path] += 1
            return _NO_STEP

    def _unit(self, path: str, type_name: str, step: _Step, layer: int | None) -> Unit:
        with self._lock:
            call = step.calls.get(path, 0)
            step.calls[path] = call + 1
        return self._session.recorder.unit(
            path, type_name, step.number, generation=step.generation, call=call, layer=layer
        )

    def _record(
        self, unit: Unit, values: Iterable[tuple[str, Any]], *, tapped: bool = False
    ) -> None:
        """Record values without the operator mode seeing the copies that this makes."""
        self._state.recording = True
        try:
            recorder = self._session.recorder
            record = recorder.tapped if tapped else recorder.values
            for name, value in values:
                record(unit, value, name)
        finally:
            self._state.recording = False

    def _begin_operator(self, name: str) -> Unit | None:
        """The unit for an operator called now, below the innermost module that is recorded."""
        state = self._state
        if state.recording or not state.open:
            return None
        above = state.open[-1]
        if above.is_member:
            return None
        return self._unit(f"{above.unit.path}.{name}", name, above.step, None)

    def _enter_mode(self, step: _Step) -> None:
        if self._options.operators and step.selected and self._state.mode is None:
            state = self._state
            is_compiled = self._taps.are_compiled or will_be_compiled(sys._getframe(1))
            kind = OperatorsOutsideGraphs if is_compiled else OperatorMode
            mode = kind(
                lambda name: None if is_inside_graph() else self._begin_operator(name),
                lambda: self._session.recorder,
                lambda: state.recording or is_inside_graph(),
            )
            mode.__enter__()
            self._state.mode = mode

    def _leave_mode(self) -> None:
        state = self._state
        if state.mode is not None and not state.roots and not state.open:
            state.mode.__exit__(None, None, None)
            state.mode = None

    def _pop(self, path: str) -> _OpenUnit | None:
        """The open call of ``path``; calls above it that never returned are closed as failed."""
        opened = self._state.open
        for depth in range(len(opened) - 1, -1, -1):
            if opened[depth].unit.path == path:
                self._close_units(depth + 1, "the module raised an exception")
                return opened.pop()
        return None

    def _close_units(self, keep: int, reason: str) -> None:
        opened = self._state.open
        while len(opened) > keep:
            self._finish(opened.pop(), reason)

    def _finish(self, opened: _OpenUnit, reason: str = "") -> None:
        """Account for a call; where operators alone are recorded, only one that failed."""
        if not opened.is_member and (self._options.modules or reason):
            self._session.recorder.finish(opened.unit, reason)

    def _abandon(self, reason: str) -> None:
        """Close whatever is open on this thread."""
        state = self._state
        with self._lock:
            self._running_roots = max(0, self._running_roots - len(state.roots))
        state.roots.clear()
        state.operators.clear()
        self._close_units(0, reason)
        self._leave_mode()

    def _install(self) -> None:
        selection = self._options.selection
        places: dict[int, str] = {}
        members: dict[int, tuple[str, nn.Module]] = {}
        models = [self.model, *generating_member(self.model, self.root)]
        for model in models:
            self._hook_begin(model, parameter_names(model))
        for path, module in module_paths(self.model, self.root):
            if not selection.covers(path, wrapped_module(module)):
                members.setdefault(id(module), (path, module))
                continue
            if id(module) in places:
                self._aliases.setdefault(places[id(module)], []).append(path)
            elif path not in self._selected:  # a compiled module has the path of its wrapper
                places[id(module)] = path
                self._selected[path] = module
                layer = own_layer(path, module)
                if layer is not None:
                    self._layers[path] = layer
                self._hook(path, module)
        for place, (path, module) in members.items() if self._options.own_code else ():
            if place not in places:
                self._hook_member(path, module)
        for model in models:
            self._handles.append(
                model.register_forward_hook(
                    Hook(lambda *args: self.leave_root(), self._taps.after_model(self.root)),
                    with_kwargs=True,
                    always_call=True,
                )
            )
        self._wrap_generate()

    def _hook_begin(self, model: nn.Module, names: tuple[str, ...]) -> None:
        def begin(
            module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
        ) -> None:
            self.enter_root(args, kwargs or {}, names=names)

        hook = Hook(begin, self._taps.before_model(self.root, names))
        self._handles.append(model.register_forward_pre_hook(hook, with_kwargs=True))

    def _hook(self, path: str, module: nn.Module) -> None:
        # torch calls a hook that was taken off during the call once more, without the keywords
        def before(
            module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
        ) -> None:
            self.enter(path, module, args, kwargs or {})

        def after(module: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
            self.leave(path, rest[-1])

        taps = (self._taps.before(path), self._taps.after(path))
        seen = self._options.modules or self._options.operators
        traced_before, traced_after = taps if seen else (None, None)
        self._handles.append(
            module.register_forward_pre_hook(Hook(before, traced_before), with_kwargs=True)
        )
        self._handles.append(
            module.register_forward_hook(
                Hook(after, traced_after), with_kwargs=True, always_call=True
            )
        )

    def _hook_member(self, path: str, module: nn.Module) -> None:
        """See a module run, wherever it is, and record nothing of it."""
        before = Hook(lambda *args: self.enter_member(path), self._taps.before(path))
        after = Hook(lambda *args: self.leave_member(path), self._taps.after(path))
        self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        self._handles.append(
            module.register_forward_hook(after, with_kwargs=True, always_call=True)
        )

    def _wrap_generate(self) -> None:
        """Learn the prompt's length from transformers' ``generate``, where the model has it."""
        if not callable(getattr(self.model, "generate", None)) or "generate" in vars(self.model):
            return

        def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if not self.removed:
                self.steps.begin_generation(_prompt_length(self.model, args, kwargs))

        self._generate = CountedGenerate(self.model, begin)
        self.model.__dict__["generate"] = self._generate


@functools.cache
def _input_names(count: int) -> tuple[str, ...]:
    """Names of positional inputs."""
    return tuple(f"input_{index}" for index in range(count))


_NO_STEP = _Step(-1, -1, selected=False)


def _module_frame() -> FrameType | None:
    """The frame of ``torch.nn.Module.__call__`` that runs the hook that asks."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != "torch.nn.modules.module":
        frame = frame.f_back
    return frame


def _is_running(frame: FrameType | None, inner: FrameType | None) -> bool:
    """True if ``frame`` is among the callers of ``inner``, or if that cannot be told."""
    if frame is None:
        return True
    while inner is not None:
        if inner is frame:
            return True
        inner = inner.f_back
    return False


def parameter_names(model: nn.Module) -> tuple[str, ...]:
    """Names of the positional parameters of ``model.forward``, as far as they are known."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(parameter.name for parameter in parameters if parameter.kind in kinds)


def own_layer(path: str, module: nn.Module) -> int | None:
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
