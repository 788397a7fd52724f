"""Whose part of a sum is wrong: the sum alone does not tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ait_llm.compare.api.shards.pieces import total
from ait_llm.formats.elements import Array

# How much further a part must be from its own inputs than the others are, and at least.
_BEYOND, _LEAST = 10.0, 1e-4
_SAME_LINE = 0.99  # cosine of the error and a part that is wrong by a factor
_STANDS_OUT = 3.0
_PRODUCTS = frozenset({"matmul", "mm", "bmm", "__matmul__"})


def wrong_parts(
    function: str,
    inputs: Sequence[Mapping[str, Array]],
    whole: Array,
    parts: Sequence[Array],
) -> tuple[int, ...]:
    """Ranks whose part of a sum is wrong; empty if that cannot be told.

    A product is computed again from each rank's own inputs. Of other functions, a part stands out
    if it is wrong by a factor, or where alone the sum is wrong.

    Args:
        function: ``linear``.
        inputs: of the call on each rank, by name within the record (``.input.0``).
        whole: what the sum should be.
        parts: what the ranks hold.
    """
    broken = tuple(r for r, part in enumerate(parts) if not np.isfinite(_wide(part)).all())
    if broken:
        return broken
    again = [_recomputed(function, each) for each in inputs]
    if all(each is not None for each in again):
        return _unlike(parts, again)
    return _outstanding(whole, parts)


def _recomputed(function: str, inputs: Mapping[str, Array]) -> Array | None:
    first, second = inputs.get(".input.0"), inputs.get(".input.1")
    if first is None or second is None or first.ndim < 1 or second.ndim < 1:
        return None
    try:
        if function == "linear":
            found: Array = _wide(first) @ _wide(second).T
            bias = inputs.get(".input.2", inputs.get(".input.bias"))
            if bias is not None:
                found = found + _wide(bias)
            return found
        if function in _PRODUCTS:
            product: Array = _wide(first) @ _wide(second)
            return product
    except ValueError:  # shapes of another call than it seems
        pass
    return None


def _unlike(parts: Sequence[Array], again: Sequence[Array | None]) -> tuple[int, ...]:
    errors = []
    for part, right in zip(parts, again, strict=True):
        if right is None or right.shape != part.shape:
            return ()
        size = float(np.linalg.norm(right))
        error = float(np.linalg.norm(_wide(part) - right))
        errors.append(error / size if size else error)
    typical = sorted(errors)[(len(errors) - 1) // 2]
    limit = max(_LEAST, _BEYOND * typical)
    return tuple(rank for rank, error in enumerate(errors) if not error <= limit)


def _outstanding(whole: Array, parts: Sequence[Array]) -> tuple[int, ...]:
    error = np.ravel(total(parts) - _wide(whole))
    size = float(np.linalg.norm(error))
    if not size:
        return ()
    flat = [np.ravel(_wide(part)) for part in parts]
    along = [
        abs(float(np.vdot(part, error).real)) / (float(np.linalg.norm(part)) * size or np.inf)
        for part in flat
    ]
    if sum(each > _SAME_LINE for each in along) == 1:
        return (int(np.argmax(along)),)
    where = np.abs(error) > _STANDS_OUT * np.sqrt(np.mean(np.abs(error) ** 2))
    if not where.any():
        return ()
    sizes = [float(np.abs(part[where]).mean()) for part in flat]
    best = int(np.argmax(sizes))
    others = [each for rank, each in enumerate(sizes) if rank != best]
    return (best,) if others and sizes[best] > _STANDS_OUT * max(others) else ()


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
