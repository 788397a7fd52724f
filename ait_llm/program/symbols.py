"""Symbolic sizes of a graph that was compiled for any length, from the tensors of one execution."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping

from ait_llm.core.parsing import expression

Dims = tuple[int | str, ...]
_OPERATIONS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_LONGEST = 200  # characters of a size


def symbols_of(pairs: Iterable[tuple[Dims, tuple[int, ...]]]) -> dict[str, int]:
    """What symbols stand for; one for which two tensors have different sizes is left out.

    Args:
        pairs: dims as the graph has them, and those of the tensor.
    """
    found: dict[str, int] = {}
    unclear: set[str] = set()
    for dims, shape in pairs:
        if len(dims) != len(shape):
            continue
        for dim, size in zip(dims, shape, strict=True):
            if isinstance(dim, str) and dim.isidentifier() and found.setdefault(dim, size) != size:
                unclear.add(dim)
    return {name: size for name, size in found.items() if name not in unclear}


def size_of(text: str, symbols: Mapping[str, int]) -> int | None:
    """A size that a graph spells as ``2*s23 + 1``; None where a symbol of it is unknown."""
    if len(text) > _LONGEST:
        return None
    try:
        return _value(expression(text), symbols)
    except (SyntaxError, KeyError, TypeError, ZeroDivisionError, RecursionError, ValueError):
        return None


def _value(tree: ast.expr, symbols: Mapping[str, int]) -> int:
    if isinstance(tree, ast.BinOp):
        compute = _OPERATIONS[type(tree.op)]
        return compute(_value(tree.left, symbols), _value(tree.right, symbols))
    if isinstance(tree, ast.Name):
        return symbols[tree.id]
    if isinstance(tree, ast.Constant) and type(tree.value) is int:
        return tree.value
    raise TypeError(tree)
