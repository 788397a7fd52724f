"""Calls inside compiled and replayed graphs, as records of the step that runs them.

A graph of ``torch.compile`` has operators of ours behind and before its modules, which report while
it runs (:mod:`ait_llm.dump.taps`). Where a device records a graph, Python runs once: what modules
and functions got and returned is noted with copies at fixed addresses, and becomes records whenever
the graph is replayed.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from ait_llm.dump.api.calls import Call
from ait_llm.dump.api.capture import Capture, Running, local
from ait_llm.dump.api.names import Api
from ait_llm.dump.api.recording import Recording
from ait_llm.dump.api.session import ApiSession
from ait_llm.dump.pytorch.hooks import model_device
from ait_llm.dump.taps import operator, tracing
from ait_llm.dump.taps.operator import ENTER, LEAVE
from ait_llm.dump.taps.replays import recordings

_log = logging.getLogger(__name__)
_BEGIN, _END = "begin", "end"
"""Of functions; their path is the function's name."""

_PART = re.compile(r"_(\d+)")
_TEXTS = {"None": None, "True": True, "False": False}


class GraphCalls:
    """Is told what graphs of a model compute, and has it recorded.

    Args:
        model: the model.
        session: records functions, too, if its settings say so.
        window: opens the step if need be; None if it is not recorded.
        seen: told of each module that ran.
    """

    def __init__(
        self,
        model: nn.Module,
        session: ApiSession,
        window: Callable[[], Recording | None],
        seen: Callable[[nn.Module | None], None],
    ) -> None:
        self._session = session
        self._window = window
        self._seen = seen
        self._modules: dict[str, nn.Module] = {}
        self._values: dict[str, _Values] = {}
        self._numbers = itertools.count()
        self._open: list[tuple[Api, Call | None]] = []
        self._taping: Capture | None = None
        self._is_over = False
        self._complained = False
        device = model_device(model)
        self._clock = operator.clock_name(device)
        self._number = operator.register(self, device)
        session.tape = Tape(self)
        recordings.follow(self)

    @property
    def is_tapping(self) -> bool:
        """True while the present step is recorded."""
        return not self._is_over and self._session.wants_this()

    @property
    def wants_numbers_only(self) -> bool:
        """True if four numbers of each tensor are recorded and nothing else of it."""
        settings = self._session.settings
        looks = settings.data or settings.tensor_names or settings.slices
        return not looks and settings.summary == "statistics"

    def close(self) -> None:
        """Record nothing more."""
        self._is_over = True
        self._session.tape = None

    def taps(self, name: str, module: nn.Module) -> tuple[Callable[..., None] | None, ...]:
        """What the hooks before and behind a module are while ``torch.compile`` traces them.

        None where functions are recorded: compiled code then runs function by function.
        """
        self._modules[name] = module
        if self._session.settings.apis:
            return None, None
        place = self._number, self._clock, name
        return tracing.before_module(*place), tracing.after_module(*place)

    def recording_begins(self) -> None:
        """A device begins to record a graph: have functions noted if no step does so."""
        session = self._session
        if session.settings.apis and not session.is_open and not self._is_over:
            self._taping = session.prepared()
            self._taping.open(Tape(self), stands_aside=False)

    def recording_ends(self) -> None:
        """It has recorded it."""
        taping, self._taping = self._taping, None
        if taping is not None:
            taping.close()

    def note(self, event: str, path: str, value: Any, found: Api | None = None) -> _Values:
        """Have each replay of the graph that is recorded report a value.

        Args:
            event: what has happened.
            path: of the module, or name of the function.
            value: arguments, or what was returned.
            found: the function.
        """
        parts, structure = _pytree.tree_flatten(value)
        # a parameter is where it was, and what it was, when the graph is replayed
        moves = [isinstance(each, Tensor) and type(each) is not nn.Parameter for each in parts]
        tensors = [(str(i), part) for i, part in enumerate(parts) if moves[i]]
        rest = [None if moves[i] else part for i, part in enumerate(parts)]
        key = str(next(self._numbers))
        noted = self._values[key] = _Values(structure, rest, found)
        try:
            recordings.note(self._number, event, path, tensors, [key])
        except Exception as error:  # noqa: BLE001 - whatever fails here must not fail the program
            noted.is_dropped = True
            if not self._complained:
                self._complained = True
                _log.error("%s is not captured where a graph is replayed: %s", path, error)
        return noted

    def note_module(self, event: str, path: str, value: Any) -> None:
        """The same for a hook of a module."""
        busy, local.busy = local.busy, True
        try:
            with torch._C.DisableTorchFunction():
                self.note(event, path, value)
        finally:
            local.busy = busy

    def tapped(
        self, event: str, path: str, values: Sequence[tuple[str, object]], texts: Sequence[str]
    ) -> None:
        """A graph ran a part of the model, or its replay did."""
        recording = self._window()
        if recording is None or not recording.active:
            return
        busy, local.busy = local.busy, True
        try:
            with torch._C.DisableTorchFunction(), torch.no_grad():
                self._record(recording, event, path, values, texts)
        finally:
            local.busy = busy

    def _record(
        self,
        recording: Recording,
        event: str,
        path: str,
        values: Sequence[tuple[str, object]],
        texts: Sequence[str],
    ) -> None:
        # who reads later must not see what the next part of the graph writes there
        now = [(name, each.clone() if isinstance(each, Tensor) else each) for name, each in values]
        noted = self._values.get(texts[0]) if len(texts) == 1 else None
        if noted is not None and noted.is_dropped:
            return
        if event in (_BEGIN, _END):
            if noted is not None and noted.found is not None:
                self._function(recording, event, noted.found, noted.filled(now))
        elif event == ENTER:
            args, kwargs = _arguments(now, texts) if noted is None else noted.filled(now)
            self._enter(recording, path, args, kwargs)
        elif event == LEAVE:
            self._leave(
                recording, path, _output(now, texts) if noted is None else noted.filled(now)
            )

    def _enter(self, recording: Recording, path: str, args: Any, kwargs: Any) -> None:
        module = self._modules[path]
        self._seen(module)
        name = f"{path}.forward.{recording.count(path)}"
        call = recording.begin_module(name, args, kwargs, None, local.modules)
        local.running.append(Running(module, name, call, None))

    def _leave(self, recording: Recording, path: str, output: Any) -> None:
        module = self._modules[path]
        while local.running:
            last = local.running.pop()
            if last.module is module:
                if last.call is not None:
                    recording.end_module(last.call, module, output)
                return

    def _function(self, recording: Recording, event: str, found: Api, value: Any) -> None:
        if not recording.wants(found):
            return
        if event == _BEGIN:
            self._seen(None)
            args, kwargs = value
            self._open.append((found, recording.begin(found, args, kwargs, None, local.modules)))
            return
        while self._open:
            last, call = self._open.pop()
            if last is found:
                if call is not None:
                    recording.end(call, value, found)
                return


class _Values:
    """What is no tensor of some arguments, and where its tensors go.

    Args:
        structure: of the arguments.
        rest: its leaves, None for tensors.
        found: the function that they are of.
    """

    def __init__(self, structure: Any, rest: list[Any], found: Api | None) -> None:
        self.found = found
        self.is_dropped = False
        self._structure = structure
        self._rest = rest

    def filled(self, values: Sequence[tuple[str, object]]) -> Any:
        """The arguments with these tensors, by the number of their leaf."""
        leaves = list(self._rest)
        for number, value in values:
            leaves[int(number)] = value
        return _pytree.tree_unflatten(leaves, self._structure)


class TapedCall:
    """A function's call that was noted while a device recorded it."""

    def __init__(self, name: str, parent: str | None, begin: _Values) -> None:
        self.name = name
        self.parent = parent
        self.begin = begin


class Tape:
    """Notes calls of functions while a device records a graph.

    Args:
        calls: where they go.
    """

    def __init__(self, calls: GraphCalls) -> None:
        self._calls = calls
        self.active = True
        self.backward = False

    def wants(self, found: Api) -> bool:
        """Every function: the step that replays it decides."""
        return True

    def begin(
        self,
        found: Api,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        frame: FrameType | None,
        modules: list[str],
    ) -> TapedCall:
        """Note what a function gets."""
        noted = self._calls.note(_BEGIN, found.full, (args, dict(kwargs)), found)
        return TapedCall(f"{found.full}.forward", modules[-1] if modules else None, noted)

    def left_out(self, found: Api) -> TapedCall | None:
        """None is."""
        return None

    def end(self, call: TapedCall, output: Any, found: Api | None = None) -> None:
        """Note what it returned."""
        if found is not None:
            self._calls.note(_END, found.full, output, found)

    def raised(self, call: TapedCall, error: BaseException) -> None:
        """A call that failed is not a part of the graph."""
        self.drop(call)

    def drop(self, call: TapedCall) -> None:
        """Forget a call."""
        call.begin.is_dropped = True

    def gradients(self, name: str, parent: str | None, arriving: Any, leaving: Any) -> None:
        """Backward calls are not noted."""


def _arguments(values: Sequence[tuple[str, Any]], texts: Sequence[str]) -> Any:
    """Positional and keyword arguments of what :mod:`ait_llm.dump.taps.tracing` named.

    Numbers are not in a graph: their places hold None.
    """
    places: dict[int, dict[tuple[int | str, ...], Any]] = {}
    kwargs: dict[str, Any] = {}
    for name, value in _named(values, texts):
        item = name.removeprefix("input")
        found = _PART.match(item)
        if found is None:
            kwargs[item[1:]] = value
        else:
            places.setdefault(int(found[1]), {})[_path(item[found.end() :])] = value
    count = max(places, default=-1) + 1
    return tuple(_nested(places[i]) if i in places else None for i in range(count)), kwargs


def _output(values: Sequence[tuple[str, Any]], texts: Sequence[str]) -> Any:
    """What was returned, from the same names."""
    parts = {_path(name.removeprefix("output")): value for name, value in _named(values, texts)}
    return _nested(parts)


def _named(values: Sequence[tuple[str, Any]], texts: Sequence[str]) -> list[tuple[str, Any]]:
    read = [text.partition("=")[::2] for text in texts]
    return [*values, *((name, _TEXTS.get(text, text)) for name, text in read)]


def _path(text: str) -> tuple[int | str, ...]:
    """``_0_1`` as (0, 1), ``_0_key`` as (0, "key")."""
    steps: list[int | str] = []
    while text:
        found = _PART.match(text)
        if found is None:
            return (*steps, text[1:])
        steps.append(int(found[1]))
        text = text[found.end() :]
    return tuple(steps)


def _nested(parts: Mapping[tuple[int | str, ...], Any]) -> Any:
    """Tuples and dictionaries of values by their paths."""
    if not parts:
        return None
    if () in parts:
        return parts[()]
    inner: dict[int | str, dict[tuple[int | str, ...], Any]] = {}
    for path, value in parts.items():
        inner.setdefault(path[0], {})[path[1:]] = value
    made = {step: _nested(found) for step, found in inner.items()}
    if all(isinstance(step, int) for step in made):
        last = max(step for step in made if isinstance(step, int))
        return tuple(made.get(step) for step in range(last + 1))
    return {str(step): value for step, value in made.items()}
