"""Golden attention beside torch's own, for ``opcheck.py``.

Four sequences of 2048 tokens, 32 heads, float16 as dumped: prefill with SelfAttention, and decoding
one token of each from a paged cache. The peer is ``scaled_dot_product_attention`` in float32 on the
same values, in turn with the golden operator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

from ait_llm.opcheck.golden import GOLDEN, golden_ops

BATCH, TOKENS, HEADS, BLOCK = 4, 2048, 32, 128
ROUNDS = 3


@dataclass(frozen=True)
class AttentionTime:
    """Best of some rounds, in seconds; ``processor`` is the processor time of both cores."""

    name: str
    golden: float
    peer: float
    processor: float


def attention_times() -> Iterator[AttentionTime]:
    """Prefill and decoding, with heads of 64 and of 128."""
    for size in (64, 128):
        yield _prefill(size)
        yield _decode(size)


def _params(size: int) -> dict[str, object]:
    return {"headNum": HEADS, "kvHeadNum": HEADS, "qkScale": size**-0.5}


def _prefill(size: int) -> AttentionTime:
    lengths = torch.full((BATCH,), TOKENS, dtype=torch.int32)
    query, key, value = (torch.randn(BATCH * TOKENS, HEADS, size).half() for _ in range(3))
    mask = torch.full((TOKENS, TOKENS), -10000.0).triu(1).half()
    operator = golden_ops.get("SelfAttentionOperation")
    params = {**_params(size), "calcType": 3, "maskType": 1}
    heads = [_heads(tensor) for tensor in (query, key, value)]

    def peer() -> torch.Tensor:
        return scaled_dot_product_attention(*heads, is_causal=True)

    def golden() -> torch.Tensor:
        return operator.compute([query, key, value, mask, lengths], params, GOLDEN).outputs[0]

    return _timed(f"SelfAttention {size}", golden, peer)


def _decode(size: int) -> AttentionTime:
    blocks = BATCH * TOKENS // BLOCK
    caches = [torch.randn(blocks, BLOCK, HEADS, size).half() for _ in range(2)]
    table = torch.randperm(blocks).int().reshape(BATCH, -1)
    lengths = torch.full((BATCH,), TOKENS, dtype=torch.int32)
    query = torch.randn(BATCH, HEADS, size).half()
    operator = golden_ops.get("PagedAttentionOperation")
    heads = [_heads(tensor[table.long()].reshape(-1, HEADS, size)) for tensor in caches]
    row = query.float().reshape(BATCH, HEADS, 1, size)

    def peer() -> torch.Tensor:
        return scaled_dot_product_attention(row, *heads)

    def golden() -> torch.Tensor:
        inputs = [query, *caches, table, lengths]
        return operator.compute(inputs, _params(size), GOLDEN).outputs[0]

    return _timed(f"PagedAttention {size}", golden, peer)


def _heads(tensor: torch.Tensor) -> torch.Tensor:
    """``[tokens, heads, size]`` as float32 ``[batch, heads, tokens, size]``."""
    return tensor.float().reshape(BATCH, -1, HEADS, tensor.shape[-1]).transpose(1, 2).contiguous()


def _timed(
    name: str, golden: Callable[[], torch.Tensor], peer: Callable[[], torch.Tensor]
) -> AttentionTime:
    own, others, processor = [], [], []
    with torch.no_grad():
        expected = peer().transpose(1, 2).reshape(-1)
        torch.testing.assert_close(golden().reshape(-1).float(), expected, rtol=2e-3, atol=2e-3)
        for _ in range(ROUNDS):
            start, used = time.perf_counter(), time.process_time()
            golden()
            own.append(time.perf_counter() - start)
            processor.append(time.process_time() - used)
            start = time.perf_counter()
            peer()
            others.append(time.perf_counter() - start)
    return AttentionTime(name, min(own), min(others), min(processor))
