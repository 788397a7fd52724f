"""Operators of other runtimes, written with torch under a name of our own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch


def defined(namespace: str, operators: Mapping[str, Callable[..., Any]]) -> torch.library.Library:
    """Make operators known to torch.

    Args:
        namespace: they are ``torch.ops.NAMESPACE.name``.
        operators: what each computes, by its schema.
    """
    library = torch.library.Library(namespace, "DEF")  # type: ignore[no-untyped-call]
    for schema, function in operators.items():
        library.define(schema)  # type: ignore[no-untyped-call]
        name = schema.partition("(")[0]
        library.impl(name, function, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    return library
