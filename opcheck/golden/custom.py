"""What the schema of an operator of another library says of its recorded arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of an operator.

    Attributes:
        name: of it.
        is_tensor: a tensor, or none in its place.
        is_written: the operator writes to it.
        default: of one that is no tensor and may be left out; None for others.
    """

    name: str
    is_tensor: bool
    is_written: bool
    default: Any


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments of an operator, and how many tensors it returns."""

    arguments: tuple[Argument, ...]
    returns: int

    @property
    def tensors(self) -> list[Argument]:
        """Those that are inputs of its golden operator, in order."""
        return [one for one in self.arguments if one.is_tensor]

    def named(self, place: str) -> str | None:
        """The name of the argument that a capture calls by its number or its name."""
        if place.isdecimal():
            number = int(place)
            return self.arguments[number].name if number < len(self.arguments) else None
        return place if any(one.name == place for one in self.arguments) else None

    def unread(self, fills: Sequence[str]) -> list[int]:
        """The inputs of its golden operator whose values mean nothing."""
        return [place for place, one in enumerate(self.tensors) if one.name in fills]

    def plain(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that are no tensors, with what those are that were left out."""
        return {
            one.name: given.get(one.name, one.default)
            for one in self.arguments
            if not one.is_tensor
        }


@lru_cache(maxsize=1024)
def signature(schema: str) -> Signature:
    """The arguments of ``(Tensor! result, Tensor input, float epsilon) -> ()``.

    Raises:
        ValueError: it is no schema, or has lists of tensors.
    """
    try:
        found = torch._C.parse_schema(f"own::operator{schema}")
    except RuntimeError as error:
        raise ValueError(f"{schema!r} is no schema of an operator: {error}") from None
    arguments = []
    for one in found.arguments:
        kind = str(one.type)
        if "Tensor[]" in kind or "List[Tensor]" in kind:
            raise ValueError(f"{schema!r}: lists of tensors are not supported")
        is_written = one.alias_info is not None and one.alias_info.is_write
        arguments.append(Argument(one.name, "Tensor" in kind, is_written, one.default_value))
    return Signature(tuple(arguments), sum("Tensor" in str(one.type) for one in found.returns))
