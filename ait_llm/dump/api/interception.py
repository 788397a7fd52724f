"""Seeing every call of the listed functions, whatever name the caller holds.

Functions that are written in Python get another body for the while (``replacing.BodySwap``): the
object stays the same, so a name that was imported earlier is seen too and ``fn is F.gelu`` still
holds. Functions and methods of torch's C++ are seen by a mode of the override protocol
(``call_mode.CallMode``), which torch asks at every call that enters it from Python. Operators such
as ``x + y`` reach the mode under the name of the method, so the special methods of ``Tensor`` that
have this problem are replaced for the while. All of it ends with :meth:`Interception.remove`.
"""

from __future__ import annotations

import functools
import importlib
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch

from ait_llm.dump.api.call_mode import CallMode
from ait_llm.dump.api.names import Api, Receiver, api
from ait_llm.dump.api.replacing import Attribute, BodySwap, replacement
from ait_llm.formats.api_list import PREFIXES

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
                    Attribute(torch.Tensor, name, replacement(receive, None, function))
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
                    Attribute(torch.Tensor, last, replacement(self._receive, found, function))
                )
            elif id(inner) not in self._seen and not inner.__code__.co_flags & _UNUSUAL:
                self._seen.add(id(inner))
                self._swaps.append(BodySwap(inner, functools.partial(self._receive, found)))
            return
        if owner is torch.Tensor:
            if last.startswith("__") and last not in _SEEN_AS_THEY_ARE:
                self._attributes.append(
                    Attribute(torch.Tensor, last, replacement(self._receive, found, function))
                )
                return
        elif custom and not _is_overridable(function):
            holder = _attribute(owner, name.rpartition(".")[0]) if "." in name else owner
            self._attributes.append(
                Attribute(holder, last, replacement(self._receive, found, function))
            )
            return
        if id(function) not in self.table:
            self.table[id(function)] = found
            self._kept.append(function)
        elif owner is torch and self.table[id(function)] != found and "." not in name:
            # F.conv2d and torch.conv2d are one object: only the way to it tells them apart.
            self._attributes.append(
                Attribute(torch, name, replacement(self._receive, found, function))
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


class Fingerprint:
    """What listed names stand for; it changes when a program replaces a function.

    Args:
        apis: names by section of our list.
        modules: names by module.
    """

    def __init__(
        self, apis: Mapping[str, Sequence[str]], modules: Mapping[str, Sequence[str]]
    ) -> None:
        self._names = {place: apis[section] for section in apis for place in _PLACES[section]}
        self._names |= modules
        self._loaded: tuple[int, ...] = ()
        self._holders: list[tuple[Any, str]] = []

    def take(self) -> tuple[int, ...]:
        """The fingerprint of this moment."""
        loaded = tuple([id(sys.modules.get(place.partition(":")[0])) for place in self._names])
        if loaded != self._loaded:
            self._loaded = loaded
            self._holders = []
            for place, names in self._names.items():
                owner = _place(place)
                for name in names if owner is not None else ():
                    inside, _, last = name.rpartition(".")
                    holder = _attribute(owner, inside) if inside else owner
                    self._holders.append((holder, last))
        return (*loaded, *[id(getattr(holder, name, None)) for holder, name in self._holders])


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
