"""PagedCacheLoad, Pad- and UnpadWithHiddenState."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ait_llm.errors import OperationError
from ait_llm.opcheck.golden import GOLDEN, UnverifiableError, golden_ops
from ait_llm.opcheck.golden.layout import nd_to_nz

LOAD = "PagedCacheLoadOperation"
PAD, UNPAD = "PadWithHiddenStateOperation", "UnpadWithHiddenStateOperation"


def tables_and_lengths() -> tuple[torch.Tensor, list[int]]:
    return torch.tensor([[3, 1], [0, 2]], dtype=torch.int32), [20, 9]


@pytest.mark.parametrize("with_params", [True, False])
@pytest.mark.parametrize("cumulated", [True, False])
def test_plain_caches_are_loaded_from_their_first_position(
    run: Any, with_params: bool, cumulated: bool
) -> None:
    tables, lengths = torch.tensor([[9, 3, 1], [9, 0, 2]], dtype=torch.int32), [20, 9]
    key_cache, value_cache = torch.randn(4, 16, 2, 16).half(), torch.randn(4, 16, 2, 32).half()
    key, value = torch.zeros(30, 2, 16).half() + 7, torch.zeros(30, 2, 32).half() + 7
    counts = torch.tensor([0, 20, 29] if cumulated else lengths, dtype=torch.int32)
    starts = torch.tensor([16, 16], dtype=torch.int32)
    params = {"kvCacheCfg": 1, "isSeqLensCumsumMode": cumulated, "hasSeqStarts": True}
    result = run(
        LOAD,
        [key_cache, value_cache, tables, counts, key, value, starts],
        params if with_params else {},
    )
    for found, cache in zip(result.outputs, (key_cache, value_cache), strict=True):
        row = 0
        for number, length in enumerate(lengths):
            for j in range(length):
                block = int(tables[number, 1 + j // 16])
                assert torch.equal(found[row], cache[block, j % 16])
                row += 1
        assert (found[row:] == 7).all()
    assert torch.equal(result.updated_inputs[4], result.outputs[0])


@pytest.mark.parametrize("int8_keys", [True, False])
def test_blocked_caches_are_joined_and_negative_blocks_left_out(run: Any, int8_keys: bool) -> None:
    tables, lengths = tables_and_lengths()
    tables[1, 0] = -1
    key_cache, value_cache = torch.randn(4, 16, 64), torch.randn(4, 16, 32).half()
    key_cache = (key_cache * 9).to(torch.int8) if int8_keys else key_cache.half()
    key, value = torch.zeros(29, 64).to(key_cache.dtype), torch.zeros(29, 32).half()
    counts = torch.tensor(lengths, dtype=torch.int32)
    stored = [nd_to_nz(key_cache), nd_to_nz(value_cache)]
    result = run(LOAD, [*stored, tables, counts, key, value])
    for found, cache in zip(result.outputs, (key_cache, value_cache), strict=True):
        expected = torch.cat([cache[3], cache[1, :4]])
        assert torch.equal(found[:20], expected)
        assert (found[20:] == 0).all()


def test_too_few_rows_for_the_sequences_are_refused() -> None:
    tables, lengths = tables_and_lengths()
    cache = torch.zeros(4, 16, 1, 16).half()
    dense = torch.zeros(5, 1, 16).half()
    counts, starts = torch.tensor(lengths), torch.zeros(2, dtype=torch.int32)
    with pytest.raises(OperationError, match="29 tokens; there is room for 5"):
        golden_ops.get(LOAD).compute(
            [cache, cache, tables, counts, dense, dense, starts], {}, GOLDEN
        )


@given(lengths=st.lists(st.integers(0, 5), min_size=1, max_size=4), width=st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_unpadding_and_padding_are_inverse(lengths: list[int], width: int) -> None:
    params = {"qSeqLen": lengths, "maxSeqLen": 5}
    packed = torch.randn(sum(lengths), width).half()
    pad, unpad = golden_ops.get(PAD), golden_ops.get(UNPAD)
    padded = pad.compute([packed], params, GOLDEN).outputs[0]
    assert padded.shape == (len(lengths), 5, width)
    assert torch.equal(unpad.compute([padded], params, GOLDEN).outputs[0], packed)
    for row, length in zip(padded, lengths, strict=True):
        assert (row[length:] == 0).all()


def test_lengths_are_told_by_zero_tails() -> None:
    params = {"qSeqLen": [2, 0, 5], "maxSeqLen": 5}
    packed = torch.rand(7, 3).half() + 1
    padded = golden_ops.get(PAD).compute([packed], params, GOLDEN).outputs[0]
    assert golden_ops.get(PAD).recover([packed], [padded], {}) == params
    assert golden_ops.get(UNPAD).recover([padded], [packed], {}) == params
    packed[1] = 0  # a row of zeros at the end of the first sequence hides its length
    padded = golden_ops.get(PAD).compute([packed], params, GOLDEN).outputs[0]
    assert golden_ops.get(PAD).recover([packed], [padded], {}) == {}


@pytest.mark.parametrize("name", [PAD, UNPAD])
def test_hidden_states_without_lengths_are_unverifiable(name: str) -> None:
    with pytest.raises(UnverifiableError, match="qSeqLen is needed"):
        golden_ops.get(name).compute([torch.zeros(1, 2, 3).half()], {}, GOLDEN)
