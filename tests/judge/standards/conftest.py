"""Judging one output of a golden operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from ait_llm.judge.standards import Computation, Output
from ait_llm.opcheck.golden import GOLDEN, Arithmetic, Result, golden_ops

Bind = Callable[..., Output]


def _bind(
    op: str,
    inputs: Sequence[Tensor | None],
    params: Mapping[str, Any] | None = None,
    mine: Tensor | None = None,
    *,
    defined: Tensor | None = None,
    index: int = 0,
) -> Output:
    golden, own = golden_ops.get(op), params or {}

    def compute(arithmetic: Arithmetic) -> Result:
        return golden.compute(inputs, own, arithmetic)

    computation = Computation(golden, list(inputs), own, compute)
    right = computation.result(GOLDEN).outputs[index]
    given = right if mine is None else mine
    return Output(f"outtensor{index}", index, False, right, given, defined, computation)


@pytest.fixture(scope="session")
def bind() -> Bind:
    """``bind(op, inputs, params, mine)`` gives the output to judge; golden's own unless given."""
    return _bind


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(21)
