"""Finding the outermost model of a running program.

A hook on all modules sees every call. The first module called while no other module is running is
the outermost model; it gets the ordinary capture hooks. Small modules that a program calls by
themselves (a loss, an embedding) are models of their own only if they have sub-modules.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
import weakref
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from ait_llm.dump.inject.settings import VARIABLE, parse_settings
from ait_llm.dump.pytorch.options import CaptureOptions
from ait_llm.dump.pytorch.selection import ModuleSelection
from ait_llm.dump.pytorch.session import CaptureSession, model_device, sessions


class _Depth(threading.local):
    """How many module calls are open on one thread."""

    def __init__(self) -> None:
        self.value = 0


class RootFinder:
    """Hooks each outermost model when it is first called.

    Args:
        options: what to record of it.
    """

    def __init__(self, options: CaptureOptions) -> None:
        self._options = options
        self._depth = _Depth()
        self._known: weakref.WeakSet[nn.Module] = weakref.WeakSet()

    def install(self) -> None:
        """Watch all module calls of this process."""
        # torch.compile says that global hooks fire once more for its wrapper: they count depth.
        warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are")
        register_module_forward_pre_hook(self._before)
        register_module_forward_hook(self._after, always_call=True)

    def _before(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling():
            return
        self._depth.value += 1
        if self._depth.value > 1 or module in self._known:
            return
        self._known.add(module)
        if not any(True for _ in module.children()):
            return
        # The module's own hooks take effect from its next call on; this one is accounted for
        # here. Global hooks get no keyword arguments: they are a variable of torch's caller.
        kwargs = sys._getframe(1).f_locals.get("kwargs") or {}
        self._capture(module, args, kwargs)

    def _after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not torch.compiler.is_compiling():
            self._depth.value = max(0, self._depth.value - 1)

    def _capture(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        device = model_device(module)
        wanted = self._options.device_id
        if wanted is not None and device.type != "cpu" and (device.index or 0) != wanted:
            return
        session = sessions.find(self._options) or CaptureSession(self._options, device)
        sessions.add(session)
        capture = session.capture(module)
        capture.enter_root(args, kwargs)
        if capture.root in capture.selected:
            capture.enter(capture.root, module, args, kwargs)


def start_from_environment() -> None:
    """Install the finder with the settings that the launcher put into the environment.

    Raises:
        UsageError: the settings are damaged.
    """
    fields = parse_settings(os.environ[VARIABLE])
    prefixes = tuple(fields.pop("type_prefixes", ()))
    names = tuple(fields.pop("module_names", ()))
    selection = ModuleSelection(names=names, type_prefixes=prefixes)
    RootFinder(CaptureOptions(selection=selection, **fields)).install()
