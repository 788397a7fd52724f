"""Calls of modules that were compiled in place, with ``module.compile()``.

Such a module runs its hooks inside the compiled code, where they are silent. What goes in and comes
out is seen around the compiled code instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

from torch import nn

from ait_llm.dump.pytorch.compiling import is_compiling


class CallWatcher(Protocol):
    """Is told of each call of a module that was compiled in place."""

    def enter_compiled(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """The module is about to run."""

    def leave_compiled(self, module: nn.Module, output: Any) -> None:
        """The module returned ``output``, or raised the exception that is being handled."""


def watch_compiled_modules(watcher: CallWatcher) -> None:
    """Tell ``watcher`` of the calls of modules that are compiled in place from now on."""
    compile_module = getattr(nn.Module, "compile", None)
    if compile_module is None:  # PyTorch has it since 2.2
        return

    @functools.wraps(compile_module)
    def compile_and_watch(module: nn.Module, *args: Any, **kwargs: Any) -> None:
        compile_module(module, *args, **kwargs)
        compiled = module._compiled_call_impl
        # Where compilation is disabled, the module runs as before, with its hooks.
        if compiled is not None and compiled != module._call_impl:
            module._compiled_call_impl = _watched(module, compiled, watcher)

    nn.Module.compile = compile_and_watch  # type: ignore[method-assign,assignment]


def _watched(
    module: nn.Module, compiled: Callable[..., Any], watcher: CallWatcher
) -> Callable[..., Any]:
    @functools.wraps(compiled)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():  # inside of another compiled module
            return compiled(*args, **kwargs)
        watcher.enter_compiled(module, args, kwargs)
        output = None
        try:
            output = compiled(*args, **kwargs)
        except BaseException:
            watcher.leave_compiled(module, None)
            raise
        watcher.leave_compiled(module, output)
        return output

    return call
