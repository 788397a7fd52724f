"""Which operators of the graph engine have a definition, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ait_llm.opcheck.golden.base import UnverifiableError

Compute = Callable[..., Any]
"""Makes the results of an operator of its inputs, by position; None for those that are not fed.

Where it does not make all results, it hands out those that it makes by their numbers.
"""

# Numbers of element types in attributes, which are ``ge::DataType``.
_TYPES: Mapping[int, torch.dtype] = {
    0: torch.float32,
    1: torch.float16,
    2: torch.int8,
    3: torch.int32,
    4: torch.uint8,
    6: torch.int16,
    9: torch.int64,
    11: torch.float64,
    12: torch.bool,
    27: torch.bfloat16,
}


@dataclass(frozen=True, slots=True)
class Part:
    """An operator of the graph before fusion, without its values.

    Attributes:
        type: ``MatMulV2``.
        attrs: as the graph has them; None where there is no graph.
        made: element type of its first result, where that was dumped.
        shape: dims of its first result, where that was dumped.
        ports: names of its inputs by position, where there is a graph.
    """

    type: str
    attrs: Mapping[str, Any] | None
    made: torch.dtype | None = None
    shape: tuple[int, ...] | None = None
    ports: tuple[str, ...] = ()

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute; ``default`` is what the prototype says of one that the graph leaves out."""
        return (self.attrs or {}).get(name, default)

    def number(self, name: str, default: float | None = None) -> float | None:
        """A number among the attributes; None where it is none."""
        value = self.attr(name, default)
        is_number = isinstance(value, (int, float)) and type(value) is not bool
        return float(value) if is_number else None

    def axis(self, name: str, default: int | None = None) -> int | None:
        """A whole number among the attributes; None where it is none."""
        value = self.attr(name, default)
        return value if type(value) is int else None

    def axes(self, name: str) -> list[int] | None:
        """A list of whole numbers; None where it is none."""
        value = self.attr(name)
        found = [value] if type(value) is int else value
        if not isinstance(found, (tuple, list)) or not all(type(one) is int for one in found):
            return None
        return list(found)

    def dtype(self, name: str) -> torch.dtype | None:
        """An element type among the attributes; None where it is none that torch has."""
        value = self.attr(name)
        return _TYPES.get(value) if type(value) is int else None


Definition = Callable[[Part], Compute | None]
"""What operators of a type compute; None where their attributes say something unusual."""


@dataclass(frozen=True, slots=True)
class _Known:
    definition: Definition
    attributes: bool
    checked: frozenset[int] | None


_KNOWN: dict[str, _Known] = {}


def engine_op(
    *names: str, attributes: bool = False, checked: frozenset[int] | None = None
) -> Callable[[Definition], Definition]:
    """Register a definition for operators of these types.

    Args:
        names: of the types.
        attributes: it depends on attributes, which only the graph before fusion has.
        checked: results that it defines, by number; None for all. Others are for later passes of
            the engine, and no two kernels keep the same.
    """

    def add(definition: Definition) -> Definition:
        for name in names:
            if name in _KNOWN:
                raise ValueError(f"there are two definitions of {name}")
            _KNOWN[name] = _Known(definition, attributes, checked)
        return definition

    return add


def plain(function: Compute) -> Definition:
    """The definition of an operator without attributes."""
    return lambda part: function


def is_defined(type_name: str) -> bool:
    """True for a type with a definition."""
    return type_name in _KNOWN


def is_result(type_name: str, index: int) -> bool:
    """True for a result of an operator that its definition has."""
    known = _KNOWN.get(type_name)
    return known is not None and (known.checked is None or index in known.checked)


def part_function(part: Part) -> Compute | None:
    """What an operator computes; None where there is no definition, or it is not enough."""
    known = _KNOWN.get(part.type)
    if known is None or (known.attributes and part.attrs is None):
        return None
    return known.definition(part)


def named(
    ports: Sequence[str], given: Sequence[Tensor | None], known: frozenset[str]
) -> dict[str, Tensor]:
    """What an operator is fed, by the names of the prototype; empty tensors stand for nothing.

    Args:
        ports: names by position.
        given: tensors by position.
        known: names that a definition knows.

    Raises:
        UnverifiableError: something else is fed.
    """
    found = {
        name: tensor
        for name, tensor in zip(ports, given, strict=False)
        if tensor is not None and tensor.numel()
    }
    strange = found.keys() - known
    if strange or len(given) > len(ports):
        what = ", ".join(sorted(strange)) or "inputs without names"
        raise UnverifiableError(f"it is fed {what}, with which it is not defined here")
    return found


def integers(tensor: Tensor) -> list[int]:
    """The numbers of a tensor of axes, sizes or places."""
    return [int(one) for one in tensor.reshape(-1).tolist()]
