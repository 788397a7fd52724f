"""Hooks that leave a model as they find it: not traced, and not copied or pickled with it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._C import _get_tracing_state

from ait_llm.dump.pytorch.compiling import is_compiling, is_dynamo_compiling

_FRAMES: Any = getattr(torch._C._dynamo, "eval_frame", None)
_SKIPS_ALL = hasattr(_FRAMES, "_FrameExecStrategy")  # since PyTorch 2.6


class Hook:
    """A forward hook that only looks.

    It is silent while a compiler or tracer runs the model, but for what it is to leave in the graph
    of ``torch.compile``. A copy of the model, or the model sent to another process, gets a function
    without effect instead: the capture is about the one object that was registered.

    Args:
        function: called with what torch gives to the hook.
        traced: called instead while Dynamo traces the model; see :mod:`ait_llm.dump.taps.tracing`.
        takes: how many arguments it is called with, of one that gets the keywords of the call. One
            that another hook of this call has taken off is called without, and does nothing.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        traced: Callable[..., None] | None = None,
        *,
        takes: int = 0,
    ) -> None:
        self._function = function
        self._traced = traced
        self._takes = takes

    def __call__(self, *args: Any) -> None:
        if len(args) < self._takes:
            return
        if is_compiling():
            if self._traced is not None and is_dynamo_compiling():
                self._traced(*args)
        elif _get_tracing_state() is None:
            unseen(self._function, args)

    def __reduce__(self) -> tuple[Callable[[], Callable[..., None]], tuple[()]]:
        return _no_hook, ()


def not_by_itself(function: Callable[..., Any]) -> None:
    """Have Dynamo trace a function as a part of what calls it only, never by itself.

    torch runs the hooks of the outermost module around the compiled code; each would be compiled.
    """
    if _SKIPS_ALL:
        skip = _FRAMES._FrameAction.SKIP
        strategy = _FRAMES._FrameExecStrategy(skip, skip)  # what it calls neither
        _FRAMES.set_code_exec_strategy(function.__code__, strategy)
    elif _FRAMES is not None:
        _FRAMES.skip_code(function.__code__)  # :func:`unseen` sees to the rest


def unseen(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Call a function of a hook that Dynamo does not trace by itself, nor what it calls."""
    if _SKIPS_ALL or _FRAMES is None:
        return function(*args)
    before = _FRAMES.set_eval_frame(None)
    try:
        return function(*args)
    finally:
        _FRAMES.set_eval_frame(before)


not_by_itself(Hook.__call__)


def _no_hook() -> Callable[..., None]:
    return _ignore


def _ignore(*args: Any) -> None:
    """What stands in the place of a hook in copies of a model."""


class CountedGenerate:
    """Stands for ``model.generate`` and says when it begins; a copied model gets its own method.

    Args:
        model: the model.
        begin: called with the arguments of ``generate`` before it runs.
    """

    def __init__(self, model: nn.Module, begin: Callable[[tuple[Any, ...], dict[str, Any]], None]):
        self._model = model
        self._begin = begin
        self._generate: Callable[..., Any] = getattr(model, "generate")  # noqa: B009 - untyped
        functools.update_wrapper(self, self._generate)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._begin(args, kwargs)
        return self._generate(*args, **kwargs)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return getattr, (self._model, "generate")


def module_paths(model: nn.Module, root: str) -> list[tuple[str, nn.Module]]:
    """Every place at which a module is registered, in definition order, with dotted paths.

    A module at several places is listed at each; one that contains itself is not descended into
    again. Wrappers of ``torch.compile``, data parallelism and checkpointing do not show in paths.
    """
    found: list[tuple[str, nn.Module]] = []

    def walk(module: nn.Module, path: str, above: frozenset[int]) -> None:
        found.append((path, module))
        inside = above | {id(module)}
        for name, child in module._modules.items():
            if child is not None and id(child) not in inside:
                walk(child, path if is_wrapped(module, name) else f"{path}.{name}", inside)

    walk(model, root, frozenset())
    return found


def generating_member(model: nn.Module, root: str) -> list[nn.Module]:
    """What a model generates with, if that is one of its members; none if that is not clear.

    ``generate`` of an adapter around a model (peft) passes on to that of the model, which then
    calls itself and not the adapter.
    """
    found: dict[str, nn.Module] = {}
    if not callable(getattr(model, "generate", None)):
        return []
    for path, module in module_paths(model, root):
        inside = any(path.startswith(f"{above}.") for above in found)
        if path != root and not inside and callable(getattr(type(module), "generate", None)):
            found[path] = module
    return list(found.values()) if len(found) == 1 else []


def is_wrapped(module: nn.Module, name: str) -> bool:
    """True if the member of that name is what ``module`` only wraps."""
    return name in _WRAPPED or (
        name == "module" and type(module).__name__ in ("DataParallel", "DistributedDataParallel")
    )


def wrapped_module(module: nn.Module) -> nn.Module:
    """What is inside any number of wrappers; the module itself if it is none."""
    for name, child in module._modules.items():
        if child is not None and child is not module and is_wrapped(module, name):
            return wrapped_module(child)
    return module


def class_name(module: nn.Module) -> str:
    """Name of the class that the author of the model gave to what is inside the wrappers."""
    kind = type(wrapped_module(module))
    # fully_shard replaces the class by one of its own: FSDPLinear for Linear.
    inner = kind.__name__.removeprefix("FSDP")
    return inner if any(base.__name__ == inner for base in kind.__mro__) else kind.__name__


def model_device(model: nn.Module) -> torch.device:
    """The device of the first parameter or buffer; the CPU for a model without any."""
    for tensors in (model.parameters(), model.buffers()):
        for tensor in tensors:
            return tensor.device
    return torch.device("cpu")


_WRAPPED = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
