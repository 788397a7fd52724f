"""Python expressions as trees, from any thread."""

from __future__ import annotations

import ast
import threading

_one_at_a_time = threading.Lock()


def expression(text: str) -> ast.expr:
    """The tree of an expression.

    CPython 3.11 counts the depth of trees once for all threads, and raises SystemError where two of
    them parse at a time (python/cpython#106905).

    Raises:
        SyntaxError, ValueError, MemoryError, RecursionError: as ``ast.parse``.
    """
    with _one_at_a_time:
        return ast.parse(text, mode="eval").body
