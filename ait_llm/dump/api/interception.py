"""Seeing every call of the listed functions, whatever name the caller holds.

Functions that are written in Python get another body for the while (:class:`BodySwap`): the object
stays the same, so a name that was imported earlier is seen too and ``fn is F.gelu`` still holds.
Functions and methods of torch's C++ are seen by a mode of the override protocol
(:class:`CallMode`), which torch asks at every call that enters it from Python. Operators such as
``x + y`` reach the mode under the name of the method, so the special methods of ``Tensor`` that
have this problem are replaced for the while. All of it ends with :meth:`Interception.remove`.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType, FunctionType
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from ait_llm.formats.api_list import PREFIXES


class Api(NamedTuple):
    """A function by the name that it has in a record."""

    prefix: str
    name: str
    full: str


def api(prefix: str, dotted: str) -> Api:
    """The name of a function: of a dotted one the last part counts."""
    name = dotted.rpartition(".")[2]
    return Api(prefix, name, f"{prefix}.{name}")


Receiver = Callable[
    [Api | None, Callable[..., Any], tuple[Any, ...], Mapping[str, Any], FrameType | None], Any
]
"""Makes a call: which function (None: one that is not listed), how to call it, with what, and from
where."""

# Special methods that reach the mode under their own name.
_SEEN_AS_THEY_ARE = frozenset({"__eq__", "__bool__", "__nonzero__", "__setitem__"})
# Operators that the mode sees under the name of a listed method, and that are none of it.
_OPERATORS = ("__neg__", "__abs__", "__itruediv__")
_PLACES: Mapping[str, tuple[str, ...]] = {
    "functional": ("torch.nn.functional",),
    "tensor": ("torch:Tensor",),
    "_VF": ("torch:_VF",),
    "torch": ("torch",),
    "distributed": ("torch.distributed.distributed_c10d", "torch.distributed"),
    "npu_distributed": ("torch_npu.distributed", "torch.distributed"),
    "mindspeed": ("mindspeed.ops",),
    "torch_npu": ("torch_npu",),
}


class Interception:
    """Installed from :meth:`install` to :meth:`remove`.

    Args:
        receive: makes the calls.
        apis: names by section of our list.
        modules: names by module, for functions of the user's own.
        namespaces: of ``torch.ops``, whose operators are all seen.
        extra: single functions: where they are, their name there, and their prefix.
    """

    def __init__(
        self,
        receive: Receiver,
        apis: Mapping[str, Sequence[str]],
        modules: Mapping[str, Sequence[str]],
        namespaces: Sequence[str] = (),
        extra: Sequence[tuple[Any, str, str]] = (),
    ) -> None:
        self.apis = apis
        self._receive = receive
        self._swaps: list[BodySwap] = []
        self._attributes: list[Attribute] = []
        self.table: dict[int, Api] = {}
        self._kept: list[Any] = []  # ids in the table stay those of these
        self._seen: set[int] = set()
        self._methods = frozenset(apis.get("tensor", ()))
        for owner, name, found in _listed(apis, modules):
            self._add(owner, name, found)
        for name in _OPERATORS:
            if name not in apis.get("tensor", ()):
                function = getattr(torch.Tensor, name)
                self._attributes.append(
                    Attribute(torch.Tensor, name, _replacement(receive, None, function))
                )
        for owner, name, prefix in extra:
            self._add(owner, name, api(prefix, name), custom=True)
        self.mode = CallMode(receive, self.table, frozenset(namespaces))

    def install(self) -> None:
        """Begin to see calls; those of C++ functions in threads that enter the mode."""
        for swap in self._swaps:
            swap.install()
        for attribute in self._attributes:
            attribute.install()

    def remove(self) -> None:
        """Put everything back."""
        for attribute in reversed(self._attributes):
            attribute.remove()
        for swap in self._swaps:
            swap.remove()

    def _add(self, owner: Any, name: str, found: Api, *, custom: bool = False) -> None:
        function = _attribute(owner, name)
        if function is None:
            return
        inner = getattr(function, "__func__", function)
        last = name.rpartition(".")[2]
        if isinstance(inner, FunctionType):
            if owner is torch.Tensor and _has_other_name(inner, self._methods):
                self._attributes.append(
                    Attribute(torch.Tensor, last, _replacement(self._receive, found, function))
                )
            elif id(inner) not in self._seen and not inner.__code__.co_flags & _UNUSUAL:
                self._seen.add(id(inner))
                self._swaps.append(BodySwap(inner, functools.partial(self._receive, found)))
            return
        if owner is torch.Tensor:
            if last.startswith("__") and last not in _SEEN_AS_THEY_ARE:
                self._attributes.append(
                    Attribute(torch.Tensor, last, _replacement(self._receive, found, function))
                )
                return
        elif custom and not _is_overridable(function):
            holder = _attribute(owner, name.rpartition(".")[0]) if "." in name else owner
            self._attributes.append(
                Attribute(holder, last, _replacement(self._receive, found, function))
            )
            return
        if id(function) not in self.table:
            self.table[id(function)] = found
            self._kept.append(function)
        elif owner is torch and self.table[id(function)] != found and "." not in name:
            # F.conv2d and torch.conv2d are one object: only the way to it tells them apart.
            self._attributes.append(
                Attribute(torch, name, _replacement(self._receive, found, function))
            )


# Generators and coroutines run when they are iterated, not when they are called.
_UNUSUAL = 0x20 | 0x80 | 0x200


def _has_other_name(function: FunctionType, listed: frozenset[str]) -> bool:
    """True for a method of Tensor that can also be called by a name that is not listed."""
    return any(
        value is function and name not in listed for name, value in vars(torch.Tensor).items()
    )


def _is_overridable(function: Any) -> bool:
    """True if the mode sees the calls of a function that is not written in Python."""
    module = getattr(function, "__module__", None) or ""
    kind = type(function)
    return kind.__name__ in ("OpOverload", "OpOverloadPacket") or (
        kind is types.BuiltinFunctionType and module.startswith(("torch", "_VariableFunctions"))
    )


def _listed(
    apis: Mapping[str, Sequence[str]], modules: Mapping[str, Sequence[str]]
) -> Iterator[tuple[Any, str, Api]]:
    """Each function that exists here: where it is, its name there, its name in a record."""
    # Where one C++ function has two names, the first is the one that modules use.
    for section in sorted(apis, key=list(_PLACES).index):
        names = apis[section]
        owners = [owner for owner in map(_place, _PLACES[section]) if owner is not None]
        for name in names:
            owner = next((each for each in owners if _attribute(each, name) is not None), None)
            if owner is not None:
                yield owner, name, api(PREFIXES[section], name)
    for module, names in modules.items():
        owner = _place(module)
        for name in names if owner is not None else ():
            if _attribute(owner, name) is not None:
                yield owner, name, api(module, name)


def fingerprint(
    apis: Mapping[str, Sequence[str]], modules: Mapping[str, Sequence[str]]
) -> tuple[int, ...]:
    """What the listed names stand for now; it changes when a program replaces a function."""
    found = [id(_attribute(owner, name)) for owner, name, _ in _listed(apis, modules)]
    return (id(sys.modules.get("torch.distributed")), *found)


def _place(text: str) -> Any:
    """A module, or what it holds; None if it is not there. Only torch itself is imported."""
    module, _, inside = text.partition(":")
    found = sys.modules.get(module)
    if found is None and module.startswith(("torch.", "mindspeed.")):
        try:
            found = importlib.import_module(module)
        except ImportError:
            return None
    return getattr(found, inside, None) if inside else found


def _attribute(owner: Any, dotted: str) -> Any:
    for name in dotted.split("."):
        owner = getattr(owner, name, None)
    return owner


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

        body = _body.__code__
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


def _body(*args: Any, **kwargs: Any) -> Any:
    receive: Any = "where to hand the call on"
    return receive(args, kwargs)


def _replacement(receive: Receiver, found: Api | None, function: Any) -> Callable[..., Any]:
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
