"""The quick look at attention that stores values in 16 bits: its cost, and what it lets pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from ait_llm.judge.standards import Computation, Output, standards
from ait_llm.opcheck.golden import GOLDEN, Arithmetic, Result, golden_ops
from ait_llm.opcheck.golden.base import Noting

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
