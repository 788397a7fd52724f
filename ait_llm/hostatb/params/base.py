"""The base of all operation parameters: checked fields and the library's JSON text."""

from __future__ import annotations

import difflib
import sys
from dataclasses import fields
from typing import Any, ClassVar, get_type_hints

from ait_llm.core import Registry
from ait_llm.errors import OperationError
from ait_llm.hostatb.params.fields import Convert, converter
from ait_llm.hostatb.params.json_text import dump_json

# Metadata of a field that the library does not print although it computes with it.
UNPRINTED = {"printed": False}


class UnknownFieldError(OperationError, AttributeError):
    """A parameter class has no field of that name."""


class _ParamMeta(type):
    """Names the nearest field when a constructor gets an unknown keyword."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        for name in kwargs:
            if name not in cls.__dataclass_fields__:  # type: ignore[attr-defined]  # set by dataclass
                raise _unknown_field(cls, name)
        return super().__call__(*args, **kwargs)


class Struct(metaclass=_ParamMeta):
    """A C++ parameter struct; subclasses are dataclasses with snake_case fields.

    Setting a field converts to its C++ type (floats are rounded to 32 bits, nested structs copied)
    or raises :class:`FieldTypeError`; setting another name raises :class:`UnknownFieldError`.
    """

    _converters: ClassVar[dict[str, Convert]]

    def __setattr__(self, name: str, value: Any) -> None:
        cls = type(self)
        if "_converters" not in cls.__dict__:
            cls._converters = _field_converters(cls)
        convert = cls._converters.get(name)
        if convert is None:
            raise _unknown_field(cls, name)
        object.__setattr__(self, name, convert(f"{cls.__qualname__}.{name}", value))

    def __getattr__(self, name: str) -> Any:
        raise _unknown_field(type(self), name)

    def entries(self, printed_only: bool) -> dict[str, Any]:
        """Field values under their JSON keys, nested structs as dicts.

        Args:
            printed_only: leave out the fields that the library never prints.
        """
        result: dict[str, Any] = {}
        for item in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            if printed_only and not item.metadata.get("printed", True):
                continue
            value = getattr(self, item.name)
            if value is None:  # no pointer, which the library prints as a number
                value = 0
            key = item.metadata.get("key") or camel_case(item.name)
            result[key] = value.entries(printed_only) if isinstance(value, Struct) else value
        return result


class Param(Struct):
    """Parameters of one operation type.

    Attributes:
        operation: the operation type, such as ``LinearOperation``.
        prints_json: False for the types whose operations report no parameters.
    """

    operation: ClassVar[str]
    prints_json: ClassVar[bool] = True

    def __init_subclass__(cls, register: bool = True) -> None:
        if not register:
            return
        if "operation" not in cls.__dict__:
            cls.operation = cls.__name__.removesuffix("Param") + "Operation"
        param_types.register(cls.__name__)(cls)

    def to_json(self) -> str:
        """The text of these parameters as the library prints them, ``null`` if there are none."""
        return dump_json(self.entries(printed_only=True) or None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}: {self.to_json()}"


param_types: Registry[type[Param]] = Registry("parameter class")


def camel_case(name: str) -> str:
    """``transpose_a`` as the C++ field name ``transposeA``."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def _field_converters(cls: type) -> dict[str, Convert]:
    names: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        names |= vars(sys.modules[base.__module__]) | dict(vars(base))
    hints = get_type_hints(cls, globalns=names, include_extras=True)
    return {item.name: converter(hints[item.name]) for item in fields(cls)}


def _unknown_field(cls: type, name: str) -> UnknownFieldError:
    known = [item.name for item in fields(cls)]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"
    return UnknownFieldError(f"{cls.__qualname__} has no field {name!r}; {hint}")
