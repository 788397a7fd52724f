"""The quick look at attention that stores values in 16 bits: its cost, and what it lets pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ait_llm.judge.standards import Computation, Output, standards
from ait_llm.judge.standards.rounding import limits_of
from ait_llm.opcheck.golden import GOLDEN, Arithmetic, Result, golden_ops
from ait_llm.opcheck.golden.base import Noting
from ait_llm.opcheck.selftest.emulated_attention import half_flash as emulated

TOKENS, HEADS, SIZE, BLOCK = 256, 4, 64, 128
PARAMS = {"headNum": HEADS, "kvHeadNum": HEADS, "qkScale": SIZE**-0.5}
PREFILL = {**PARAMS, "calcType": 3, "maskType": 0, "kernelType": 1}
Kernel = Callable[[Tensor, Tensor, Tensor], Tensor]


def stored(query: Tensor, key: Tensor, value: Tensor, *, scale: float = SIZE**-0.5) -> Tensor:
    """Attention that stores probabilities in 16 bits."""
    scores = query.float().transpose(0, 1) @ key.float().permute(1, 2, 0) * scale
    found = scores.softmax(-1).to(query.dtype).float() @ value.float().transpose(0, 1)
    return found.transpose(0, 1).to(query.dtype)


def wrong_scale(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return stored(query, key, value, scale=1.05 * SIZE**-0.5)


def wrong_values(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return stored(query, key, value * 1.01)


def prefill(kernel: Kernel, dtype: torch.dtype) -> tuple[str, list[Tensor], Any, Tensor]:
    q, k, v = (torch.randn(TOKENS, HEADS, SIZE).to(dtype) for _ in range(3))
    inputs = [q, k, v, torch.tensor([TOKENS], dtype=torch.int32)]
    return "SelfAttentionOperation", inputs, PREFILL, kernel(q, k, v)


def decode(kernel: Kernel, dtype: torch.dtype) -> tuple[str, list[Tensor], Any, Tensor]:
    pages = 2 * TOKENS // BLOCK
    caches = [torch.randn(pages, BLOCK, HEADS, SIZE).to(dtype) for _ in range(2)]
    table = torch.randperm(pages).int().reshape(2, -1)
    query = torch.randn(2, HEADS, SIZE).to(dtype)
    rows = [
        kernel(query[i : i + 1], *(c[table[i].long()].flatten(0, 1) for c in caches))
        for i in range(2)
    ]
    contexts = torch.full((2,), TOKENS, dtype=torch.int32)
    return "PagedAttentionOperation", [query, *caches, table, contexts], PARAMS, torch.cat(rows)


def judge(
    op: str, inputs: Sequence[Tensor | None], params: Mapping[str, Any], mine: Tensor, quick: bool
) -> tuple[bool, int]:
    """The verdict, and how often golden was computed for it."""
    count = 0

    def compute(given: Any, own: Any, how: Arithmetic) -> Result:
        nonlocal count
        count += 1
        return golden_ops.get(op).compute(given, own, how)

    golden = replace(golden_ops.get(op), compute=compute)
    known: dict[Arithmetic, Result] = {}

    def run(how: Arithmetic) -> Result:
        if how == GOLDEN:
            noting = Noting(round_output=False)
            known[replace(GOLDEN, round_output=False)] = compute(inputs, params, noting)
            rounded = noting.rounded(known[replace(GOLDEN, round_output=False)])
            assert rounded is not None
            return rounded
        return known[how] if how in known else compute(inputs, params, how)

    computation = Computation(golden, list(inputs), params, run, verdict_only=quick)
    right = computation.result(GOLDEN).outputs[0]
    output = Output("outtensor0", 0, False, right, mine.reshape(right.shape), None, computation)
    return standards.get("contract")(output).passed, count


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("case", "evaluations"), [(prefill, 2), (decode, 1)])
def test_probabilities_in_16_bits_cost_one_more_evaluation_and_none_while_decoding(
    case: Any, evaluations: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    assert judge(*case(stored, dtype), quick=True) == (True, evaluations)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("case", [prefill, decode])
@pytest.mark.parametrize("kernel", [wrong_scale, wrong_values])
def test_what_is_wrong_fails_at_a_quick_look_as_it_does_at_a_long_one(
    case: Any, kernel: Kernel, dtype: torch.dtype
) -> None:
    torch.manual_seed(2)
    given = case(kernel, dtype)
    assert not judge(*given, quick=True)[0]
    assert not judge(*given, quick=False)[0]


def test_a_decoding_operator_tells_how_values_change_its_rows() -> None:
    torch.manual_seed(3)
    op, inputs, params, _ = decode(stored, torch.float16)
    noting = Noting(round_output=False)
    told = golden_ops.get(op).compute(inputs, params, noting).sensitivity[0]
    query, keys, values, table = (one.double() for one in inputs[:4])
    for row in range(2):
        pages = table[row].long()
        for head in range(HEADS):
            key, value = (one[pages][:, :, head].flatten(0, 1) for one in (keys, values))
            shares = (key @ query[row, head] * SIZE**-0.5).softmax(0)
            expected = (shares.unsqueeze(1) * value).square().sum(0).mean().sqrt()
            assert torch.isclose(told[row, head, 0].double(), expected, rtol=1e-3)


def half_flash(
    query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Tensor | None = None
) -> Tensor:
    """The device's default kernel: everything on the way in float16."""
    heads = [
        emulated(*(one[:, head].numpy() for one in (query, key, value)), scale,
                 None if mask is None else mask.numpy())
        for head in range(query.shape[1])
    ]  # fmt: skip
    return torch.from_numpy(np.stack(heads, 1))


def default_kernel(
    tokens: int, masked: bool, *, scale: float = 1.0, values: float = 1.0, spread: float = 1.0
) -> tuple[str, list[Tensor], Any, Tensor]:
    """SelfAttention as the device computes it by default; ``scale`` and ``values`` are wrong."""
    query, key, value = (torch.randn(tokens, HEADS, SIZE) for _ in range(3))
    query = (query * spread).half()
    key, value = key.half(), value.half()
    mask = torch.full((tokens, tokens), -10000.0).triu(1).half() if masked else None
    wrong = (value.float() * values).half()
    mine = half_flash(query, key, wrong, scale * SIZE**-0.5, mask)
    inputs = [query, key, value, torch.tensor([tokens], dtype=torch.int32)]
    params = {**PREFILL, "kernelType": 0, "maskType": int(masked)}
    if mask is not None:
        inputs.insert(3, mask)
    return "SelfAttentionOperation", inputs, params, mine


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("tokens", [96, 400])
def test_the_default_kernel_of_the_device_costs_no_evaluation_more(
    tokens: int, masked: bool
) -> None:
    torch.manual_seed(5)
    assert judge(*default_kernel(tokens, masked), quick=True) == (True, 1)


@settings(max_examples=12, deadline=None)
@given(
    st.integers(0, 99), st.sampled_from([48, 130]), st.booleans(), st.sampled_from([1.0, 3.0]),
    st.sampled_from([(1.0, 1.0), (1.003, 1.0), (1.02, 1.0), (1.1, 1.0), (1.0, 1.004)]),
)  # fmt: skip
def test_a_quick_look_at_the_default_kernel_changes_no_verdict(
    seed: int, tokens: int, masked: bool, spread: float, wrong: tuple[float, float]
) -> None:
    torch.manual_seed(seed)
    scale, values = wrong
    given = default_kernel(tokens, masked, scale=scale, values=values, spread=spread)
    assert judge(*given, quick=True)[0] == judge(*given, quick=False)[0]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("spread", [0.3, 1.0, 4.0])
def test_the_default_kernel_tells_no_more_than_samples_of_its_roundings_show(
    spread: float, masked: bool
) -> None:
    torch.manual_seed(6)
    op, inputs, params, _ = default_kernel(128, masked, spread=spread)
    told = golden_ops.get(op).compute(inputs, params, Noting(round_output=False)).sensitivity[0]
    computation = Computation(
        golden_ops.get(op), list(inputs), params,
        lambda how: golden_ops.get(op).compute(inputs, params, how),
    )  # fmt: skip
    right = computation.result(GOLDEN).outputs[0]
    output = Output("outtensor0", 0, False, right, right, None, computation)
    limits = limits_of(output)
    changes = [
        ((one - limits.unmoved).double() / limits.move).square().mean(-1) for one in limits.moved
    ]
    sampled = torch.stack(changes).mean(0).sqrt().reshape(told.shape)
    # Four samples of rows of 64 elements that change together scatter.
    assert float((told.double() / sampled).median()) < 1.0
    assert float((told.double() / sampled).median()) > 0.6
    assert bool((told.double() < 2 * sampled).all())


def test_only_the_contract_asks_how_roundings_on_the_way_are_felt() -> None:
    torch.manual_seed(7)
    op, inputs, params, _ = default_kernel(32, masked=False)
    noting = Noting(round_output=False, felt=False)
    assert not golden_ops.get(op).compute(inputs, params, noting).sensitivity
