"""Quantisation: where values are rounded decides the integer."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ait_llm.opcheck.golden import Arithmetic, Result
from ait_llm.opcheck.golden.quantise import (
    dynamic_quant_asymmetric,
    dynamic_quant_symmetric,
    round_half_away,
    scale_from_bits,
    to_int8,
)

Run = Callable[..., Result]
ELEWISE = "ElewiseOperation"


def _half(value: float) -> float:
    """Round to float16, as IEEE 754 packs it."""
    with np.errstate(over="ignore"):
        return float(np.float16(value))


def _q8(value: float, lowest: int = -128) -> int:
    """Clamp in float16, then round half to even (Python's round)."""
    return round(min(max(_half(value), lowest), 127))


def test_quant_multiplies_by_the_scale_and_adds_before_rounding(run: Run) -> None:
    """Disagreement 7: x * scale + offset, rounded half to even and clamped."""
    x = torch.tensor([[0.5, 1.5, 2.5, -0.5, 40000.0, -40000.0, 3.0, 0.126] * 4]).half()
    quant = {"inputScale": 2.5, "inputOffset": -3, "asymmetric": True}
    (y,) = run(ELEWISE, [x], {"elewiseType": 6, "quantParam": quant}).outputs
    expected = [_q8(_half(v * 2.5) - 3.0) for v in x[0].tolist()]
    assert y.dtype == torch.int8
    assert y[0].tolist() == expected
    assert {127, -128} <= set(expected)


def test_quant_reads_flat_parameters_of_old_dumps(run: Run) -> None:
    x = torch.arange(32).half().unsqueeze(0)
    (y,) = run(ELEWISE, [x], {"elewiseType": 6, "inputScale": 0.5, "inputOffset": 1}).outputs
    assert y[0].tolist() == [_q8(v * 0.5 + 1) for v in range(32)]


def test_quant_minimum_may_be_127(run: Run) -> None:
    x = torch.full((1, 32), -500.0).half()
    (y,) = run(ELEWISE, [x], {"elewiseType": 6}, Arithmetic(int8_min=-127)).outputs
    assert y[0].tolist() == [-127] * 32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("channels", [8, 1])
@pytest.mark.parametrize("with_offset", [True, False])
def test_quant_per_channel_divides(
    run: Run, dtype: torch.dtype, channels: int, with_offset: bool
) -> None:
    x = (torch.randn(16, 8) * 100).to(dtype)
    scale = (torch.rand(channels) * 3 + 0.1).to(dtype)
    offset = torch.randint(-20, 20, (channels,), dtype=torch.int8)
    given_offset = offset if with_offset else torch.empty(0, dtype=torch.int8)
    (y,) = run(ELEWISE, [x, scale, given_offset], {"elewiseType": 17}).outputs
    for row, col in np.ndindex(16, 8):
        s = float(scale[col % channels])
        value = float(x[row, col])
        if channels == 1:
            inverse = float(np.float32(1) / np.float32(s))
            value *= _half(inverse) if dtype is torch.float16 else inverse
        else:
            value /= s
        shifted = _half(_half(value) + (float(offset[col % channels]) if with_offset else 0.0))
        assert int(y[row, col]) == _q8(shifted)


def test_quant_per_channel_adds_the_offset_before_rounding(run: Run) -> None:
    """Disagreement 8: only ties tell. 2.5 + 1 rounds to 4; round(2.5) + 1 would be 3."""
    x = torch.tensor([[2.5, 0.5]]).half()
    one = torch.ones(2).half()
    (y,) = run(ELEWISE, [x, one, torch.ones(2, dtype=torch.int8)], {"elewiseType": 17}).outputs
    assert y.tolist() == [[4, 2]]


def test_dequant_per_channel_subtracts_first_and_clips(run: Run) -> None:
    """Disagreement 9: (x - offset) * scale, not x - offset * scale."""
    x = torch.tensor([[100, -100, 7]], dtype=torch.int8)
    scale = torch.tensor([2000.0, 2000.0, 0.5]).half()
    offset = torch.tensor([10, 10, 3], dtype=torch.int8)
    (y,) = run(ELEWISE, [x, scale, offset], {"elewiseType": 18}).outputs
    assert y.tolist() == [[65504.0, -65504.0, 2.0]]
    empty = torch.empty(0, dtype=torch.int8)
    (plain,) = run(ELEWISE, [x, scale, empty], {"elewiseType": 18}).outputs
    assert plain[0, 2] == 3.5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_dynamic_quant_scales_each_row_to_127(run: Run, dtype: torch.dtype) -> None:
    x = torch.cat([torch.randn(3, 64) * 5, torch.zeros(1, 64)]).to(dtype)
    y, scale = run(ELEWISE, [x], {"elewiseType": 19}).outputs
    assert scale.dtype == torch.float32
    for row in range(4):
        largest = max(abs(v) for v in x[row].tolist())
        assert float(scale[row]) == pytest.approx(largest / 127, rel=1e-6)
        for value, got in zip(x[row].tolist(), y[row].tolist(), strict=True):
            if largest == 0:
                assert got == 0
                continue
            factor = float(np.float32(127) / np.float32(largest))
            scaled = value * (_half(factor) if dtype is torch.float16 else factor)
            assert got == math.copysign(math.floor(abs(_half(scaled)) + 0.5), scaled)


def test_dynamic_quant_rounds_halves_away_from_zero(run: Run) -> None:
    """Disagreement 11: Elewise rounds 0.5 to 1 where the norms round it to 0."""
    x = torch.tensor([[127.0, 0.5, -0.5, 2.5]]).half()
    assert run(ELEWISE, [x], {"elewiseType": 19}).outputs[0].tolist() == [[127, 1, -1, 3]]
    assert dynamic_quant_symmetric(x, -128)[0].tolist() == [[127, 0, 0, 2]]


@given(st.lists(st.floats(-300, 300, width=16), min_size=1, max_size=20))
def test_to_int8_is_monotonic_and_within_half(values: list[float]) -> None:
    ordered = torch.tensor(sorted(values)).half()
    result = to_int8(ordered, -128).int()
    assert bool((result.diff() >= 0).all())
    error = (result.float() - ordered.float().clamp(-128, 127)).abs()
    assert float(error.max()) <= 0.5


@given(st.lists(st.floats(-100, 100, width=16), min_size=2, max_size=40))
def test_dequantised_rows_are_within_half_a_step(values: list[float]) -> None:
    row = torch.tensor([values]).half()
    quantised, scale = dynamic_quant_symmetric(row, -128, half_steps=False)
    error = (quantised.float() * scale - row.float()).abs()
    # Half a step, and the float16 rounding of the scaled value before.
    assert float(error.max()) <= float(scale) * 0.54 + 1e-12
    if row.max() - row.min() > 0.01:
        quantised, scale, offset = dynamic_quant_asymmetric(row, -128)
        error = ((quantised.float() - offset.unsqueeze(-1)) * scale - row.float()).abs()
        # The end of the range may round to 128, which is clamped.
        assert float(error.max()) <= float(scale) * 1.01
        assert float(error.mean()) <= float(scale) * 0.6


def test_asymmetric_dynamic_quant_maps_the_range() -> None:
    row = torch.tensor([[-1.0, 0.0, 3.0]])
    quantised, scale, offset = dynamic_quant_asymmetric(row, -128)
    assert float(scale) == pytest.approx(4 / 255)
    assert float(offset) == pytest.approx(-2 / (2 * 4 / 255))
    # The ends are -127.5 and 127.5 by definition, and fall to either side.
    low, middle, high = quantised[0].tolist()
    assert low in (-128, -127)
    assert (middle, high) == (-64, 127)


def test_round_half_away() -> None:
    values = torch.tensor([0.5, -0.5, 1.5, 2.5, 0.4998, -2.4])
    assert round_half_away(values).tolist() == [1, -1, 2, 3, 0, -2]


@given(st.floats(width=32, allow_nan=False))
def test_scale_bits_are_the_low_half_of_64_bits(value: float) -> None:
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    signed = torch.tensor([bits, bits | (0x1234 << 32)])
    assert scale_from_bits(signed).tolist() == [value, value]
    assert scale_from_bits(signed.view(torch.uint64)).tolist() == [value, value]
