"""Operators whose only arguments are numbers: a runtime casts a constant and goes on from there."""

from __future__ import annotations

import pytest

from ait_llm.program.calls import Call, CallGraph
from ait_llm.program.composites import find_composites


@pytest.mark.parametrize(
    "calls",
    [
        [Call("sqrt", (), (1,), (5.0,))],
        [Call("add", (), (1,), (5.0, 1e-6)), Call("rsqrt", (1,), (2,))],
        [Call("mean", (), (1,)), Call("add", (1,), (2,), (1e-6,)), Call("rsqrt", (2,), (3,))],
        [Call("sigmoid", (), (1,), (5.0,))],
        [Call("tanh", (), (1,), (5.0,))],
    ],
)
def test_operators_of_numbers_alone_are_no_part_of_a_composite(calls: list[Call]) -> None:
    assert list(find_composites(CallGraph(calls, {}))) == []
