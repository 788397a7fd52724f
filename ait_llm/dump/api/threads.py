"""Threads other than the one that started a capture: the mode for C++ calls is each thread's own.

A thread that starts while the capture is open enters the mode for its life. One that was there
before enters it when it calls a module, and leaves it when the outermost module is done.
"""

from __future__ import annotations

import threading
from typing import Any

from torch import nn
from torch.nn.modules import module as hooks

from ait_llm.dump.api.call_mode import CallMode, enter, is_entered, leave
from ait_llm.dump.api.dispatcher import DispatcherMode, pull, push


class Modes:
    """Both modes of a capture, for one thread at a time.

    Args:
        calls: sees calls from Python.
        operators: sees what comes from C++.
    """

    def __init__(self, calls: CallMode, operators: DispatcherMode) -> None:
        self._calls = calls
        self._operators = operators

    def enter(self) -> None:
        """Enter the modes in this thread."""
        if not is_entered(self._calls):
            push(self._operators)
            enter(self._calls)

    def leave(self) -> None:
        """Leave them in this thread."""
        if is_entered(self._calls):
            leave(self._calls)
            pull(self._operators)

    def is_entered(self) -> bool:
        """True if this thread is in them."""
        return is_entered(self._calls)


class ThreadWatch:
    """Lets other threads enter the modes.

    Args:
        modes: of the capture.
    """

    def __init__(self, modes: Modes) -> None:
        self._modes = modes
        self._local = threading.local()
        self._handles: list[Any] = []
        self._start = threading.Thread.start
        self._home = 0
        self._on = False

    def install(self) -> None:
        """Begin to watch; the calling thread is left as it is."""
        self._home = threading.get_ident()
        self._start = threading.Thread.start
        self._on = True
        self._handles = []
        if threading.active_count() > 1:
            # Hooks on all modules lengthen every call stack, so only where they may be needed.
            self._handles = [
                hooks.register_module_forward_pre_hook(self._before),
                hooks.register_module_forward_hook(self._after, always_call=True),
            ]
        watch, original = self, self._start

        def start(thread: threading.Thread) -> None:
            watch._prepare(thread)
            original(thread)

        setattr(threading.Thread, "start", start)  # noqa: B010 - mypy has no other way to say so

    def remove(self) -> None:
        """End it; threads that still run leave the mode with their outermost module."""
        self._on = False
        setattr(threading.Thread, "start", self._start)  # noqa: B010
        for handle in self._handles:
            handle.remove()

    def _prepare(self, thread: threading.Thread) -> None:
        run = thread.run

        def within_mode() -> None:
            if not self._on:
                run()
                return
            self._modes.enter()
            try:
                run()
            finally:
                self._modes.leave()

        thread.run = within_mode  # type: ignore[method-assign]

    def _before(self, module: nn.Module, inputs: Any) -> None:
        if threading.get_ident() == self._home:
            return
        depth = getattr(self._local, "depth", 0)
        if not depth and self._modes.is_entered():
            return
        if not depth:
            self._modes.enter()
        self._local.depth = depth + 1

    def _after(self, module: nn.Module, inputs: Any, output: Any) -> None:
        depth = getattr(self._local, "depth", 0)
        if depth:
            self._local.depth = depth - 1
            if depth == 1:
                self._modes.leave()
