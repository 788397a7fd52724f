"""Paged attention through the API: large heads and blocks, sequences that are switched off."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import ait_llm.hostatb as torch_atb
from ait_llm.errors import OperationError

pytestmark = [pytest.mark.native, pytest.mark.usefixtures("native_library")]
HEADS, SHARED, LENGTHS = 4, 2, (150, 7, 128)
TABLE = torch.tensor([[4, 1], [0, 5], [3, 2]], dtype=torch.int32)


def numbers(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def drawn(size: int, block: int, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(size + block)
    shapes = ((len(LENGTHS), HEADS, size), *[(6, block, SHARED, size)] * 2)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def operation(size: int, *, switched: bool = False) -> torch_atb.Operation:
    return torch_atb.Operation(
        torch_atb.PagedAttentionParam(
            head_num=HEADS,
            kv_head_num=SHARED,
            qk_scale=size**-0.5,
            batch_run_status_enable=switched,
        )
    )


def definition(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    rows = []
    for number, count in enumerate(LENGTHS):
        pages = TABLE[number].long()
        key, value = (
            cache[pages].flatten(0, 1)[:count].double().repeat_interleave(HEADS // SHARED, 1)
            for cache in (keys, values)
        )
        scores = torch.einsum("hd,khd->hk", query[number].double(), key) * query.shape[2] ** -0.5
        rows.append(torch.einsum("hk,khd->hd", scores.softmax(-1), value))
    return torch.stack(rows)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("size", "block"), [(256, 128), (128, 256), (576, 128)])
def test_heads_and_blocks_may_be_larger_together_than_quantised_ones(
    size: int, block: int, dtype: torch.dtype
) -> None:
    given = drawn(size, block, dtype)
    (found,) = operation(size).forward([*given, TABLE, numbers(*LENGTHS)])
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), definition(*given), rtol=2e-2, atol=5e-3)


def test_heads_beyond_256_take_blocks_of_128_at_most() -> None:
    with pytest.raises(OperationError, match="the library takes d <= 256"):
        operation(576).forward([*drawn(576, 256, torch.float16), TABLE, numbers(*LENGTHS)])


def test_blocks_of_quantised_caches_are_limited_by_a_product() -> None:
    query, *caches = drawn(256, 128, torch.float16)
    param = torch_atb.PagedAttentionParam(head_num=HEADS, kv_head_num=SHARED, qk_scale=1 / 16)
    param.quant_type = torch_atb.PagedAttentionParam.QuantType.TYPE_DEQUANT_FUSION
    scales = [torch.ones(SHARED * 256)] * 2
    quantised = [cache.to(torch.int8) for cache in caches]
    with pytest.raises(OperationError, match="the library takes d <= 256"):
        torch_atb.Operation(param).forward([query, *quantised, TABLE, numbers(*LENGTHS), *scales])


@pytest.mark.parametrize("absent", [False, True])
def test_a_sequence_that_is_switched_off_leaves_the_others_as_they_are(absent: bool) -> None:
    query, *caches = drawn(64, 128, torch.float16)
    own = [*caches, TABLE, numbers(*LENGTHS)]
    (whole,) = operation(64).forward([query, *own])
    given = query[[0, 2]] if absent else query
    (found,) = operation(64, switched=True).forward([given, *own, numbers(1, 0, 1)])
    assert found.shape == given.shape
    assert torch.equal(found if absent else found[[0, 2]], whole[[0, 2]])


def test_a_sequence_without_keys_has_no_row_whatever_its_status() -> None:
    query, *caches = drawn(64, 128, torch.float16)
    tail = [*caches, TABLE, numbers(150, 0, 128)]
    for switched, more in ((False, []), (True, [numbers(1, 1, 1)]), (True, [numbers(1, 0, 1)])):
        (found,) = operation(64, switched=switched).forward([query[[0, 2, 1]], *tail, *more])
        torch.testing.assert_close(
            found[:2].double(), definition(query, *caches)[[0, 2]], rtol=2e-2, atol=5e-3
        )
