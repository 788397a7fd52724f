"""What was found out about saved weights, which all passes of a process share.

Steps of a generation have the same weights, and files of a large model are read for long.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

import numpy as np

from ait_llm.program.program import Parameter

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Memory:
    """Answers by function and arguments; it keeps these, so that their ids stay theirs."""

    def __init__(self) -> None:
        self.answers: dict[object, tuple[object, object]] = {}


_current: ContextVar[Memory | None] = ContextVar("memory of weights", default=None)


@contextmanager
def remembering(memory: Memory) -> Iterator[None]:
    """Within it, functions that are :func:`remembered` are asked once about the same weights."""
    token = _current.set(memory)
    try:
        yield
    finally:
        _current.reset(token)


def remembered(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Ask a function of parameters, rows and flags once for each saved weight."""

    @functools.wraps(function)
    def ask(*given: _P.args, **named: _P.kwargs) -> _T:
        memory = _current.get()
        if memory is None:
            return function(*given, **named)
        try:
            key = function.__name__, *map(_key, given), *map(_key, named.values())
        except _OfThisPassError:
            return function(*given, **named)
        known = memory.answers.get(key)
        if known is not None:
            return known[1]  # type: ignore[return-value]  # of this function, as the key says
        answer = function(*given, **named)
        memory.answers[key] = (given, named), answer
        return answer

    return ask


class _OfThisPassError(Exception):
    """A weight that an operation was given, as a tensor of its pass."""


def _key(given: object) -> object:
    if isinstance(given, Parameter):
        if given.value is not None:
            raise _OfThisPassError
        return id(given.tensor), given.transposed
    if isinstance(given, list | tuple):
        return tuple(map(_key, given))
    return (given.shape, given.tobytes()) if isinstance(given, np.ndarray) else given
