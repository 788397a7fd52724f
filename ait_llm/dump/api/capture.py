"""One window of capture: from ``start`` to ``stop`` everything is seen, outside of it nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ait_llm.dump.api.calls import Call, first_tensor
from ait_llm.dump.api.collectives import PREFIX, WorkWatch, results
from ait_llm.dump.api.compiled import EagerWatch
from ait_llm.dump.api.dispatcher import DispatcherMode, step_aside, step_back
from ait_llm.dump.api.interception import Interception
from ait_llm.dump.api.names import Api
from ait_llm.dump.api.recorder import RecordedCall, Recorder
from ait_llm.dump.api.threads import Modes, ThreadWatch
from ait_llm.dump.pytorch.compiling import is_compiling
from ait_llm.dump.taps.replays import recordings

if TYPE_CHECKING:
    from ait_llm.dump.api.gradients import ModuleGradients


@dataclass(slots=True)
class Running:
    """A module that is running.

    Attributes:
        module: the module.
        name: of its record.
        call: its record; None if it is not wanted.
        error: what was being handled when it began.
        gradients: of this call.
    """

    module: nn.Module
    name: str
    call: Call | None
    error: BaseException | None
    gradients: ModuleGradients | None = None


class _Local(threading.local):
    """What one thread is doing.

    Attributes:
        busy: inside a call that is recorded, or inside the recording of one.
        running: modules, outermost first.
        phase: of the training step, ``optimizer`` or ``clip_grad``; empty otherwise.
    """

    def __init__(self) -> None:
        self.busy = False
        self.running: list[Running] = []
        self.phase = ""

    @property
    def modules(self) -> list[str]:
        """Records of the modules that are running, outermost first, or the phase."""
        if self.phase:
            return [self.phase]
        return [each.name for each in self.running]


local = _Local()


class Capture:
    """Turns calls into records while it is open.

    Args:
        make: makes the interception for a receiver of calls.
    """

    def __init__(self, make: Callable[[Callable[..., Any]], Interception]) -> None:
        self._interception = make(self.receive)
        self._operators = DispatcherMode(self.receive, self._interception.apis)
        self._modes = Modes(self._interception.mode, self._operators)
        self._threads = ThreadWatch(self._modes)
        self._eager = EagerWatch()
        self._works = WorkWatch()
        self.recording: Recorder[Any] | None = None
        self.tape: Recorder[Any] | None = None
        """Gets the calls while a device records a graph, when nothing is computed."""

    def open(self, recording: Recorder[Any], *, stands_aside: bool = True) -> None:
        """Begin to record.

        Args:
            recording: where calls go.
            stands_aside: compiled code runs function by function meanwhile.
        """
        self.recording = recording
        self._interception.install()
        self._modes.enter()
        self._threads.install()
        if stands_aside:
            self._eager.install()
        self._works.install()

    def close(self) -> None:
        """End recording and put everything back."""
        self.recording = None
        self._works.remove()
        self._eager.remove()
        self._threads.remove()
        self._modes.leave()
        self._interception.remove()

    def enter_thread(self) -> None:
        """See the calls of this thread; one that is seen already stays so."""
        self._modes.enter()

    def leave_thread(self) -> None:
        """See the calls of this thread no more."""
        self._modes.leave()

    def receive(
        self,
        found: Api | None,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        frame: FrameType | None,
    ) -> Any:
        """Make a call of the program, recorded unless it is within another one."""
        recording = self.tape if recordings.is_open else self.recording
        here = local
        if here.busy or recording is None or is_traced():
            return function(*args, **kwargs)
        # Also within a call that is not wanted, calls are not looked at.
        here.busy = True
        aside = step_aside(self._operators)
        try:
            if found is None or not recording.wants(found):
                return function(*args, **kwargs)
            with torch._C.DisableTorchFunction():
                call = recording.begin(found, args, kwargs, frame, here.modules)
            if call is None:
                output = function(*args, **kwargs)
                call = recording.left_out(found)
                if call is not None and torch.is_grad_enabled():
                    self._watch_backward(recording, found, call, args, kwargs, output)
                return output
            try:
                output = function(*args, **kwargs)
            except BaseException as error:
                recording.raised(call, error)
                raise
            if output is NotImplemented:
                recording.drop(call)
                return output
            if found.prefix == PREFIX:
                self._end_collective(recording, found, call, results(args, kwargs), output)
                return output
            with torch._C.DisableTorchFunction():
                recording.end(call, output, found)
                if recording.backward and torch.is_grad_enabled():
                    self._watch_backward(recording, found, call, args, kwargs, output)
            return output
        finally:
            here.busy = False
            if aside and self.recording is not None:  # still open
                step_back(self._operators)

    def _end_collective(
        self,
        recording: Recorder[Any],
        found: Api,
        call: RecordedCall,
        values: tuple[Any, ...],
        output: Any,
    ) -> None:
        """Record what a collective brought, when it is there."""

        def end() -> None:
            if self.recording is recording:
                busy, local.busy = local.busy, True
                try:
                    with torch._C.DisableTorchFunction():
                        recording.end(call, values, found)
                finally:
                    local.busy = busy

        works = self._works.works(output)
        if works:
            self._works.when_done(works, end)
        else:
            end()

    def _watch_backward(
        self,
        recording: Recorder[Any],
        found: Api,
        call: RecordedCall,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        output: Any,
    ) -> None:
        tensor = first_tensor(output)
        try:
            node = None if tensor is None else tensor.grad_fn
        except RuntimeError:  # a view whose graph torch refuses to show
            return
        if node is None or _is_identity(found.name, args, kwargs):
            return
        name = call.name.removesuffix("forward") + "backward"
        parent = None if call.parent is None else backward_of(call.parent)

        def hook(grad_inputs: Any, grad_outputs: Any) -> None:
            if recording.active and self.recording is recording:
                busy, local.busy = local.busy, True
                try:
                    with torch._C.DisableTorchFunction():
                        recording.gradients(name, parent, grad_outputs, grad_inputs)
                finally:
                    local.busy = busy

        node.register_hook(hook)


def is_traced() -> bool:
    """True while a compiler or tracer runs the program: tensors have no data, calls no moment."""
    return torch._C._get_tracing_state() is not None or is_compiling()


def backward_of(record: str) -> str:
    """``Module.a.B.backward.0`` for ``Module.a.B.forward.0``."""
    head, _, number = record.rpartition(".forward.")
    return f"{head}.backward.{number}" if head else record


def _is_identity(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """True for a dropout that drops nothing."""
    if "dropout" not in name:
        return False
    p = kwargs.get("p", args[1] if len(args) > 1 else None)
    return isinstance(p, (int, float)) and not isinstance(p, bool) and p == 0
