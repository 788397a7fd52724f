"""A recorded call of an aten operator: its tensors and plain arguments, put back in their places.

A capture names each tensor by its place: ``input_0``, ``input_1_2`` for an item of a list,
``input_dim`` for a keyword. Plain arguments have the same names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ait_llm.opcheck.golden.base import Params, UnverifiableError
from ait_llm.opcheck.golden.ggml_operators import NAMESPACE as GGML
from ait_llm.opcheck.golden.ggml_operators import define as define_ggml
from ait_llm.opcheck.golden.onnx_operators import NAMESPACE as ONNX
from ait_llm.opcheck.golden.onnx_operators import define as define_onnx

# Parameter of golden aten operators: the places of their input tensors, in order.
TENSORS = "tensors"
_OWN = {GGML: define_ggml, ONNX: define_onnx}
_INPUT = "input_"
_CONVERSION = "prims.convert_element_type.default"
_RESULTS = frozenset({"Tensor", "List[Tensor]", "Optional[Tensor]"})
_WORDS = re.compile(r"Optional|List|[\[\]]")
_ARGUMENTS = frozenset({"Tensor", "number", "int", "float", "bool", "str", "Device", "Generator"})
_NUMBERS = frozenset({"number", "Optional[number]", "float", "Optional[float]"})


@dataclass(frozen=True)
class Call:
    """A call that can be made.

    Attributes:
        args, kwargs: as the operator takes them.
        written: input tensors that it writes into.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    written: tuple[Tensor, ...]


@lru_cache(maxsize=1024)
def find_operator(type_name: str) -> Any | None:
    """``torch.ops.aten.mm.default``; None where this version of torch has no such operator.

    A dump may come from anybody, and some of torch's operators write files, read them or change
    the process. Only those of ``aten`` are found that make tensors of tensors and plain numbers,
    a conversion that compilers write in other words, and our own of ONNX and ggml.
    """
    names = type_name.split(".")
    if len(names) != 3 or not all(names):
        return None
    if names[0] in _OWN:
        _OWN[names[0]]()
    elif names[0] != "aten" and type_name != _CONVERSION:
        return None
    found: Any = torch.ops
    try:
        for name in names:
            found = getattr(found, name)
    except AttributeError:
        return None
    return found if isinstance(found, torch._ops.OpOverload) and _only_computes(found) else None


def _only_computes(func: Any) -> bool:
    """True for an operator without effects outside of its arguments, as far as its schema tells."""
    schema = func._schema
    return (
        bool(schema.returns)
        and all(str(one.type) in _RESULTS for one in schema.returns)
        and all(_WORDS.sub("", str(one.type)) in _ARGUMENTS for one in schema.arguments)
        and all(one.name != "filename" for one in schema.arguments)
    )


def build_call(func: Any, inputs: Sequence[Tensor | None], params: Params) -> Call:
    """The call of an operator with recorded arguments.

    Raises:
        UnverifiableError: an argument is unknown.
    """
    named: dict[str, Any] = {
        name.removeprefix(_INPUT): _plain(value)
        for name, value in params.items()
        if name.startswith(_INPUT)
    }
    tensors: Sequence[str] = params.get(TENSORS, ())
    for name, tensor in zip(tensors, inputs, strict=False):
        named[name.removeprefix(_INPUT)] = tensor
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    written: list[Tensor] = []
    last = _last_given(func, named)
    for place, argument in enumerate(func._schema.arguments):
        keys = (argument.name,) if argument.kwarg_only else (str(place), argument.name)
        found, value = _find(named, keys, listed="List" in str(argument.type))
        if not found:
            if argument.has_default_value():
                if argument.kwarg_only or place > last:
                    continue
                value = argument.default_value
            elif "List" in str(argument.type):
                value = []  # an empty list leaves no trace
            else:
                raise UnverifiableError(f"its argument {argument.name!r} was not recorded")
        if str(argument.type) in _NUMBERS and isinstance(value, str):
            value = float(value)  # JSON has no name for infinity
        if is_of_device(argument.name):
            value = torch.device("cpu")
        if argument.name == "pin_memory":
            value = False
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
        if argument.alias_info is not None and argument.alias_info.is_write:
            written += [one for one in _listed(value) if isinstance(one, Tensor)]
    return Call(tuple(args), kwargs, tuple(written))


def is_of_device(name: str) -> bool:
    """True for the argument that says where a result is to lie."""
    return name == "device"


def _last_given(func: Any, named: Mapping[str, Any]) -> int:
    """Place of the last positional argument that was recorded."""
    given = [-1]
    for place, argument in enumerate(func._schema.arguments):
        if not argument.kwarg_only and any(
            name == key or name.startswith(f"{key}_")
            for key in (str(place), argument.name)
            for name in named
        ):
            given.append(place)
    return max(given)


def _find(named: Mapping[str, Any], keys: Sequence[str], *, listed: bool) -> tuple[bool, Any]:
    """Whether an argument was recorded, and its value; items of lists have names of their own."""
    for key in keys:
        if key in named:
            return True, named[key]
        if not listed:
            continue
        items = {}
        for name, value in named.items():
            place = name.removeprefix(f"{key}_")
            if place != name and place.isdecimal():
                items[int(place)] = value
        if items:
            return True, [items.get(index) for index in range(max(items) + 1)]
    return False, None


def _plain(value: Any) -> Any:
    """A value as recorded: torch's own constants are names."""
    if isinstance(value, str) and value.startswith("torch."):
        name = value.removeprefix("torch.")
        found = getattr(torch, name, None) if name.isidentifier() else None
        if isinstance(found, (torch.dtype, torch.layout, torch.memory_format)):
            return found
        raise UnverifiableError(f"its argument {value!r} is not known")
    return value


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]
