"""Other bodies for functions and other values for attributes, for a while."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from ait_llm.dump.api.names import Api, Receiver


class BodySwap:
    """Gives a Python function another body, which hands each call on.

    Args:
        function: stays the same object, with the same names, defaults and attributes.
        receive: called with a way to call the original, the arguments, and the caller's frame.
    """

    def __init__(self, function: FunctionType, receive: Callable[..., Any]) -> None:
        self._function = function
        self._code = code = function.__code__
        original = FunctionType(
            code,
            function.__globals__,
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        original.__kwdefaults__ = function.__kwdefaults__

        def hand_on(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            # Above this frame is the swapped body, and above that the caller.
            return receive(original, args, kwargs, sys._getframe(2))

        body = _body(len(code.co_freevars))
        self._body = body.replace(
            co_consts=tuple(hand_on if each == _HOLE else each for each in body.co_consts),
            co_freevars=code.co_freevars,
            co_name=code.co_name,
            co_filename=code.co_filename,
            co_firstlineno=code.co_firstlineno,
        )

    def install(self) -> None:
        """Swap the body."""
        self._function.__code__ = self._body

    def remove(self) -> None:
        """Put the original body back, unless somebody gave the function yet another one."""
        if self._function.__code__ is self._body:
            self._function.__code__ = self._code


_HOLE = "where to hand the call on"


@functools.cache
def _body(free: int) -> CodeType:
    """A body with so many free variables, which a function of that many needs.

    They are not used. But a frame must begin with the instruction that fetches them: whoever looks
    at the variables of one without it, as debuggers and test runners do, crashes the interpreter.
    """
    names = [f"free_{number:04}" for number in range(free)]
    source = f"""
def outer({", ".join(names)}):
    def body(*args, **kwargs):
        receive = {_HOLE!r}
        return receive(args, kwargs)
        ({"".join(f"{name}, " for name in names)})
"""
    code = compile(source, __file__, "exec")
    for _ in ("outer", "body"):
        code = next(each for each in code.co_consts if isinstance(each, CodeType))
    return code


def replacement(receive: Receiver, found: Api | None, function: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return receive(found, function, args, kwargs, sys._getframe(1))

    return call


class Attribute:
    """An attribute that has another value for the while.

    Args:
        owner: whose attribute it is.
        name: of the attribute.
        value: that it has from :meth:`install` to :meth:`remove`.
    """

    def __init__(self, owner: Any, name: str, value: Any) -> None:
        self._owner = owner
        self._name = name
        self._value = value
        self._own = name in vars(owner)
        self._original = vars(owner).get(name)

    def install(self) -> None:
        """Set the value."""
        setattr(self._owner, self._name, self._value)

    def remove(self) -> None:
        """Put the original value back."""
        if vars(self._owner).get(self._name) is not self._value:
            return  # somebody else changed it meanwhile
        if self._own:
            setattr(self._owner, self._name, self._original)
        else:
            delattr(self._owner, self._name)
