"""What several operations together do to errors that go into them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from memory_runs import operation, run
from numpy.typing import NDArray

from ait_llm.compare.origin_recomputing import Recomputing
from ait_llm.compare.origin_values import RunValues
from ait_llm.dumps.model import Operation
from ait_llm.judge.evidence import Gain, Introduced, gain_of

X = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)


def _near_zero(ids: tuple[int, ...], x: NDArray[np.float32], left: float) -> Operation:
    """A sum that leaves a part of what it reads, and so amplifies its error."""
    y = (-(1 - left) * x).astype(np.float32)
    return operation("ElewiseOperation", ids, [x, y], [x + y], params={"elewiseType": 8})


def _sum_of(ids: tuple[int, ...], first: Operation, second: Operation) -> Operation:
    values = [each.outputs[0].numpy() for each in (first, second)]
    made = [values[0] + values[1]]
    return operation("ElewiseOperation", ids, values, made, params={"elewiseType": 8})


def _gain(operations: Sequence[Operation], order: Sequence[int]) -> float:
    found = Recomputing(RunValues(run("atb", operations), [], []))
    found.examined.update(dict.fromkeys(order, Introduced(0.0, 0.0, 0, "")))
    gain = found.gain(order)
    assert gain is not None
    return gain.amplification


def _own(made: Operation) -> float:
    gain = gain_of(made)
    assert isinstance(gain, Gain)
    return max(1.0, gain.amplification)


def test_operations_one_after_another_amplify_what_the_ones_before_amplified() -> None:
    first = _near_zero((0,), X, 0.2)
    second = _near_zero((1,), first.outputs[0].numpy(), 0.25)
    assert _own(first) > 3
    assert _own(second) > 3
    assert _gain([first, second], [0, 1]) == pytest.approx(_own(first) * _own(second))


def test_operations_of_other_branches_do_not_amplify_an_error() -> None:
    first, second = _near_zero((0,), X, 0.2), _near_zero((1,), 2 * X, 0.25)
    both = _sum_of((2,), first, second)
    largest = max(_own(first), _own(second))
    assert _gain([first, second, both], [0, 1, 2]) == pytest.approx(largest * _own(both))


def test_what_the_members_of_a_block_amplified_goes_on_behind_it() -> None:
    """The block is listed before its members and ends after them, with a result of its own."""
    member = _near_zero((0, 0), X, 0.2)
    result = 2 * member.outputs[0].numpy()[:32]
    given = [each.numpy() for each in member.inputs]
    block = operation("GraphOperation", (0,), given, [result], is_graph=True)
    behind = _near_zero((1,), result, 0.25)
    assert _gain([block, member, behind], [1, 0, 2]) == pytest.approx(_own(member) * _own(behind))
