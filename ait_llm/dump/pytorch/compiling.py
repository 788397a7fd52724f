"""Whether a compiler runs the code that asks, in all versions of PyTorch from 2.1."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

__all__ = ["eagerly", "is_compiling", "is_dynamo_compiling"]

_COMPILE = {"torch._dynamo", "torch.nn.attention.flex_attention"}
"""Modules of which one is there in a program that compiles anything."""


def _never() -> bool:
    """Graphs can have no operators of ours."""
    return False


# Dynamo takes functions of torch for constants, so they are used as they are. Before PyTorch 2.2
# the only one is in torch._utils.
is_compiling: Callable[[], bool] = (
    getattr(torch.compiler, "is_compiling", None) or torch._utils.is_compiling
)
"""True while a compiler or tracer runs the code."""

is_dynamo_compiling: Callable[[], bool] = (
    torch.compiler.is_dynamo_compiling if hasattr(torch.library, "custom_op") else _never
)
"""True while Dynamo does, in versions (since 2.4) in which its graphs can have our operators."""


class _Stance:
    """What ``torch.compile`` does in this process, as long as anybody wants it to do nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._set: AbstractContextManager[object] = nullcontext()

    def begin(self) -> None:
        set_stance = getattr(torch.compiler, "set_stance", None)  # since PyTorch 2.6
        with self._lock:
            self._count += 1
            if self._count == 1 and set_stance is not None and _COMPILE & sys.modules.keys():
                self._set = set_stance("force_eager")
                self._set.__enter__()

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if not self._count:
                self._set.__exit__(None, None, None)
                self._set = nullcontext()


_stance = _Stance()


@contextmanager
def eagerly() -> Iterator[None]:
    """A context in which ``torch.compile`` runs what it is given as it is, on all threads.

    While operators are watched Dynamo compiles nothing, and raises where a whole graph was wanted,
    as FlexAttention wants it. To import Dynamo takes seconds: nothing is done where nobody did.
    """
    _stance.begin()
    try:
        yield
    finally:
        _stance.end()
