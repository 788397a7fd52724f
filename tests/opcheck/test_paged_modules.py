"""Paged attention of an engine, from the arguments of all calls that filled the cache."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ait_llm.opcheck.golden.modules import Given, module_function
from ait_llm.opcheck.golden.modules.paged import PagedAttention

HEADS, SHARED, SIZE = 4, 2, 8
TOLD = {
    "head_size": SIZE,
    "head_size_v": SIZE,
    "attn_type": "DECODER",
    "kv_cache_dtype": "auto",
    "kv_sharing_target_layer_name": None,
    "query_quant": None,
    "has_sink": False,
    "use_mm_prefix": False,
    "use_alibi_sqrt": False,
    "impl.num_heads": HEADS,
    "impl.num_kv_heads": SHARED,
    "impl.head_size": SIZE,
    "impl.scale": 0.3,
    "impl.sliding_window": -1,
    "impl.logits_soft_cap": 0,
    "impl.alibi_slopes": None,
}
# One request goes on behind two earlier calls, one begins here; of the last row nothing is known.
ATTENDED = ((0, 2, ((0, 1, 3), (1, 0, 2))), (2, 3, ()))
TOKENS = 6


def given(**changed: Any) -> Given:
    inputs = ("0", "1", "2")
    told = {name: value for name, value in {**TOLD, **changed}.items() if value != "left out"}
    return Given("Attention", told, inputs, {}, ((TOKENS, 32),), attended=ATTENDED)


def tensors() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(3)
    widths = {"0": HEADS * SIZE, "1": SHARED * SIZE, "2": SHARED * SIZE}
    calls = {"": TOKENS, "0.": 4, "1.": 2}
    return {
        f"{call}{name}": torch.randn(rows, width, generator=draw, dtype=torch.float64)
        for call, rows in calls.items()
        for name, width in widths.items()
    }


def by_loops(values: dict[str, Tensor], cap: float = 0, window: int = 1 << 30) -> np.ndarray:
    """Each element of each known row, one by one in float64."""
    known = {name: each.numpy() for name, each in values.items()}
    found = np.full((TOKENS, HEADS * SIZE), np.nan)
    for row, count, before in ATTENDED:
        keys, past = (
            np.concatenate([*(known[f"{n}.{name}"][at : at + c] for n, at, c in before),
                            known[name][row : row + count]])
            for name in ("1", "2")
        )  # fmt: skip
        for token in range(count):
            last = len(keys) - count + token
            for head in range(HEADS):
                columns = slice(head // 2 * SIZE, head // 2 * SIZE + SIZE)
                query = known["0"][row + token, head * SIZE : (head + 1) * SIZE]
                scores = []
                for place in range(max(0, last - window + 1), last + 1):
                    score = 0.3 * float(query @ keys[place, columns])
                    scores.append((place, cap * math.tanh(score / cap) if cap else score))
                whole = sum(math.exp(score) for _, score in scores)
                shares = [(place, math.exp(score) / whole) for place, score in scores]
                made = sum(share * past[place, columns] for place, share in shares)
                found[row + token, head * SIZE : (head + 1) * SIZE] = made
    return found


@pytest.mark.parametrize(
    ("stated", "meant"),
    [
        ({}, {}),
        ({"impl.sliding_window": 3}, {"window": 3}),
        ({"impl.sliding_window": [2, 0]}, {"window": 3}),  # of flash attention: what lies before
        ({"impl.sliding_window": [-1, -1]}, {}),
        ({"impl.logits_soft_cap": 1.5}, {"cap": 1.5}),
        ({"impl.logits_soft_cap": 1.5, "impl.sliding_window": 2}, {"cap": 1.5, "window": 2}),
    ],
)
def test_each_row_attends_to_its_request_up_to_itself(
    stated: dict[str, Any], meant: dict[str, Any]
) -> None:
    compute = module_function(given(**stated))
    assert isinstance(compute, PagedAttention)
    values = tensors()
    expected = by_loops(values, **meant)
    rows = ~np.isnan(expected[:, 0])
    assert rows.tolist() == (~compute.unknown(TOKENS)[:, 0]).tolist()
    np.testing.assert_allclose(compute(values).numpy()[rows], expected[rows], rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize(
    "changed",
    [
        {"impl.scale": "left out"},
        {"impl.alibi_slopes": "left out"},  # they are a tensor
        {"has_sink": True},
        {"attn_type": "ENCODER"},
        {"kv_cache_dtype": "fp8"},
        {"kv_sharing_target_layer_name": "model.layers.0.self_attn.attn"},
        {"head_size_v": 4},
        {"impl.sliding_window": [3, 3]},
        {"impl.dcp_world_size": 2},
        {"impl.num_kv_heads": 3},
    ],
)
def test_what_is_not_told_or_told_otherwise_has_no_definition(changed: dict[str, Any]) -> None:
    assert module_function(given(**changed)) is None
