"""Dims under a view, and what is said where it does not fit them."""

from __future__ import annotations

Dims = tuple[int, ...]


def axis_of(view: object, axis: int, dims: Dims) -> int:
    """An axis of a view counted from the front.

    Raises:
        ValueError: there is none such.
    """
    if not -len(dims) <= axis < len(dims):
        raise misfit(view, dims)
    return axis % len(dims)


def misfit(view: object, dims: Dims) -> ValueError:
    """What is raised where a view does not fit."""
    return ValueError(f"{view} does not fit shape {list(dims)}")
