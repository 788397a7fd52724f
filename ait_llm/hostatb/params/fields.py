"""Field types of operation parameters and the check that a value fits one.

A field is annotated with one of the aliases below, an ``IntEnum`` or another parameter class; the
annotation's extra item is the C++ type whose range (or precision) the value must have.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Annotated, Any, get_args, get_origin

from ait_llm.errors import OperationError

Int8 = Annotated[int, "int8"]
Int16 = Annotated[int, "int16"]
Int32 = Annotated[int, "int32"]
Int64 = Annotated[int, "int64"]
UInt8 = Annotated[int, "uint8"]
UInt16 = Annotated[int, "uint16"]
UInt32 = Annotated[int, "uint32"]
UInt64 = Annotated[int, "uint64"]
Pointer = Annotated[int | None, "pointer"]
Float32 = Annotated[float, "float32"]
Float64 = Annotated[float, "float64"]
Int32List = Annotated[list[int], "int32"]
Int64List = Annotated[list[int], "int64"]
UInt32List = Annotated[list[int], "uint32"]
Float32List = Annotated[list[float], "float32"]

Convert = Callable[[str, Any], Any]


class FieldTypeError(OperationError, TypeError):
    """A parameter field was given a value of the wrong type or out of range."""


def converter(annotation: Any) -> Convert:
    """The function ``(field name, value) -> stored value`` for one field annotation.

    Raises:
        TypeError: the annotation is none of the supported ones; a mistake in a parameter class.
    """
    if get_origin(annotation) is Annotated:
        base, kind = get_args(annotation)
        if kind == "pointer":
            return _to_pointer
        scalar = _float_converter(kind) if kind.startswith("float") else _int_converter(kind)
        return _list_converter(scalar) if get_origin(base) is list else scalar
    if annotation is bool:
        return _to_bool
    if annotation is str:
        return _to_str
    if isinstance(annotation, type) and issubclass(annotation, IntEnum):
        return _enum_converter(annotation)
    if isinstance(annotation, type):
        return _copy_converter(annotation)
    raise TypeError(f"unsupported parameter field annotation {annotation!r}")


def _refuse(name: str, wanted: str, value: Any) -> FieldTypeError:
    return FieldTypeError(f"{name} must be {wanted}, got {type(value).__name__} {value!r}")


def _int_converter(kind: str) -> Convert:
    bits = int(kind.removeprefix("u").removeprefix("int"))
    low = 0 if kind.startswith("u") else -(2 ** (bits - 1))
    high = low + 2**bits - 1

    def convert(name: str, value: Any) -> int:
        if isinstance(value, float) or not hasattr(value, "__index__"):
            raise _refuse(name, "a whole number", value)
        number = int(value.__index__())
        if not low <= number <= high:
            raise FieldTypeError(f"{name} must be from {low} to {high} ({kind}), got {number}")
        return number

    return convert


def _to_pointer(name: str, value: Any) -> int | None:
    """An address, or None for none, as the library's module says it."""
    return None if value is None else _int_converter("uint64")(name, value) or None


def _float_converter(kind: str) -> Convert:
    def convert(name: str, value: Any) -> float:
        if isinstance(value, str) or not hasattr(value, "__float__"):
            raise _refuse(name, "a number", value)
        number = float(value)
        if kind == "float64":
            return number
        try:
            rounded: float = struct.unpack("<f", struct.pack("<f", number))[0]
        except OverflowError:
            raise FieldTypeError(f"{name} must fit a 32-bit float, got {number!r}") from None
        return rounded

    return convert


def _list_converter(scalar: Convert) -> Convert:
    def convert(name: str, value: Any) -> list[Any]:
        if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
            raise _refuse(name, "a list of numbers", value)
        return [scalar(f"{name}[{index}]", item) for index, item in enumerate(value)]

    return convert


def _enum_converter(enum: type[IntEnum]) -> Convert:
    def convert(name: str, value: Any) -> IntEnum:
        foreign = isinstance(value, (IntEnum, bool)) and not isinstance(value, enum)
        if foreign or not isinstance(value, int):
            raise _refuse(name, f"a member of {enum.__qualname__}", value)
        try:
            return enum(value)
        except ValueError:
            known = ", ".join(member.name for member in enum)
            raise FieldTypeError(
                f"{name}: {value} is no {enum.__qualname__}; known: {known}"
            ) from None

    return convert


def _copy_converter(wanted: type) -> Convert:
    def convert(name: str, value: Any) -> Any:
        if not isinstance(value, wanted):
            raise _refuse(name, f"a {wanted.__qualname__}", value)
        return copy.copy(value)

    return convert


def _to_bool(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, int)) or value not in (0, 1):
        raise _refuse(name, "True or False", value)
    return bool(value)


def _to_str(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _refuse(name, "text", value)
    return value
