"""Cache writes against loops over tokens."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ait_llm.core import FORMAT_FRACTAL_NZ
from ait_llm.errors import OperationError
from ait_llm.opcheck.golden import Result, golden_ops
from ait_llm.opcheck.golden.layout import nd_to_nz
from ait_llm.opcheck.golden.support import desc_of

Run = Callable[..., Result]
OP = "ReshapeAndCacheOperation"
OMNI = "ReshapeAndCacheOmniOperation"
STRIDED = "ReshapeAndCacheWithStrideOperation"


def _written(cache: Tensor, tokens: Tensor, slots: list[int]) -> Tensor:
    new = cache.clone()
    for token, slot in enumerate(slots):
        if slot >= 0:
            new[slot // cache.shape[1], slot % cache.shape[1]] = tokens[token]
    return new


@given(st.lists(st.integers(-2, 11), min_size=1, max_size=8))
def test_tokens_land_in_their_slots(run: Run, slots: list[int]) -> None:
    """Negative slots are skipped; of two tokens for one slot the later wins."""
    count = len(slots)
    key, value = torch.randn(count, 2, 4).half(), torch.randn(count, 2, 6).half()
    caches = torch.randn(3, 4, 2, 4).half(), torch.randn(3, 4, 2, 6).half()
    result = run(OP, [key, value, *caches, torch.tensor(slots, dtype=torch.int32)])
    assert torch.equal(result.outputs[0], _written(caches[0], key, slots))
    assert torch.equal(result.outputs[1], _written(caches[1], value, slots))
    assert result.updated_inputs[2] is result.outputs[0]
    assert result.updated_inputs[3] is result.outputs[1]


def test_three_inputs_write_the_key_only(run: Run) -> None:
    key, cache = torch.randn(2, 2, 4).bfloat16(), torch.randn(3, 4, 2, 4).bfloat16()
    result = run(OP, [key, cache, torch.tensor([7, 1], dtype=torch.int32)])
    assert len(result.outputs) == 1
    assert torch.equal(result.outputs[0], _written(cache, key, [7, 1]))
    assert list(result.updated_inputs) == [1]


def test_a_slot_past_the_cache_is_refused(run: Run) -> None:
    key, cache = torch.randn(1, 2, 4).half(), torch.randn(3, 4, 2, 4).half()
    with pytest.raises(OperationError, match="slot 12 is past the cache of 12"):
        run(OP, [key, cache, torch.tensor([12], dtype=torch.int32)])


@pytest.mark.parametrize("key_dtype", [torch.float16, torch.int8])
def test_nz_caches_hold_the_same_tokens_in_blocks(run: Run, key_dtype: torch.dtype) -> None:
    key = torch.randint(-100, 100, (3, 2, 32)).to(key_dtype)
    value = torch.randn(3, 2, 16).half()
    plain = torch.zeros(2, 16, 64).to(key_dtype), torch.randn(2, 16, 32).half()
    slots = torch.tensor([17, -1, 3], dtype=torch.int32)
    blocked = [nd_to_nz(cache) for cache in plain]
    result = run(
        OP,
        [key, value, *blocked, slots],
        {"kvCacheCfg": 2},
        formats={2: FORMAT_FRACTAL_NZ, 3: FORMAT_FRACTAL_NZ},
    )
    for index, tokens in enumerate((key, value)):
        expected = _written(plain[index], tokens.reshape(3, -1), slots.tolist())
        assert torch.equal(result.outputs[index], nd_to_nz(expected))
    inferred = run(OP, [key, value, *blocked, slots], infer=False)
    assert torch.equal(inferred.outputs[0], result.outputs[0])


def _rows(batch_lengths: list[int], heads: int) -> list[tuple[int, int, int]]:
    """Start of the sequence, its length and the head of every (batch, head) row."""
    rows, start = [], 0
    for length in batch_lengths:
        rows += [(start, length, head) for head in range(heads)]
        start += length
    return rows


def _int32(values: list[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def test_head_compression_keeps_the_last_tokens(run: Run) -> None:
    """Disagreement 34: lengths accumulate, and stay unchanged as an input."""
    lengths, wins, slots = [3, 5], [2, 3, 5, 1], [0, 4, 8, 16]
    key, value = torch.randn(8, 2, 32).half(), torch.randn(8, 2, 32).half()
    caches = [torch.randn(6, 4, 1, 32).half() for _ in range(2)]
    inputs = [key, value, *caches, _int32(slots), _int32(wins), _int32(lengths)]
    result = run(OP, inputs)
    for index, tokens in enumerate((key, value)):
        expected = caches[index].clone().reshape(24, 32)
        for row, (start, length, head) in enumerate(_rows(lengths, 2)):
            for j in range(wins[row]):
                expected[slots[row] + j] = tokens[start + length - wins[row] + j, head]
        assert torch.equal(result.outputs[index].reshape(24, 32), expected)
        assert result.updated_inputs[2 + index] is result.outputs[index]


@pytest.mark.parametrize("op", [OP, OMNI])
def test_rope_compression_replaces_a_window_by_its_mean(run: Run, op: str) -> None:
    lengths, wins = [4, 6], [2, 3, 4, 2]
    offsets, slots = [1, -1, 0, 3], [0, 6, 12, 18]
    key, value = torch.randn(10, 2, 32).half(), torch.randn(10, 2, 32).half()
    caches = [torch.randn(6, 4, 1, 32).half() for _ in range(2)]
    tail = [_int32(values) for values in (slots, wins, lengths, offsets)]
    result = run(op, [key, value, *caches, *tail])
    for index, tokens in enumerate((key, value)):
        expected = caches[index].clone().reshape(24, 32)
        for row, (start, length, head) in enumerate(_rows(lengths, 2)):
            sequence = [tokens[start + j, head] for j in range(length)]
            if offsets[row] >= 0:
                window = slice(offsets[row], offsets[row] + wins[row])
                mean = torch.stack(sequence[window]).double().mean(0).half()
                sequence[window] = [mean] if op == OP else []
            for j, entry in enumerate(sequence):
                expected[slots[row] + j] = entry
        torch.testing.assert_close(
            result.outputs[index].reshape(24, 32), expected, rtol=1e-3, atol=1e-6
        )


@pytest.mark.parametrize("single", [False, True])
def test_strided_tokens_are_viewed_first(run: Run, single: bool) -> None:
    parent = torch.randn(6, 2, 4).half()
    cache = torch.randn(3, 4, 2, 4).half()
    slots, strides, offset = _int32([3, 0, 9]), torch.tensor([8, 4, 1]), torch.tensor([0])
    key = parent[:3].contiguous()
    doubled = torch.tensor([0, 4, 1])
    if single:
        result = run(STRIDED, [key, cache, slots, doubled, torch.tensor([8])])
        assert torch.equal(
            result.outputs[0], _written(cache, key[1:2].expand(3, 2, 4), slots.tolist())
        )
        return
    result = run(
        STRIDED, [key, key, cache, cache, slots, strides, doubled, offset, torch.tensor([8])]
    )
    assert torch.equal(result.outputs[0], _written(cache, key, slots.tolist()))
    assert torch.equal(result.outputs[1], _written(cache, key[1:2].expand(3, 2, 4), slots.tolist()))


def test_strided_compression_views_first_too(run: Run) -> None:
    key, caches = torch.randn(4, 1, 32).half(), [torch.zeros(2, 4, 1, 32).half()] * 2
    tail = [_int32([0]), _int32([2]), _int32([4])]
    views = [torch.tensor([0, 32, 1])] * 2 + [torch.tensor([64])] * 2
    result = run(STRIDED, [key, key, *caches, *tail, *views])
    assert torch.equal(result.outputs[0][0, :2], key[2:3].expand(2, 1, 32))


@pytest.mark.parametrize(
    ("key", "cache", "text"),
    [
        ((2, 2, 4), (3, 4, 2, 8), "must be"),
        ((2, 3, 4), (3, 4, 2, 4), "must be"),
        ((2, 8), (3, 4, 2, 4), "3 dimensions"),
    ],
)
def test_caches_that_do_not_fit_are_refused(
    key: tuple[int, ...], cache: tuple[int, ...], text: str
) -> None:
    inputs = [torch.zeros(key).half(), torch.zeros(cache).half(), _int32([0, 1])]
    with pytest.raises(OperationError, match=text):
        golden_ops.get(OP).infer_shape([desc_of(tensor) for tensor in inputs], {})
