"""The error that one operation adds itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_runs import operation
from numpy.typing import NDArray

from ait_llm.dumps.model import Operation
from ait_llm.judge import recomputed
from ait_llm.judge.evidence import Introduced, Unknown, introduced_error, right_outputs

Array = NDArray[Any]
LINEAR = {"transposeB": True, "hasBias": False}
TYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}


def _operands(dtype: Any, terms: int = 64) -> tuple[Array, Array]:
    """x [16, terms] and weight [32, terms]."""
    draw = np.random.default_rng(terms)
    x = draw.normal(size=(16, terms)).astype(dtype)
    return x, (draw.normal(size=(32, terms)) / terms**0.5).astype(dtype)


def _exact(x: Array, weight: Array) -> Array:
    return x.astype(np.float64) @ weight.astype(np.float64).T


def _linear(x: Array, weight: Array, out: Array, **more: Any) -> Operation:
    return operation("LinearOperation", (0,), [x, weight], [out], params=LINEAR, **more)


def _measure(made: Operation, *, in_place: bool = False) -> Introduced:
    found = introduced_error(made, in_place=in_place)
    assert isinstance(found, Introduced), found
    return found


def _float32_sum(x: Array, weight: Array, order: Array) -> Array:
    """Terms added one after the other in float32, in some order."""
    total = np.zeros((len(x), len(weight)), np.float32)
    for term in order:
        total += x[:, term, None].astype(np.float32) * weight[None, :, term].astype(np.float32)
    return total


@pytest.mark.parametrize("dtype", TYPES)
@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 999), terms=st.sampled_from([16, 64, 300]))
def test_float32_sums_in_any_order_are_no_error(dtype: str, seed: int, terms: int) -> None:
    x, weight = _operands(TYPES[dtype], terms=terms)
    order = np.random.default_rng(seed).permutation(terms)
    out = _float32_sum(x, weight, order).astype(TYPES[dtype])
    assert not _measure(_linear(x, weight, out)).is_suspect


@pytest.mark.parametrize("dtype", TYPES)
def test_one_per_cent_too_much_is_wrong(dtype: str) -> None:
    x, weight = _operands(TYPES[dtype])
    found = _measure(_linear(x, weight, (_exact(x, weight) * 1.01).astype(TYPES[dtype])))
    assert found.error == pytest.approx(0.01, rel=0.1)
    # Two digits of bfloat16 hide one per cent from the loose limit.
    assert found.is_suspect
    assert found.is_wrong or dtype == "bf16"


@pytest.mark.parametrize("dtype", TYPES)
@settings(deadline=None, max_examples=10)
@given(row=st.integers(0, 15), column=st.integers(0, 31))
def test_one_wrong_element_is_found_and_located(dtype: str, row: int, column: int) -> None:
    x, weight = _operands(TYPES[dtype])
    out = _exact(x, weight).astype(TYPES[dtype])
    right = float(_exact(x, weight)[row, column])
    out[row, column] = right + 1
    found = _measure(_linear(x, weight, out))
    assert found.is_wrong
    assert found.worst == (row, column)
    assert found.mine == float(out[row, column])
    assert found.right == pytest.approx(right, rel=1e-5, abs=1e-6)


def test_sums_in_16_bits_are_suspect_though_not_wrong() -> None:
    x, weight = _operands(np.float16)
    total = np.zeros((16, 32), np.float16)
    for start in range(0, 64, 16):
        part = slice(start, start + 16)
        total = (total + _exact(x[:, part], weight[:, part])).astype(np.float16)
    found = _measure(_linear(x, weight, total))
    assert found.is_suspect
    assert not found.is_wrong


def test_roundings_of_each_input_are_suspect_though_not_wrong() -> None:
    x, weight = _operands(np.float32)
    rough = _exact(x.astype(np.float16), weight.astype(np.float16)).astype(np.float32)
    assert _measure(_linear(x, weight, rough)).is_wrong  # float32 was promised
    narrow, narrow_weight = x.astype(np.float16), weight.astype(np.float16)
    nudged = np.nextafter(narrow, np.float16(np.inf))
    out = _exact(nudged, narrow_weight).astype(np.float16)
    found = _measure(_linear(narrow, narrow_weight, out))
    assert found.is_suspect
    assert not found.is_wrong


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_where_the_result_is_finite_is_wrong(value: float) -> None:
    x, weight = _operands(np.float16)
    out = _exact(x, weight).astype(np.float16)
    out[3, 4] = value
    found = _measure(_linear(x, weight, out))
    assert found.is_wrong
    assert found.worst == (3, 4)
    assert found.error == float("inf")


def test_nan_of_a_nan_input_is_right() -> None:
    x, weight = _operands(np.float16)
    x[3, 4] = np.nan
    out = _exact(x, weight).astype(np.float16)
    assert np.isnan(out[3]).all()
    assert not _measure(_linear(x, weight, out)).is_suspect


def test_an_overflow_of_the_output_type_is_right() -> None:
    x = np.full((2, 16), 200, np.float16)
    weight = np.full((2, 16), 200, np.float16)
    out = np.full((2, 2), np.inf, np.float16)
    found = _measure(_linear(x, weight, out))
    assert not found.is_suspect


def test_integers_must_be_equal() -> None:
    table = np.arange(12, dtype=np.int64).reshape(6, 2)
    rows = np.array([4, 1], np.int64)
    right = table[rows]
    made = operation("GatherOperation", (0,), [table, rows], [right], params={"axis": 0})
    assert not _measure(made).is_suspect
    wrong = right.copy()
    wrong[1, 0] += 3
    made = operation("GatherOperation", (0,), [table, rows], [wrong], params={"axis": 0})
    assert _measure(made).is_wrong
    assert _measure(made).worst == (1, 0)


def test_the_worst_of_several_outputs_is_told_and_the_error_of_each() -> None:
    x = np.arange(24, dtype=np.float16).reshape(2, 12)
    first, second = x[:, :6].copy(), x[:, 6:].copy()
    second[0, 0] = 100
    params = {"splitDim": 1, "splitNum": 2}
    found = _measure(operation("SplitOperation", (0,), [x], [first, second], params=params))
    assert (found.output, found.worst) == (1, (0, 0))
    assert found.errors[0] == 0
    assert found.errors[1] > 1


def _reason(made: Operation, **more: Any) -> str:
    found = introduced_error(made, **more)
    assert isinstance(found, Unknown)
    return found.reason


def test_an_operation_that_is_too_large_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recomputed, "MOST_BYTES", 4096)
    x, weight = _operands(np.float16)
    assert "and at most 0 are recomputed" in _reason(_linear(x, weight, x))


def test_an_unknown_type_is_told() -> None:
    made = operation("NobodysOperation", (0,), [np.ones(2)], [np.ones(2)])
    assert _reason(made) == "there is no golden NobodysOperation"
    assert right_outputs(made) == {}


def test_shapes_that_do_not_fit_are_told() -> None:
    x, weight = _operands(np.float16)
    assert "refuses its inputs" in _reason(_linear(x, weight[:, :3].copy(), x))
    assert "its shape is [16, 64], golden's is [16, 32]" in _reason(_linear(x, weight, x))


def test_an_accumulation_into_its_input_needs_the_state_before() -> None:
    x, weight = _operands(np.float16)
    before = np.ones((16, 32), np.float32)
    after = (_exact(x, weight) + before).astype(np.float32)
    params = {**LINEAR, "enAccum": True}
    late = operation("LinearOperation", (0,), [x, weight, after], [after], params=params)
    assert "works in place" in _reason(late)
    early = operation("LinearOperation", (0,), [x, weight, before], [after], params=params)
    inputs = [replace(each, phase="before") for each in early.inputs]
    early = replace(early, tensors=(*inputs, *early.outputs))
    assert not _measure(early).is_suspect


def test_any_operation_in_place_needs_the_state_before() -> None:
    x, weight = _operands(np.float16)
    made = _linear(x, weight, _exact(x, weight).astype(np.float16))
    assert "dump with -time 2" in _reason(made, in_place=True)


def test_a_cache_that_was_saved_after_the_write_can_be_checked() -> None:
    draw = np.random.default_rng(0)
    key, value = (draw.normal(size=(3, 2, 8)).astype(np.float16) for _ in range(2))
    caches = [np.zeros((2, 16, 2, 8), np.float16) for _ in range(2)]
    slots = np.array([1, 17, 4], np.int32)
    for cache, new in zip(caches, (key, value), strict=True):
        cache.reshape(32, 2, 8)[slots] = new
    inputs = [key, value, *caches, slots]
    made = operation("ReshapeAndCacheOperation", (0,), inputs, caches)
    assert not _measure(made, in_place=True).is_suspect
    caches[1].reshape(32, 2, 8)[17, 1, 3] += 1
    made = operation("ReshapeAndCacheOperation", (0,), inputs, caches)
    found = _measure(made, in_place=True)
    assert found.is_wrong
    assert (found.output, found.worst) == (1, (1, 1, 1, 3))


def test_right_outputs_are_rounded_to_the_type_of_the_output() -> None:
    x, weight = _operands(np.float16)
    right = right_outputs(_linear(x, weight, np.empty((16, 32), np.float16)))[0]
    assert np.array_equal(right, right.astype(np.float16))
    assert np.allclose(right, _exact(x, weight), rtol=2**-11, atol=1e-6)
