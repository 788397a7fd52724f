"""Attention in the code of a module: what rounding permits of it, and what it does not."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ait_llm.core import DType
from ait_llm.judge.attention import Distance, beyond, distance
from ait_llm.judge.attention_formula import Formula, Given, context

BATCH, HEADS, SHARED, TOKENS, WIDTH = 2, 4, 2, 9, 16
ROWS = np.arange(TOKENS)


def _angles() -> Tensor:
    frequencies = 10000.0 ** (-torch.arange(WIDTH // 2, dtype=torch.float64) / (WIDTH // 2))
    return torch.arange(TOKENS, dtype=torch.float64)[:, None] * frequencies


def _values(seed: int = 5) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def drawn(heads: int) -> Tensor:
        shape = (BATCH, heads, TOKENS, WIDTH)
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    return {"query": drawn(HEADS), "key": drawn(SHARED), "value": drawn(SHARED)}


def _given(values: dict[str, Tensor], result: Tensor, **more: Any) -> Given:
    arrays = {name: each.double().numpy() for name, each in values.items()}
    return Given(**arrays, result=result.double().numpy(), dtype=DType.FLOAT16, **more)


def _by_torch(values: dict[str, Tensor], **more: Any) -> Tensor:
    """Torch's own attention, in float64."""
    return torch.nn.functional.scaled_dot_product_attention(
        values["query"], values["key"], values["value"], enable_gqa=True, **more
    )


def _distance(given: Given, formula: Formula) -> Distance:
    found = distance(given, formula, ROWS)
    assert found is not None
    return found


def _is_exact(given: Given, formula: Formula) -> bool:
    found = context(given, formula, ROWS, lambda values: values)
    return found is not None and np.allclose(found[0], given.result, rtol=1e-12, atol=1e-12)


def test_causal_attention_is_that_of_torch() -> None:
    values = _values()
    given = _given(values, _by_torch(values, is_causal=True))
    assert _is_exact(given, Formula(1 / math.sqrt(WIDTH), causal=True))
    assert not _is_exact(given, Formula(1 / math.sqrt(WIDTH)))


@pytest.mark.parametrize("lowest", [-65504.0, -math.inf])
def test_a_window_is_a_mask_of_earlier_keys(lowest: float) -> None:
    values = _values()
    far = torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)
    mask = torch.zeros(1, 1, TOKENS, TOKENS, dtype=torch.float64)
    mask[..., (far < 0) | (far >= 3)] = lowest
    given = _given(values, _by_torch(values, attn_mask=mask), masks=(mask.numpy(),))
    assert _is_exact(given, Formula(0.25, masked=True))
    assert _is_exact(given, Formula(0.25, causal=True, window=3))


@pytest.mark.parametrize("rotary", ["halves", "pairs"])
def test_a_head_turns_as_complex_numbers_do(rotary: Any) -> None:
    values, angles = _values(), _angles()

    def turned(heads: Tensor) -> Tensor:
        if rotary == "halves":
            numbers = torch.complex(*heads.chunk(2, -1)) * torch.polar(
                torch.ones_like(angles), angles
            )
            return torch.cat((numbers.real, numbers.imag), -1)
        pairs = torch.view_as_complex(heads.reshape(*heads.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)

    rotated = {**values, "query": turned(values["query"]), "key": turned(values["key"])}
    result = _by_torch(rotated, is_causal=True)
    tables = (angles.cos()[None].numpy(), angles.sin()[None].numpy())
    for each in (tables, tuple(np.concatenate((one, one), -1) for one in tables)):
        given = _given(values, result, tables=each)
        assert _is_exact(given, Formula(0.25, rotary, causal=True))


def test_scores_are_capped_before_later_keys_are_hidden() -> None:
    values = _values()
    key = values["key"].repeat_interleave(HEADS // SHARED, 1)
    scores = 2 * torch.tanh(values["query"] @ key.mT * 0.25 / 2)
    scores = scores.masked_fill(torch.ones(TOKENS, TOKENS).triu(1) > 0, -math.inf)
    result = scores.softmax(-1) @ values["value"].repeat_interleave(HEADS // SHARED, 1)
    assert _is_exact(_given(values, result), Formula(0.25, causal=True, cap=2.0))


def test_sinks_take_a_share_of_the_softmax() -> None:
    values = _values()
    sinks = torch.linspace(-1, 2, HEADS, dtype=torch.float64)
    key = values["key"].repeat_interleave(HEADS // SHARED, 1)
    scores = values["query"] @ key.mT * 0.25
    column = sinks[None, :, None, None].expand(BATCH, -1, TOKENS, 1)
    weights = torch.cat((scores, column), -1).softmax(-1)[..., :-1]
    result = weights @ values["value"].repeat_interleave(HEADS // SHARED, 1)
    assert _is_exact(_given(values, result, sinks=sinks.numpy()), Formula(0.25, sinks=True))


def test_earlier_keys_stand_before_those_of_this_pass() -> None:
    values = _values()
    whole = _by_torch(values, is_causal=True)
    last = {"query": values["query"][:, :, -1:]}
    last |= {name: values[name][:, :, -1:] for name in ("key", "value")}
    earlier = values["key"][:, :, :-1].numpy(), values["value"][:, :, :-1].numpy()
    given = _given(last, whole[:, :, -1:], past=earlier)
    found = context(given, Formula(0.25, past=True), np.arange(1), lambda each: each)
    assert found is not None
    np.testing.assert_allclose(found[0], given.result, rtol=1e-12)


def _in_half(values: dict[str, Tensor], narrow: torch.dtype | None = None) -> Given:
    """Attention step by step in float16; scores once in a type of fewer digits."""
    half = {name: each.half() for name, each in values.items()}
    key = half["key"].repeat_interleave(HEADS // SHARED, 1)
    scores = (half["query"] @ key.mT) * 0.25
    if narrow is not None:
        scores = scores.to(narrow).half()
    scores = scores + torch.full((TOKENS, TOKENS), -65504.0, dtype=torch.half).triu(1)
    weights = scores.softmax(-1, torch.float32).half()
    result = weights @ half["value"].repeat_interleave(HEADS // SHARED, 1)
    return _given(half, result)


@pytest.mark.parametrize("seed", range(5))
def test_an_attention_that_rounds_every_step_is_proved(seed: int) -> None:
    found = _distance(_in_half(_values(seed)), Formula(0.25, causal=True))
    assert found.is_proved
    assert not found.is_beyond(found)


@pytest.mark.parametrize("seed", range(5))
def test_one_step_of_fewer_digits_is_beyond_rounding(seed: int) -> None:
    golden = _distance(_in_half(_values(seed)), Formula(0.25, causal=True))
    found = _distance(_in_half(_values(seed), torch.bfloat16), Formula(0.25, causal=True))
    assert found.is_beyond(golden)
    assert not found.is_proved


def test_one_element_that_is_off_is_beyond_rounding_and_told() -> None:
    given = _in_half(_values())
    golden = _distance(given, Formula(0.25, causal=True))
    result = given.result.copy()
    result[1, 2, 3, 4] += 0.05
    found = _distance(replace(given, result=result), Formula(0.25, causal=True))
    assert found.is_beyond(golden)
    assert found.place == (1, 3, 2 * WIDTH + 4)
    assert found.value == pytest.approx(result[1, 2, 3, 4])
    assert found.right == pytest.approx(result[1, 2, 3, 4] - 0.05, abs=5e-3)


@pytest.mark.parametrize("seed", [33, 35, 52])
def test_a_kernel_that_scales_queries_beforehand_is_not_beyond(seed: int) -> None:
    """Of peaked heads and a scale that is no power of two, whose rounding few samples may miss."""
    generator = torch.Generator().manual_seed(seed)
    query, key, value = (torch.randn(1, 4, 64, 32, generator=generator) for _ in range(3))
    query, key = query * 8**0.5, key * 8**0.5
    key[:, :, 0] *= 2
    value[:, :, 0] *= 8
    values = {"query": query.half(), "key": key.half(), "value": value.half()}
    scale, rows = 32**-0.5, np.arange(64)
    hidden = torch.full((64, 64), -math.inf).triu(1).half()
    late = (values["query"] @ values["key"].mT) * scale + hidden
    early = (values["query"] * scale) @ values["key"].mT + hidden
    golden, mine = (
        _given(values, each.softmax(-1, torch.float32).half() @ values["value"])
        for each in (late, early)
    )
    formula = Formula(scale, causal=True)
    known, found = (distance(each, formula, rows) for each in (golden, mine))
    assert known is not None
    assert found is not None
    assert known.is_proved
    assert found.worst < 1
    assert beyond(mine, golden, formula, rows) is None


@pytest.mark.parametrize(("deviations", "is_wrong"), [(6, False), (10, True)])
def test_one_element_may_be_as_far_off_as_no_kernel_is(deviations: int, is_wrong: bool) -> None:
    given, formula = _in_half(_values()), Formula(0.25, causal=True)
    result = given.result.copy()
    exact = context(given, formula, ROWS, lambda each: each)
    assert exact is not None
    result[1, 2, 3, 4] = exact[0][1, 2, 3, 4] + 0.01
    of_one = _distance(replace(given, result=result), formula).worst * 12 / 0.01
    result[1, 2, 3, 4] = exact[0][1, 2, 3, 4] + deviations / of_one
    found = beyond(replace(given, result=result), given, formula, ROWS)
    assert (found is not None) is is_wrong


def test_what_golden_does_no_better_is_not_beyond() -> None:
    found = _distance(_in_half(_values(), torch.bfloat16), Formula(0.25, causal=True))
    assert not found.is_beyond(found)


def test_a_row_that_sees_no_key_tells_nothing() -> None:
    given = _in_half(_values())
    mask = np.zeros((BATCH, 1, TOKENS, TOKENS))
    mask[..., np.triu_indices(TOKENS, 1)[0], np.triu_indices(TOKENS, 1)[1]] = -65504.0
    mask[0, :, :2] = -65504.0
    result = given.result.copy()
    result[0, :, :2] = 7.0
    found = _distance(replace(given, masks=(mask,), result=result), Formula(0.25, masked=True))
    assert found.is_proved
    assert found.rows == HEADS * (BATCH * TOKENS - 2)


def test_a_mask_of_other_keys_does_not_fit() -> None:
    given = _in_half(_values())
    mask = np.zeros((1, 1, TOKENS, TOKENS + 1))
    assert distance(replace(given, masks=(mask,)), Formula(0.25, masked=True), ROWS) is None
