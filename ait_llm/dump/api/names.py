"""Functions by the names that they have in records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, NamedTuple


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
