"""Turns calls into the lines and arrays of ptdbg; the calls come from the capture of API calls."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from torch import Tensor

from ait_llm.dump.api.names import Api
from ait_llm.dump.ptdbg.account import PtdbgAccount
from ait_llm.dump.ptdbg.files import (
    DumpFiles,
    is_filtered,
    scalar_line,
    tensor_line,
    values_of,
)
from ait_llm.dump.ptdbg.settings import ScopeWatch, Switch
from ait_llm.dump.ptdbg.stacks import frames_of
from ait_llm.dump.pytorch.tensor_jobs import Outcome

_log = logging.getLogger(__name__)
MARK = 1  # the step mark of lines that did not overflow


@dataclass(slots=True)
class PtdbgCall:
    """A call that is being recorded.

    Attributes:
        name: ``Torch_relu_0_forward``.
        parent: ptdbg knows no modules.
        start, end: of its lines in the file.
        items: names of its arrays.
        stack: the frames of its caller.
        is_written: False for a call of which only the backward call may be wanted.
        outcome: what became of its arrays.
    """

    name: str
    parent: None = None
    start: int = 0
    end: int = 0
    items: list[str] = field(default_factory=list)
    stack: list[list[str]] = field(default_factory=list)
    is_written: bool = True
    outcome: Outcome = field(default_factory=Outcome)


class Numbers:
    """Numbers of calls, over all windows of a process: ``Torch_relu_0_forward``."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)

    def name(self, found: Api) -> str:
        """The name of the next forward call of a function."""
        api = f"{found.prefix}_{found.name}"
        return f"{api}_{next(self._counts[api])}_forward"


class PtdbgRecording:
    """Writes calls as long as the switch is on; counts them always.

    Args:
        numbers: of the calls.
    """

    def __init__(self, numbers: Numbers) -> None:
        self.backward = True
        self.active = True
        self.switch = Switch(False)
        self.files: DumpFiles | None = None
        self.account: PtdbgAccount | None = None
        self._numbers = numbers
        self._scope = ScopeWatch(self.switch)
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._apis: dict[str, str] = {}
        self._is_told = False

    @property
    def matched(self) -> int:
        """Calls that the scope held since the switch was turned on."""
        return self._scope.matched

    def turn(self, switch: Switch, files: DumpFiles | None) -> None:
        """Begin a window, or end it."""
        with self._lock:
            self.switch, self.files = switch, files
            self._scope = ScopeWatch(switch)

    def wants(self, found: Api) -> bool:
        """Every function: numbers count calls inside a scope and outside."""
        return True

    def left_out(self, found: Api) -> PtdbgCall | None:
        """None: calls whose backward calls may be wanted are begun as others are."""

    def begin(
        self,
        found: Api,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        frame: FrameType | None,
        modules: list[str],
    ) -> PtdbgCall | None:
        """Write what a call got; None if it is not wanted."""
        del kwargs, modules  # ptdbg records neither
        with self._lock:
            name = self._numbers.name(found)
            if os.getpid() != self._process or self.files is None:
                return None
            api = f"{found.prefix}_{found.name}"
            if not self._scope.wants(name, api):
                # its backward call may be
                return PtdbgCall(name, is_written=False) if self._names_backward() else None
            call = PtdbgCall(name, start=self.files.end)
            if self.switch.stacks:
                call.stack = frames_of(frame)
            self._put(call, "input", args)
            return call

    def end(self, call: PtdbgCall, output: Any, found: Api | None = None) -> None:
        """Write what a call returned."""
        with self._lock:
            if self.files is None or not call.is_written:
                return
            self._put(call, "output", output)
            if call.stack and self.switch.direction != "backward":
                self._line(call, [f"{call.name}_stack_info", call.stack])
            self._done(call)

    def raised(self, call: PtdbgCall, error: BaseException) -> None:
        """What a call got is written; it returned nothing."""
        with self._lock:
            if self.files is None or not call.is_written:
                return
            if call.stack:
                self._line(call, [f"{call.name}_stack_info", call.stack])
            self._done(call)

    def drop(self, call: PtdbgCall) -> None:
        """Take back the call of an operator that left it to the other side."""
        with self._lock:
            if self.files is not None and call.is_written:
                self.files.take_back(call.start, call.end or call.start, call.items)

    def gradients(self, name: str, parent: str | None, arriving: Any, leaving: Any) -> None:
        """Write a backward call: gradients of the results, then those of the inputs."""
        with self._lock:
            if self.files is None or os.getpid() != self._process:
                return
            if not self._scope.wants(name, name.rsplit("_", 2)[0]):
                return
            call = PtdbgCall(name, start=self.files.end)
            self._put(call, "input", arriving)
            self._put(call, "output", leaving)
            self._done(call)

    def _names_backward(self) -> bool:
        """Whether backward calls may be wanted whose forward calls are not."""
        return self.switch.on and any("backward" in each for each in self.switch.scope)

    def _put(self, call: PtdbgCall, part: str, value: Any) -> None:
        switch = self.switch
        direction = "backward" if call.name.endswith("backward") else "forward"
        if not switch.tensors or switch.direction not in ("all", direction):
            return
        for item, each in items_of(f"{call.name}_{part}", value):
            if is_filtered(each) and not switch.everything:
                continue
            try:
                self._item(call, item, each)
            except (OSError, RuntimeError, TypeError, ValueError) as error:
                call.outcome.fail(error)
                self._complain(item, error)

    def _item(self, call: PtdbgCall, item: str, value: Any) -> None:
        assert self.files is not None
        if isinstance(value, Tensor):
            self.files.array(item, values_of(value))
            call.outcome.tensors += 1
            line = tensor_line(item, value, MARK)
        elif isinstance(value, bool | int | float):
            line = scalar_line(item, value, MARK)
        else:
            return
        call.items.append(item)
        call.end = self.files.line(line)

    def _line(self, call: PtdbgCall, fields: list[Any]) -> None:
        assert self.files is not None
        try:
            self.files.line(fields)
        except OSError as error:
            call.outcome.fail(error)
            self._complain(str(fields[0]), error)

    def _done(self, call: PtdbgCall) -> None:
        """Note in the ledger what is in the file of a call."""
        if self.account is not None and self.files is not None:
            has_lines = bool(call.items or call.stack)
            self.account.call(call.name, self.files.path, call.outcome, has_lines=has_lines)

    def _complain(self, item: str, error: BaseException) -> None:
        """Say once that something could not be written; the program goes on."""
        if not self._is_told:
            self._is_told = True
            _log.warning("%s cannot be written: %s", item, error)


def items_of(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of lists and tuples, as ``{name}.0``, ``{name}.1.0``; a sole value as ``name``."""
    if isinstance(value, tuple | list) and value:
        for index, each in enumerate(value):
            yield from items_of(f"{name}.{index}", each)
    else:
        yield name, value
