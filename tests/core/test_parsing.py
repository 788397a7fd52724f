"""Expressions are parsed from many threads at once."""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ait_llm.core.parsing import expression

TEXT = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "3, " * 40 + ")}"


@pytest.fixture
def busy_collector() -> Iterator[None]:
    """Garbage is collected within each parse, and gives other threads their turn."""
    before = gc.get_threshold()
    gc.callbacks.append(_dawdle)
    gc.set_threshold(20)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(_dawdle)


def _dawdle(phase: str, info: dict[str, int]) -> None:
    for _ in range(50):
        pass


@pytest.mark.usefixtures("busy_collector")
def test_threads_do_not_disturb_each_other() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            trees = list(pool.map(expression, [TEXT] * 200))
    finally:
        sys.setswitchinterval(before)
    assert all(ast.literal_eval(tree)["shape"] == (3,) * 40 for tree in trees)
