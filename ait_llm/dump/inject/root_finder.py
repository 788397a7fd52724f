"""Finding the outermost models of a running program.

Hooks on all modules see every call. A module that is called while no other module is running is an
outermost model; it gets the ordinary capture hooks. Wrappers of torch.distributed stand for what
they wrap, and losses and metrics are not models. A model whose ``generate`` is running comes
before the helpers that it calls first, such as an encoder or an assistant model.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn.modules.loss import _Loss
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from ait_llm.dump.inject.channel import report
from ait_llm.dump.inject.observer import observe_outputs
from ait_llm.dump.inject.settings import VARIABLE, TorchSettings
from ait_llm.dump.pytorch.model_capture import ModelCapture
from ait_llm.dump.pytorch.options import CaptureOptions
from ait_llm.dump.pytorch.selection import ModuleSelection
from ait_llm.dump.pytorch.session import CaptureSession, device_text, model_device, sessions

_WRAPPERS = frozenset({"DataParallel", "DistributedDataParallel", "FullyShardedDataParallel"})


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
        self._roots = 0
        self._lock = threading.RLock()

    def install(self) -> None:
        """Watch all module calls of this process."""
        # torch.compile says that global hooks fire once more for its wrapper: they count depth.
        warnings.filterwarnings(
            "ignore", message=r"Using `torch\.compile\(module\)` when there are"
        )
        register_module_forward_pre_hook(self._before)
        register_module_forward_hook(self._after, always_call=True)
        atexit.register(self._report_end)

    def _before(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling():
            return
        if _is_wrapper(module):
            if self._depth.value == 0 and module not in self._known:
                self._known.add(module)
                self._try(_unwrapped(module), None)
            return
        self._depth.value += 1
        if self._depth.value == 1 and module not in self._known:
            self._try(module, sys._getframe(1), args)

    def _after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not torch.compiler.is_compiling() and not _is_wrapper(module):
            self._depth.value = max(0, self._depth.value - 1)

    def _try(self, module: nn.Module, frame: FrameType | None, args: tuple[Any, ...] = ()) -> None:
        """Capture a module if it is a model; our failure is said and never the program's."""
        try:
            with self._lock:
                for owner in _generating(frame):
                    if owner not in self._known:
                        self._adopt(owner)
                if module in self._known:
                    self._enter(module, frame, args)
                elif _is_model(module):
                    self._adopt(module)
                    self._enter(module, frame, args)
                else:
                    self._known.add(module)
        except Exception as error:  # noqa: BLE001 - whatever fails here must not fail the program
            reason = f"{type(error).__name__}: {error}"
            report("failed", reason=reason, executable=sys.executable)
            sys.stderr.write(f"ait: {type(module).__name__} is not captured: {reason}\n")

    def _adopt(self, model: nn.Module) -> None:
        """Hook a model; its hooks take effect from its next call on."""
        self._known.update(model.modules())
        device = model_device(model)
        wanted = self._settings.device_id
        if wanted is not None and device.type != "cpu" and (device.index or 0) != wanted:
            report("skipped", device=device_text(device), type=type(model).__name__)
            return
        report("model", device=device_text(device), type=type(model).__name__)
        if self._settings.capture:
            session = sessions.find(self._options) or CaptureSession(self._options, device)
            sessions.add(session)
            self._captures.append(session.capture(model))
        if self._settings.observe:
            observe_outputs(model, f"root{self._roots or ''}")
        self._roots += 1

    def _enter(self, module: nn.Module, frame: FrameType | None, args: tuple[Any, ...]) -> None:
        """Account for the call during which the module was found: its hooks came too late."""
        capture = next((item for item in self._captures if item.model is module), None)
        if capture is None or frame is None:
            return
        # Global hooks get no keyword arguments: they are a variable of torch's caller.
        kwargs = frame.f_locals.get("kwargs") or {}
        capture.enter_root(args, kwargs)
        if capture.root in capture.selected:
            capture.enter(capture.root, module, args, kwargs)

    def _report_end(self) -> None:
        for capture in self._captures:
            report("steps", root=capture.root, last=capture.steps.step)
        if not self._roots:
            dynamo = sys.modules.get("torch._dynamo.utils")
            report("end", compiled=dynamo is not None and bool(dynamo.counters["frames"]["ok"]))


def _is_wrapper(module: nn.Module) -> bool:
    return type(module).__name__ in _WRAPPERS


def _unwrapped(module: nn.Module) -> nn.Module:
    while _is_wrapper(module):
        inner = getattr(module, "_fsdp_wrapped_module", None) or getattr(module, "module", None)
        if not isinstance(inner, nn.Module):
            break
        module = inner
    return module


def _is_model(module: nn.Module) -> bool:
    """True for modules with members and weights that are not a loss, a metric or a replica."""
    if getattr(module, "_is_replica", False) or isinstance(module, _Loss):
        return False
    if any(base.__module__.partition(".")[0] == "torchmetrics" for base in type(module).__mro__):
        return False
    has_tensors = any(True for _ in module.parameters()) or any(True for _ in module.buffers())
    return has_tensors and any(True for _ in module.children())


def _generating(frame: FrameType | None) -> Iterator[nn.Module]:
    """Models whose ``generate`` is running, outermost first; adapters that only pass on are not."""
    found: list[nn.Module] = []
    while frame is not None:
        if frame.f_code.co_name == "generate":
            owner = frame.f_locals.get("self")
            if isinstance(owner, nn.Module) and not any(
                inner in set(owner.modules()) for inner in found
            ):
                found.append(owner)
        frame = frame.f_back
    return reversed(found)


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
        operators=settings.operators,
        device_id=settings.device_id,
        weights=settings.weights,
        warmup=settings.warmup,
        queue_bytes=settings.queue_bytes,
        run=settings.run,
    )


def start_from_environment() -> None:
    """Install the finder with the settings that the launcher put into the environment.

    Raises:
        UsageError: the settings are damaged.
    """
    RootFinder(TorchSettings.from_json(os.environ[VARIABLE])).install()
