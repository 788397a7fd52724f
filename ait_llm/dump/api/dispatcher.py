"""Calls that reach torch from C++: from scripts of TorchScript and from other extensions.

The override protocol does not see them, the dispatcher does. Whatever arrives there while no call
from Python is under way, and no gradient is being computed, came from C++. It is recorded when the
operator has the name of a listed function; composite functions show as the operators they consist
of. While a call from Python is under way the mode stands aside, so that its operators run at their
own speed, and in the very form in which they run without a capture.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ait_llm.dump.api.names import Api, Receiver, api

_SECTIONS = (("torch", "Torch"), ("functional", "Functional"), ("tensor", "Tensor"))


class DispatcherMode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch is untyped here
    """Hands on operators that C++ calls.

    Args:
        receive: makes the calls; it passes on what is within a call from Python.
        apis: names by section of our list.
    """

    def __init__(self, receive: Receiver, apis: Mapping[str, Sequence[str]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch is untyped here
        self._receive = receive
        self._names: dict[str, Api] = {}
        for section, prefix in _SECTIONS:
            for name in apis.get(section, ()):
                if "." not in name and (section == "tensor" or not name.endswith("_")):
                    self._names.setdefault(name, api(prefix, name))
        self._operators: dict[Any, tuple[Api | None, bool]] = {}

    def _dispatch(
        self,
        func: Any,  # torch._ops.OpOverload, not public
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        try:
            found, plain = self._operators[func]
        except KeyError:
            found, plain = self._operators[func] = self._find(func)
        if any(type(value) in _NUMBERS for value in args):
            args = _numbers_as_tensors(func, args)
        if found is None or torch._C._current_graph_task_id() != -1:
            if not plain:
                return func(*args, **kwargs)
            with torch._C.DisableTorchFunction():  # it is below the protocol already
                return func(*args, **kwargs)
        return self._receive(found, func, args, kwargs, sys._getframe(1))

    def _find(self, operator: Any) -> tuple[Api | None, bool]:
        """The name of an operator in a record, and whether torch itself implements it."""
        namespace, _, name = operator._schema.name.partition("::")
        plain = namespace == "aten"
        return self._names.get(name) if plain else None, plain


# torch wraps what a class body defines under this name in a guard against its compiler. The guard
# costs seconds at the first call and microseconds at every other; compiled code stands aside here.
setattr(DispatcherMode, "__torch_dispatch__", DispatcherMode._dispatch)  # noqa: B010

_NUMBERS = (int, float, bool, complex)


def _numbers_as_tensors(operator: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments for the operator: torch hands tensors that stand for a number on as the number.

    Most operators do not take it back in this form.
    """
    schema = operator._schema
    if torch._C._should_allow_numbers_as_tensors(schema.name.partition("::")[2]):
        return args
    return tuple(
        torch.tensor(value) if type(value) in _NUMBERS and str(declared.type) == "Tensor" else value
        for value, declared in zip(args, schema.arguments, strict=False)
    )


def push(mode: TorchDispatchMode) -> None:
    """Push the mode on this thread's stack, to be taken off with :func:`pull`."""
    torch._C._push_on_torch_dispatch_stack(mode)


# Since PyTorch 2.2 who takes a mode off the stack says which kind of mode it may be.
_ANY_KIND = (None,) if hasattr(torch._C, "_TorchDispatchModeKey") else ()


def _pop() -> Any:
    """Take the topmost mode off this thread's stack."""
    return torch._C._pop_torch_dispatch_stack(*_ANY_KIND)


def step_aside(mode: TorchDispatchMode) -> bool:
    """Take the mode off this thread's stack if it is on top; True if it was."""
    depth = torch._C._len_torch_dispatch_stack()
    if not depth or torch._C._get_dispatch_stack_at(depth - 1) is not mode:
        return False
    top = _pop()
    if top is mode:
        return True
    torch._C._push_on_torch_dispatch_stack(top)
    return False


def step_back(mode: TorchDispatchMode) -> None:
    """Undo :func:`step_aside`, unless the mode was pushed anew meanwhile."""
    at = torch._C._get_dispatch_stack_at
    if all(at(place) is not mode for place in range(torch._C._len_torch_dispatch_stack())):
        push(mode)


def pull(mode: TorchDispatchMode) -> None:
    """Take the mode off this thread's stack, wherever in it it is."""
    above = []
    while torch._C._len_torch_dispatch_stack():
        top = _pop()
        if top is mode:
            break
        above.append(top)
    for each in reversed(above):
        torch._C._push_on_torch_dispatch_stack(each)
