"""How much error may come out of what an error went into."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from memory_runs import operation

from ait_llm.judge.evidence import Gain, gain_of
from ait_llm.judge.gain import bounded_gain, is_amplified, may_be_inherited
from ait_llm.judge.pairs import DISTANCE, ELEMENT

LIMITS = {DISTANCE: 0.03, ELEMENT: 0.3}


def needed(distance: float) -> dict[str, float]:
    return {DISTANCE: distance, ELEMENT: 10 * distance}


def test_twice_the_error_that_came_in_may_be_inherited() -> None:
    assert may_be_inherited(needed(0.038), LIMITS, needed(0.02))
    assert not may_be_inherited(needed(0.042), LIMITS, needed(0.02))


def test_a_jump_out_of_small_errors_is_never_inherited() -> None:
    assert not may_be_inherited(needed(0.031), LIMITS, needed(0.001))
    assert not may_be_inherited(needed(0.031), LIMITS, {})


def test_no_error_is_inherited_beyond_four_times_the_limit() -> None:
    assert may_be_inherited(needed(0.119), LIMITS, needed(0.1))
    assert not may_be_inherited(needed(0.121), LIMITS, needed(0.1))


def test_single_elements_have_an_incoming_error_of_their_own() -> None:
    assert not may_be_inherited({DISTANCE: 0.02, ELEMENT: 0.5}, LIMITS, needed(0.02))


def test_what_is_not_finite_is_never_inherited() -> None:
    endless = {DISTANCE: float("inf"), ELEMENT: float("inf")}
    assert not may_be_inherited(endless, LIMITS, needed(0.03))
    assert not is_amplified(endless, needed(0.03), 1e6, 1e-3)


def test_a_module_whose_inside_nobody_saw_has_twice_the_gain_of_a_single_operation() -> None:
    linear, experts, product = (
        operation(kind, (0,), [np.ones(2)], [np.ones(2)])
        for kind in ("Linear", "MixtralExperts", "aten.mm.default")
    )
    assert bounded_gain([linear, product]) == 2
    assert bounded_gain([linear, experts]) == 4


@pytest.mark.parametrize("factor", [1.0, 5.0])
def test_measured_amplification_is_that_of_the_derivative(factor: float) -> None:
    """Of ``x + y`` with ``y = -c x``: errors of x and y stay, the sum is ``1 - c`` of x."""
    x = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    c = 1 - 1 / factor if factor > 1 else 0.0
    y = (-c * x).astype(np.float32)
    params = {"elewiseType": 8}
    made = operation("ElewiseOperation", (0,), [x, y], [x + y], params=params)
    found = gain_of(made)
    assert isinstance(found, Gain)
    assert found.amplification == pytest.approx(factor * (1 + c * c) ** 0.5, rel=0.1)


@pytest.mark.parametrize(("kind", "code"), [(ml_dtypes.bfloat16, 27), (np.float16, 1)])
def test_a_cast_to_fewer_bits_amplifies_nothing(kind: type, code: int) -> None:
    """What moves by less than a spacing of the result turns some roundings, and no more."""
    x = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    params = {"elewiseType": 1, "outTensorType": code}
    found = gain_of(operation("ElewiseOperation", (0,), [x], [x.astype(kind)], params=params))
    assert isinstance(found, Gain)
    assert found.amplification == pytest.approx(1.0, abs=0.5)


def test_operations_that_are_right_pass_on_what_they_amplify() -> None:
    assert is_amplified(needed(0.25), needed(0.01), 10.0, 1e-3)
    assert not is_amplified(needed(0.35), needed(0.01), 10.0, 1e-3)
