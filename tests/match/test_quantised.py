"""Scales of quantised operations, wherever the dump holds them."""

from __future__ import annotations

import numpy as np
import pytest
from memory_runs import ones, operation, run

from ait_llm.dumps.model import Operation
from ait_llm.match.choose import match_runs
from ait_llm.match.model import Match, MatchOptions
from ait_llm.match.views import apply

GENERATOR = np.random.default_rng(0)
X = GENERATOR.standard_normal((4, 32)).astype(np.float16)
WEIGHT = ones(32, 32)


def _pair(golden: list[Operation], mine: list[Operation]) -> dict[str, np.ndarray]:
    """My dequantised tensors by operation and name."""
    found = match_runs(run("atb", golden), run("atb", mine), MatchOptions())
    return {
        match.mine.record.title: apply(match.mine.tensor.nd(), match.mine.views)
        for match in found
        if isinstance(match, Match) and match.mine.record.dtype is not None
    }


def _consumer(quantised: np.ndarray, place: int) -> Operation:
    deq = ones(32).astype(np.float32)
    inputs = [quantised, WEIGHT.astype(np.int8), deq]
    params = {"hasBias": False}
    return operation("LinearOperation", (place,), inputs, [X], params=params)


@pytest.mark.parametrize("offset", [0, 3])
def test_an_activation_takes_the_scale_of_the_elementwise_operation(offset: int) -> None:
    scale = 24.0
    quantised = np.round(X.astype(float) * scale + offset).clip(-128, 127).astype(np.int8)
    param = {"elewiseType": 6, "quantParam": {"inputScale": scale, "inputOffset": offset}}
    mine = [
        operation("ElewiseOperation", (0,), [X], [quantised], params=param),
        _consumer(quantised, 1),
    ]
    seen = _pair([operation("LinearOperation", (0,), [X, WEIGHT], [X])], mine)
    np.testing.assert_allclose(seen["LinearOperation_1 intensor0"], X, atol=0.6 / scale)


def test_scales_per_channel_divide() -> None:
    scale = np.linspace(0.02, 0.05, 32).astype(np.float16)
    offset = np.arange(32, dtype=np.int8) - 16
    quantised = np.round(X / scale + offset).clip(-128, 127).astype(np.int8)
    param = {"elewiseType": 17}
    mine = [
        operation("ElewiseOperation", (0,), [X, scale, offset], [quantised], params=param),
        _consumer(quantised, 1),
    ]
    seen = _pair([operation("LinearOperation", (0,), [X, WEIGHT], [X])], mine)
    clipped = (np.array([-128.0, 127.0])[:, None] - offset) * scale
    expected = np.clip(X.astype(float), clipped[0], clipped[1])
    np.testing.assert_allclose(seen["LinearOperation_1 intensor0"], expected, atol=0.03)


@pytest.mark.parametrize("kind", ["RmsNormOperation", "LayerNormOperation"])
def test_a_norm_that_quantises_answers_the_float_norm(kind: str) -> None:
    gamma, beta = ones(32), ones(32) * 0
    scale, offset = np.array([0.03], np.float16), np.array([2], np.int8)
    quantised = np.round(X / scale + offset).clip(-128, 127).astype(np.int8)
    inputs = [X, gamma, beta, scale, offset]
    mine = [operation(kind, (0,), inputs, [quantised]), _consumer(quantised, 1)]
    plain = [X, gamma] if kind == "RmsNormOperation" else [X, gamma, beta]
    golden = [
        operation(kind, (0,), plain, [X]),
        operation("LinearOperation", (1,), [X, WEIGHT], [X]),
    ]
    seen = _pair(golden, mine)
    np.testing.assert_allclose(seen[f"{kind}_0 outtensor0"], X, atol=0.02)
    np.testing.assert_allclose(seen["LinearOperation_1 intensor0"], X, atol=0.02)


def test_dynamic_scales_of_rows() -> None:
    scale = (np.abs(X).max(1) / 127).astype(np.float32)
    quantised = np.round(X / scale[:, None]).astype(np.int8)
    param = {"elewiseType": 19}
    mine = [
        operation("ElewiseOperation", (0,), [X], [quantised, scale], params=param),
        _consumer(quantised, 1),
    ]
    seen = _pair([operation("LinearOperation", (0,), [X, WEIGHT], [X])], mine)
    np.testing.assert_allclose(seen["LinearOperation_1 intensor0"], X, atol=float(scale.max()))


def test_the_scale_of_another_tensor_of_the_same_shape_is_not_taken() -> None:
    other = np.zeros((4, 32), np.int8)
    param = {"elewiseType": 6, "quantParam": {"inputScale": 4.0}}
    mine = [
        operation("ElewiseOperation", (0,), [X], [other], params=param),
        _consumer(other + np.int8(1), 1),
    ]
    seen = _pair([operation("LinearOperation", (0,), [X, WEIGHT], [X])], mine)
    assert "LinearOperation_1 intensor0" not in seen
    assert "LinearOperation_1 outtensor0" in seen
