"""Seeing the calls of functions that torch implements in C++, by its override protocol."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ait_llm.dump.api.names import Api, Receiver, api


class CallMode(TorchFunctionMode):
    """Hands on the calls of listed functions that torch implements in C++.

    Args:
        receive: makes the calls.
        table: the listed functions, by id.
        namespaces: of ``torch.ops``, whose operators are all listed.
    """

    def __init__(
        self, receive: Receiver, table: Mapping[int, Api], namespaces: frozenset[str]
    ) -> None:
        super().__init__()
        self._receive = receive
        self._table = table
        self._namespaces = namespaces
        self._operators: dict[Any, Api | None] = {}
        self._opened: dict[FunctionType, Callable[..., Any]] = {}
        self._local = threading.local()

    def __torch_function__(
        self,
        func: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        found = self._table.get(id(func))
        if found is None and type(func) is FunctionType:
            return self._open(func, args, kwargs)
        if found is None and type(func).__module__ == "torch._ops":
            found = self._operator(func)
        return self._receive(found, func, args, kwargs, sys._getframe(1))

    def _open(
        self, function: FunctionType, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Call a Python function that is not listed, so that the calls within it are seen.

        torch hands it over as one call, with the mode off; ``Tensor.backward`` is of this kind.
        """
        opening: set[int] | None = getattr(self._local, "opening", None)
        if opening is None:
            opening = self._local.opening = set()
        if id(function) in opening:  # it asks in a way of its own
            return self._receive(None, function, args, kwargs, None)
        opening.add(id(function))
        try:
            with self:
                return self._body(function)(*args, **kwargs)
        finally:
            opening.discard(id(function))

    def _body(self, function: FunctionType) -> Callable[..., Any]:
        """A Python function without its question whether somebody overrides it."""
        body = self._opened.get(function)
        if body is None:
            body = FunctionType(
                function.__code__,
                _Globals(function.__globals__),
                function.__name__,
                function.__defaults__,
                function.__closure__,
            )
            body.__kwdefaults__ = function.__kwdefaults__
            self._opened[function] = body
        return body

    def _operator(self, operator: Any) -> Api | None:
        """The name of an operator of ``torch.ops``, if its namespace is wanted."""
        if operator not in self._operators:
            name = getattr(operator, "_qualified_op_name", None) or operator.name()
            namespace, _, rest = name.partition("::")
            found = None
            if namespace in self._namespaces:
                found = api(namespace, rest.partition(".")[0])
            self._operators[operator] = found
        return self._operators[operator]


class _Globals(dict[str, Any]):
    """The globals of a module, but for the questions whether somebody overrides a function."""

    def __init__(self, names: dict[str, Any]) -> None:
        super().__init__(dict.fromkeys(_QUESTIONS, _nobody))
        self._names = names
        if names.get("torch") is torch:
            self["torch"] = _Torch()

    def __missing__(self, name: str) -> Any:
        return self._names[name]


class _Torch:
    """The module torch, for functions that ask by its full name."""

    def __getattr__(self, name: str) -> Any:
        return _Overrides() if name == "overrides" else getattr(torch, name)


class _Overrides:
    def __getattr__(self, name: str) -> Any:
        return _nobody if name in _QUESTIONS else getattr(torch.overrides, name)


_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def _nobody(*_: Any) -> bool:
    return False


def enter(mode: TorchFunctionMode) -> None:
    """Push a mode on this thread's stack, to be taken off with :func:`leave`."""
    torch._C._push_on_torch_function_stack(mode)


def leave(mode: TorchFunctionMode) -> None:
    """Take a mode off this thread's stack, wherever in it it is."""
    above = []
    while torch._C._len_torch_function_stack():
        top = torch._C._pop_torch_function_stack()
        if top is mode:
            break
        above.append(top)
    for each in reversed(above):
        torch._C._push_on_torch_function_stack(each)


def is_entered(mode: TorchFunctionMode) -> bool:
    """True if this thread's stack has the mode."""
    stack = torch._C._get_function_stack_at
    return any(stack(i) is mode for i in range(torch._C._len_torch_function_stack()))
