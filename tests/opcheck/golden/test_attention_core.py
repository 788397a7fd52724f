"""Which keys a block of attention touches: shortcuts give what the definition gives."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ait_llm.opcheck.golden import attention_core
from ait_llm.opcheck.golden.attention_core import attend
from ait_llm.opcheck.golden.masks import Mask

SCALE = 0.3


def definition(query: Tensor, key: Tensor, value: Tensor, added: Tensor) -> Tensor:
    groups = query.shape[1] // key.shape[1]
    keys, values = (x.repeat_interleave(groups, 1).double() for x in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query.double(), keys) * SCALE + added.double()
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), values)


def tensors(rows: int, keys: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(rows, 4, 8), torch.randn(keys, 2, 8), torch.randn(keys, 2, 8)


def as_mask(added: Tensor) -> Mask:
    return Mask(lambda row0, row1, key0, key1: added[:, row0:row1, key0:key1])


def causal_calls(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    calls: list[bool] = []
    original = attention_core._fused

    def record(*args: Any, causal: bool = False, **kwargs: Any) -> Tensor:
        calls.append(causal)
        return original(*args, causal=causal, **kwargs)

    monkeypatch.setattr(attention_core, "_fused", record)
    return calls


@pytest.mark.parametrize("hidden", [-10000.0, -3e38, -math.inf])
@pytest.mark.parametrize("rows", [2, 255, 300])
def test_a_causal_mask_tensor_is_taken_as_one_call(
    monkeypatch: pytest.MonkeyPatch, hidden: float, rows: int
) -> None:
    calls = causal_calls(monkeypatch)
    query, key, value = tensors(rows, rows)
    added = torch.full((1, rows, rows), hidden).triu(1)
    found = attend(query, key, value, scale=SCALE, mask=as_mask(added))
    assert calls == [True]
    torch.testing.assert_close(
        found.double(), definition(query, key, value, added), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    "change",
    [
        (1, 0, -3.0),
        (299, 299, 0.5),
        (280, 10, -10000.0),
        (5, 200, 0.0),
        (270, 271, -1.0),
        (0, 1, -20.0),
    ],
)
def test_one_other_entry_makes_a_mask_not_causal(
    monkeypatch: pytest.MonkeyPatch, change: tuple[int, int, float]
) -> None:
    calls = causal_calls(monkeypatch)
    query, key, value = tensors(300, 300)
    added = torch.full((1, 300, 300), -10000.0).triu(1)
    row, column, entry = change
    added[0, row, column] = entry
    found = attend(query, key, value, scale=SCALE, mask=as_mask(added))
    assert True not in calls
    torch.testing.assert_close(
        found.double(), definition(query, key, value, added), rtol=1e-5, atol=1e-6
    )


@given(
    rows=st.integers(2, 9),
    keys=st.integers(1, 12),
    hidden=st.sampled_from([-1.0, -30.0, -10000.0, -1e30]),
    seed=st.integers(0, 999),
)
@settings(max_examples=40, deadline=None)
def test_any_mask_gives_the_definition(rows: int, keys: int, hidden: float, seed: int) -> None:
    torch.manual_seed(seed)
    query, key, value = (tensor.double() for tensor in tensors(rows, keys))
    added = torch.where(torch.rand(1, rows, keys) < 0.6, hidden, 0.0)
    found = attend(query, key, value, scale=SCALE, mask=as_mask(added))
    expected = definition(query, key, value, added)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_large_scores_keep_a_small_mask_from_hiding() -> None:
    query, key, value = tensors(4, 4)
    query, key = query * 300, key * 300
    added = torch.full((1, 4, 4), -10000.0).triu(1)
    found = attend(query, key, value, scale=SCALE, mask=as_mask(added))
    expected = definition(query, key, value, added)
    torch.testing.assert_close(found.double(), expected, rtol=1e-2, atol=1e-2)
    assert not torch.allclose(found[0].double(), value[0].repeat_interleave(2, 0).double())


def test_a_hidden_value_that_is_nan_makes_the_result_nan() -> None:
    query, key, value = tensors(4, 4)
    value[3] = math.nan
    added = torch.full((1, 4, 4), -10000.0).triu(1)
    assert attend(query, key, value, scale=SCALE, mask=as_mask(added)).isnan().all()


def test_generated_causal_masks_never_read_hidden_keys() -> None:
    query, key, value = tensors(4, 6)
    key[4:], value[4:] = math.nan, math.nan
    found = attend(query, key, value, scale=SCALE, mask=Mask(diagonal=0))
    added = torch.full((1, 4, 4), -math.inf).triu(1)
    expected = definition(query, key[:4], value[:4], added)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
