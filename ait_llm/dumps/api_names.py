"""The names of records in API dumps: ``Functional.linear.0.forward``."""

from __future__ import annotations

from dataclasses import dataclass

DIRECTIONS = ("forward", "backward", "parameters_grad")


@dataclass(frozen=True, slots=True)
class ApiName:
    """A record's name in its parts.

    Attributes:
        api: without number and direction: ``Functional.linear``, ``Module.layers.0.mlp.MLP``, or
            the name given to a variable.
        call: which call of it within the step, from 0.
        direction: ``forward``, ``backward``, ``parameters_grad`` or ``debug``; "" for a name of
            another form.
    """

    api: str
    call: int
    direction: str

    @property
    def prefix(self) -> str:
        """``Functional``, ``Tensor``, ``Module``."""
        return self.api.partition(".")[0]

    @property
    def type(self) -> str:
        """Name of the function or class: ``linear``, ``MLP``."""
        return self.api.rpartition(".")[2]

    @property
    def is_module(self) -> bool:
        """True for a call of a module rather than a function."""
        return self.prefix in ("Module", "Cell") and self.direction != "debug"

    @property
    def module_path(self) -> str:
        """Dotted path of a module without its class, "" for anything else."""
        return ".".join(self.api.split(".")[1:-1]) if self.is_module else ""


def parse_name(name: str) -> ApiName:
    """Take a record's name apart.

    Functions are numbered before the direction, modules behind it; gradients of parameters of older
    captures have no number.
    """
    rest, _, last = name.rpartition(".")
    before, _, other = rest.rpartition(".")
    if last in DIRECTIONS and _is_count(other):
        return ApiName(before, int(other), last)
    if last == "debug" and _is_count(other):
        return ApiName(before, int(other), last)
    if other in DIRECTIONS and _is_count(last):
        return ApiName(before, int(last), other)
    if last in DIRECTIONS:
        return ApiName(rest, 0, last)
    return ApiName(name, 0, "")


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19
