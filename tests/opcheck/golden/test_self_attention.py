"""SelfAttention in every calculation type and mask, against scores written out one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.opcheck.golden import DEVICE, GOLDEN, Arithmetic, Result, golden_ops
from ait_llm.opcheck.golden.layout import nd_to_nz

Run = Callable[..., Result]
AssertClose = Callable[..., None]
Attention = Callable[..., Tensor]
OP = "SelfAttentionOperation"
SCALE = 0.35


def _params(calc: int = 3, heads: int = 4, kv_heads: int = 2, **own: Any) -> dict[str, Any]:
    return {"headNum": heads, "kvHeadNum": kv_heads, "calcType": calc, "qkScale": SCALE, **own}


def _qkv(
    rows: int, keys: int | None = None, dtype: torch.dtype = torch.float16, value_size: int = 16
) -> tuple[Tensor, Tensor, Tensor]:
    """Query of 4 heads, key and value of 2."""
    keys = rows if keys is None else keys
    return (
        torch.randn(rows, 4, 16).to(dtype),
        torch.randn(keys, 2, 16).to(dtype),
        torch.randn(keys, 2, value_size).to(dtype),
    )


def _int32(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def _parts(lengths: Sequence[int]) -> list[slice]:
    ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
    return [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]


def _causal(row: int, key: int) -> bool:
    return key <= row


# ---- packed tokens --------------------------------------------------------------------------


@pytest.mark.parametrize("arithmetic", [GOLDEN, DEVICE], ids=["golden", "device"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("flat", [False, True])
def test_packed_sequences_attend_to_themselves(
    run: Run,
    assert_close: AssertClose,
    attention: Attention,
    flat: bool,
    dtype: torch.dtype,
    arithmetic: Arithmetic,
) -> None:
    """Disagreement 41: operands are not cast to bfloat16; the tolerance would show it."""
    q, k, v = _qkv(8, dtype=dtype)
    inputs = [t.flatten(1) if flat else t for t in (q, k, v)]
    (y,) = run(OP, [*inputs, _int32(3, 0, 5)], _params(), arithmetic).outputs
    assert y.dtype == dtype
    for part in _parts([3, 0, 5]):
        if part.stop > part.start:
            expected = attention(q[part], k[part], v[part], scale=SCALE)
            assert_close(y[part].reshape(-1, 4, 16), expected, floor=0.05)


def test_query_and_key_lengths_may_differ(
    run: Run, assert_close: AssertClose, attention: Attention
) -> None:
    q, k, v = _qkv(5, 9)
    lengths = torch.tensor([[3, 0, 2], [4, 2, 3]], dtype=torch.int32)
    (y,) = run(OP, [q, k, v, lengths], _params()).outputs
    for rows, keys in zip(_parts([3, 0, 2]), _parts([4, 2, 3]), strict=True):
        if rows.stop > rows.start:
            expected = attention(q[rows], k[keys], v[keys], scale=SCALE)
            assert_close(y[rows], expected, floor=0.05)


@pytest.mark.parametrize("value_size", [8, 16])
def test_values_may_have_another_head_size(
    run: Run, assert_close: AssertClose, attention: Attention, value_size: int
) -> None:
    q, k, v = _qkv(4, value_size=value_size)
    (y,) = run(OP, [q, k, v, _int32(4)], _params()).outputs
    assert y.shape == (4, 4, value_size)
    assert_close(y, attention(q, k, v, scale=SCALE), floor=0.05)
    flat = [t.flatten(1) for t in (q, k, v)]
    (joined,) = run(OP, [*flat, _int32(4)], _params()).outputs
    assert torch.equal(joined, y.flatten(1))


def test_mla_values_are_the_head_of_the_keys(
    run: Run, assert_close: AssertClose, attention: Attention
) -> None:
    q, k, _ = _qkv(4)
    (y,) = run(OP, [q, k, _int32(4)], _params(mlaVHeadSize=8)).outputs
    assert_close(y, attention(q, k, k[..., :8], scale=SCALE), floor=0.05)


def test_four_dimensional_tensors_in_both_layouts(
    run: Run, assert_close: AssertClose, attention: Attention
) -> None:
    q, k, v = (t.reshape(2, 5, -1, 16) for t in _qkv(10))
    lengths = _int32(5, 3)
    (y,) = run(OP, [q, k, v, lengths], _params()).outputs
    assert y.shape == (2, 5, 64)
    major = [t.transpose(1, 2).contiguous() for t in (q, k, v)]
    (z,) = run(OP, [*major, lengths], _params(inputLayout=1)).outputs
    assert torch.equal(z.transpose(1, 2).flatten(2), y)
    for batch, length in ((0, 5), (1, 3)):
        expected = attention(q[batch, :length], k[batch, :length], v[batch, :length], scale=SCALE)
        assert_close(y[batch, :length].reshape(length, 4, 16), expected, floor=0.05)
    assert not y[1, 3:].any()


def test_packed_encoder_ignores_query_scale_and_clamp(run: Run) -> None:
    """Disagreement 3: the runner of PA_ENCODER never forwards them."""
    q, k, v = _qkv(4)
    plain = run(OP, [q, k, v, _int32(4)], _params()).outputs[0]
    given_anyway = _params(qScale=0.1, clampType=1, clampMin=-0.1, clampMax=0.1)
    assert torch.equal(run(OP, [q, k, v, _int32(4)], given_anyway).outputs[0], plain)


def test_log_n_scales_rows_by_position(
    run: Run, assert_close: AssertClose, attention: Attention
) -> None:
    q, k, v = _qkv(7)
    factors = torch.rand(5) + 0.5
    (y,) = run(OP, [q, k, v, _int32(3, 4), factors], _params(scaleType=1)).outputs
    for part in _parts([3, 4]):
        expected = attention(
            q[part], k[part], v[part], scale=SCALE, row_factor=lambda row: float(factors[row])
        )
        assert_close(y[part], expected, floor=0.05)


# ---- masks ----------------------------------------------------------------------------------


def _triangle(size: int, hidden: float, dtype: torch.dtype = torch.float16) -> Tensor:
    return (torch.ones(size, size).triu(1) * hidden).to(dtype)


@pytest.mark.parametrize("hidden", [-10000.0, -65504.0])
def test_additive_mask_tensor(
    run: Run, assert_close: AssertClose, attention: Attention, hidden: float
) -> None:
    q, k, v = _qkv(7)
    mask = _triangle(8, hidden)
    (y,) = run(OP, [q, k, v, mask, _int32(3, 4)], _params(maskType=1)).outputs
    for part in _parts([3, 4]):
        assert_close(
            y[part], attention(q[part], k[part], v[part], scale=SCALE, sees=_causal), floor=0.05
        )


def test_batched_mask_serves_each_sequence(
    run: Run, assert_close: AssertClose, attention: Attention
) -> None:
    q, k, v = _qkv(7)
    mask = torch.randn(2, 4, 4).half()
    (y,) = run(OP, [q, k, v, mask, _int32(3, 4)], _params(maskType=1)).outputs
    for batch, part in enumerate(_parts([3, 4])):

        def bias(head: int, row: int, key: int, batch: int = batch) -> float:
            return float(mask[batch, row, key])

        expected = attention(q[part], k[part], v[part], scale=SCALE, bias=bias)
        assert_close(y[part], expected, floor=0.05)


@pytest.mark.parametrize("shape", [(4, 5, 5), (2, 4, 5, 5)])
def test_alibi_mask_has_a_part_per_head(
    run: Run, assert_close: AssertClose, attention: Attention, shape: tuple[int, ...]
) -> None:
    """Disagreement 1: the scale comes before the mask."""
    q, k, v = _qkv(8)
    mask = torch.randn(shape).half()
    (y,) = run(OP, [q, k, v, mask, _int32(5, 3)], _params(maskType=2)).outputs
    for batch, part in enumerate(_parts([5, 3])):
        own = mask if mask.dim() == 3 else mask[batch]

        def bias(head: int, row: int, key: int, own: Tensor = own) -> float:
            return float(own[head, row, key])

        assert_close(
            y[part], attention(q[part], k[part], v[part], scale=SCALE, bias=bias), floor=0.05
        )


@pytest.mark.parametrize(
    ("dtype", "kernel"), [(torch.bfloat16, 0), (torch.float16, 1), (torch.bfloat16, 1)]
)
def test_high_precision_kernels_multiply_a_mask_of_ones(
    run: Run, assert_close: AssertClose, attention: Attention, dtype: torch.dtype, kernel: int
) -> None:
    """Disagreement 2: the coefficient is -3e38 for bfloat16 and the high precision kernel."""
    q, k, v = _qkv(4, dtype=dtype)
    params = _params(maskType=1, kernelType=kernel)
    expected = attention(q, k, v, scale=SCALE, sees=_causal)
    (ones,) = run(OP, [q, k, v, _triangle(4, 1.0, dtype), _int32(4)], params).outputs
    assert_close(ones, expected, floor=0.05)
    (negative,) = run(OP, [q, k, v, _triangle(4, -10000.0, dtype), _int32(4)], params).outputs
    assert_close(negative, expected, floor=0.05)
    infinite = torch.full((4, 4), -math.inf, dtype=dtype).triu(1)
    (unlimited,) = run(OP, [q, k, v, infinite, _int32(4)], params).outputs
    assert_close(unlimited, expected, floor=0.05)


def test_default_kernel_adds_ones_as_they_are(
    run: Run, assert_close: AssertClose, attention: Attention
) -> None:
    q, k, v = _qkv(4)
    (y,) = run(OP, [q, k, v, _triangle(4, 1.0), _int32(4)], _params(maskType=1)).outputs
    expected = attention(q, k, v, scale=SCALE, bias=lambda h, i, j: float(j > i))
    assert_close(y, expected, floor=0.05)


@pytest.mark.parametrize("kind", [3, 1])
def test_compressed_triangle_is_causal_at_any_length(
    run: Run, assert_close: AssertClose, kind: int
) -> None:
    q, k, v = (torch.randn(140, h, 16).half() for h in (2, 1, 1))
    template = _triangle(128, -10000.0)
    params = _params(heads=2, kv_heads=1, maskType=kind, isTriuMask=1)
    (y,) = run(OP, [q, k, v, template, _int32(140)], params).outputs
    heads = [t.double().transpose(0, 1).expand(2, -1, -1) for t in (q, k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True, scale=SCALE)
    assert_close(y, expected.transpose(0, 1), floor=0.05)


@pytest.mark.parametrize(
    ("kind", "distance"),
    [
        (4, lambda i, j: i - j),
        (5, lambda i, j: math.sqrt(i - j) if i >= j else 0.0),
        (6, lambda i, j: j),
    ],
)
def test_compressed_alibi_takes_the_sign_of_the_slopes(
    run: Run,
    assert_close: AssertClose,
    attention: Attention,
    kind: int,
    distance: Callable[[int, int], float],
) -> None:
    """Disagreement 45: slopes are dumped negated (positive for left-aligned), used as they are."""
    q, k, v = _qkv(6)
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625]) * (1 if kind == 6 else -1)
    template = torch.randn(256, 256).half()
    params = _params(maskType=kind, isTriuMask=1)
    (y,) = run(OP, [q, k, v, template, _int32(6), slopes], params).outputs
    expected = attention(
        q,
        k,
        v,
        scale=SCALE,
        bias=lambda h, i, j: float(slopes[h]) * distance(i, j),
        sees=_causal,
    )
    assert_close(y, expected, floor=0.05)


def test_tiled_alibi_equals_the_full_one(run: Run) -> None:
    q, k, v = (torch.randn(150, h, 16).half() for h in (2, 1, 1))
    slopes = torch.tensor([-0.5, -0.125])
    row, key = torch.arange(150).unsqueeze(1), torch.arange(128)
    tile = (slopes.reshape(2, 1, 1) * (row - key)).half()
    full = (slopes.reshape(2, 1, 1) * (row - torch.arange(150))).half()
    full = full.masked_fill(torch.ones(150, 150).triu(1).bool(), -math.inf)
    params = _params(heads=2, kv_heads=1)
    (tiled,) = run(
        OP, [q, k, v, tile, _int32(150), slopes], {**params, "maskType": 4, "isTriuMask": 1}
    ).outputs
    (plain,) = run(OP, [q, k, v, full, _int32(150)], {**params, "maskType": 2}).outputs
    torch.testing.assert_close(tiled, plain, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", [7, 8])
def test_sliding_window_shows_the_last_keys(
    run: Run, assert_close: AssertClose, attention: Attention, kind: int
) -> None:
    q, k, v = _qkv(7)
    mask = torch.zeros(512, 512).half()
    (y,) = run(OP, [q, k, v, mask, _int32(7)], _params(maskType=kind, windowSize=3)).outputs
    expected = attention(q, k, v, scale=SCALE, sees=lambda i, j: i - 3 < j <= i)
    assert_close(y, expected, floor=0.05)


def test_generated_causal_mask_is_aligned_at_the_last_key(
    run: Run, assert_close: AssertClose, attention: Attention
) -> None:
    q, k, v = _qkv(3, 5)
    lengths = torch.tensor([[3], [5]], dtype=torch.int32)
    (y,) = run(OP, [q, k, v, lengths], _params(maskType=9)).outputs
    assert_close(y, attention(q, k, v, scale=SCALE, sees=lambda i, j: j <= i + 2), floor=0.05)


def test_nz_masks_are_unblocked(run: Run) -> None:
    q, k, v = _qkv(20)
    mask = torch.randn(32, 32).half()
    (plain,) = run(OP, [q, k, v, mask, _int32(20)], _params(maskType=1)).outputs
    blocked = nd_to_nz(mask.unsqueeze(0))
    (same,) = run(OP, [q, k, v, blocked, _int32(20)], _params(maskType=1)).outputs
    assert torch.equal(plain, same)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8])
def test_masks_without_sign_hide_where_set(
    run: Run, assert_close: AssertClose, attention: Attention, dtype: torch.dtype
) -> None:
    q, k, v = _qkv(4)
    mask = torch.ones(4, 4).triu(1).to(dtype)
    (y,) = run(OP, [q, k, v, mask, _int32(4)], _params(maskType=1), infer=False).outputs
    assert_close(y, attention(q, k, v, scale=SCALE, sees=_causal), floor=0.05)


@pytest.mark.parametrize("value_size", [16, 8])
def test_rows_that_see_nothing_are_zero(run: Run, value_size: int) -> None:
    q, k, v = _qkv(3, value_size=value_size)
    mask = torch.zeros(3, 3).half()
    mask[1] = -math.inf
    (y,) = run(OP, [q, k, v, mask, _int32(3)], _params(maskType=1)).outputs
    assert not y[1].any()
    assert y[0].all()
    assert y[2].all()


# ---- caches ---------------------------------------------------------------------------------


def _cached(
    layers: int, batch: int, length: int, dtype: torch.dtype = torch.float16
) -> tuple[Tensor, Tensor]:
    shape = (layers, batch, length, 32)
    return torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)


def _appended(
    cache: Tensor, tokens: Tensor, layer: int, ends: list[int], rows: list[int]
) -> Tensor:
    new = cache.clone()
    for batch, part in enumerate(_parts(rows)):
        new[layer, batch, ends[batch] - rows[batch] : ends[batch]] = tokens[part].flatten(1)
    return new


@pytest.mark.parametrize("calc", [0, 1, 2])
@pytest.mark.parametrize("rows", [[3, 2], [1, 1]])
def test_new_tokens_join_the_cache_before_attention(
    run: Run, assert_close: AssertClose, attention: Attention, calc: int, rows: list[int]
) -> None:
    """Disagreement 43: with fewer key/value heads than query heads, heads are grouped."""
    q, k, v = _qkv(sum(rows))
    caches = _cached(2, 2, 8)
    ends = [5, 4]
    inputs = [q, k, v, *caches, _int32(*ends), _int32(*rows), _int32(1)]
    result = run(OP, inputs, _params(calc))
    expected = [_appended(c, t, 1, ends, rows) for c, t in zip(caches, (k, v), strict=True)]
    assert torch.equal(result.updated_inputs[3], expected[0])
    assert torch.equal(result.updated_inputs[4], expected[1])
    for batch, part in enumerate(_parts(rows)):
        keys, values = (c[1, batch, : ends[batch]].reshape(-1, 2, 16) for c in expected)
        assert_close(
            result.outputs[0][part], attention(q[part], keys, values, scale=SCALE), floor=0.05
        )


def test_bypass_reads_caches_and_leaves_them(run: Run) -> None:
    """Disagreement 4: the scale is qkScale times qScale, not 1/sqrt(D)."""
    q, k, v = _qkv(3)
    caches = _cached(1, 2, 6)
    tail = [_int32(5, 4), _int32(2, 1), _int32(0)]
    full = run(OP, [q, k, v, *caches, *tail], _params(1, qScale=0.5))
    filled = [full.updated_inputs[3], full.updated_inputs[4]]
    result = run(OP, [q, *filled, *tail], _params(1, qScale=0.5, kvcacheCfg=1))
    assert torch.equal(result.outputs[0], full.outputs[0])
    assert not result.updated_inputs


def test_query_scale_is_rounded_to_the_query(
    run: Run, assert_close: AssertClose, attention: Attention
) -> None:
    q, _, _ = _qkv(2)
    caches = _cached(1, 1, 4)
    inputs = [q, *caches, _int32(4), _int32(2), _int32(0)]
    (y,) = run(OP, inputs, _params(1, qScale=0.3, kvcacheCfg=1)).outputs
    scaled = (q.float() * 0.3).half()
    keys, values = (c[0, 0].reshape(-1, 2, 16) for c in caches)
    assert_close(y, attention(scaled, keys, values, scale=SCALE), floor=0.05)


def test_clamp_comes_after_the_scale_and_before_the_mask(
    run: Run, assert_close: AssertClose, attention: Attention
) -> None:
    """Disagreement 1."""
    q, k, v = _qkv(4)
    q = q * 3
    caches = _cached(1, 1, 4)
    mask = torch.randn(4, 4).half()
    params = _params(1, maskType=1, clampType=1, clampMin=-0.5, clampMax=0.75)
    inputs = [q, k, v, *caches, mask, _int32(4), _int32(4), _int32(0)]
    (y,) = run(OP, inputs, params).outputs
    expected = attention(
        q,
        k,
        v,
        scale=SCALE,
        clamp=(-0.5, 0.75),
        bias=lambda h, i, j: float(mask[i, j]),
    )
    assert_close(y, expected, floor=0.05)


def test_decoder_mask_has_one_row(
    run: Run, assert_close: AssertClose, attention: Attention
) -> None:
    q, _, _ = _qkv(2)
    caches = _cached(1, 2, 6)
    mask = torch.randn(2, 1, 6).half()
    tail = [_int32(6, 4), _int32(1, 1), _int32(0)]
    (y,) = run(OP, [q, *caches, mask, *tail], _params(2, maskType=1, kvcacheCfg=1)).outputs
    for batch, end in ((0, 6), (1, 4)):
        keys, values = (c[0, batch, :end].reshape(-1, 2, 16) for c in caches)

        def bias(head: int, row: int, key: int, batch: int = batch) -> float:
            return float(mask[batch, 0, key])

        expected = attention(q[batch : batch + 1], keys, values, scale=SCALE, bias=bias)
        assert_close(y[batch : batch + 1], expected, floor=0.05)


def test_high_precision_decoder_takes_the_mask_as_it_is(
    run: Run, assert_close: AssertClose, attention: Attention
) -> None:
    q, _, _ = _qkv(1)
    caches = _cached(1, 1, 4)
    mask = torch.tensor([[[0.0, 1.0, 1.0, 0.0]]]).half()
    inputs = [q, *caches, mask, _int32(4), _int32(1), _int32(0)]
    (y,) = run(OP, inputs, _params(2, maskType=1, kvcacheCfg=1, kernelType=1)).outputs
    keys, values = (c[0, 0].reshape(-1, 2, 16) for c in caches)
    expected = attention(q, keys, values, scale=SCALE, bias=lambda h, i, j: float(mask[0, 0, j]))
    assert_close(y, expected, floor=0.05)


@pytest.mark.parametrize("ring", [0, 1])
def test_decoder_window_shows_last_keys_or_first_ring_slots(
    run: Run, assert_close: AssertClose, attention: Attention, ring: int
) -> None:
    q, _, _ = _qkv(2)
    caches = _cached(1, 2, 6)
    params = _params(2, maskType=7, windowSize=3, cacheType=ring, kvcacheCfg=1)
    tail = [_int32(6, 2), _int32(1, 1), _int32(0)]
    (y,) = run(OP, [q, *caches, *tail], params).outputs
    for batch, end in ((0, 6), (1, 2)):
        shown = slice(0, min(3, end)) if ring else slice(max(end - 3, 0), end)
        keys, values = (c[0, batch, shown].reshape(-1, 2, 16) for c in caches)
        expected = attention(q[batch : batch + 1], keys, values, scale=SCALE)
        assert_close(y[batch : batch + 1], expected, floor=0.05)


def test_a_ring_is_written_modulo_its_length(run: Run) -> None:
    q, k, v = _qkv(1)
    caches = _cached(1, 1, 3)
    inputs = [q, k, v, *caches, _int32(5), _int32(1), _int32(0)]
    params = _params(2, maskType=7, windowSize=3, cacheType=1)
    result = run(OP, inputs, params)
    expected = caches[0].clone()
    expected[0, 0, 1] = k[0].flatten()
    assert torch.equal(result.updated_inputs[3], expected)


@pytest.mark.parametrize("absent", [True, False])
def test_switched_off_sequences_change_nothing(
    run: Run, assert_close: AssertClose, attention: Attention, absent: bool
) -> None:
    """Disagreement 42: the run status is a flag per sequence."""
    rows = [2, 0 if absent else 2, 1]
    q, k, v = _qkv(sum(rows))
    caches = _cached(1, 3, 6)
    tail = [_int32(2, 5, 4), _int32(2, 2, 1), _int32(0), _int32(1, 0, 1)]
    result = run(OP, [q, k, v, *caches, *tail], _params(1, batchRunStatusEnable=True))
    assert torch.equal(result.updated_inputs[3][0, 1], caches[0][0, 1])
    for batch, part, end in zip((0, 2), (_parts(rows)[0], _parts(rows)[2]), (2, 4), strict=True):
        keys, values = (result.updated_inputs[i][0, batch, :end].reshape(-1, 2, 16) for i in (3, 4))
        expected = attention(q[part], keys, values, scale=SCALE)
        assert_close(result.outputs[0][part], expected, floor=0.05)
    if not absent:
        assert not result.outputs[0][2:4].any()


def test_head_major_and_nz_caches_hold_the_same(run: Run) -> None:
    q, k, v = _qkv(3)
    caches = _cached(2, 2, 16)
    tail = [_int32(5, 4), _int32(2, 1), _int32(1)]
    plain = run(OP, [q, k, v, *caches, *tail], _params(1))
    blocked = [nd_to_nz(c) for c in caches]
    nz = run(OP, [q, k, v, *blocked, *tail], _params(1), infer=False)
    assert torch.equal(nz.outputs[0], plain.outputs[0])
    assert torch.equal(nz.updated_inputs[3], nd_to_nz(plain.updated_inputs[3]))
    major = [c.reshape(2, 2, 16, 2, 16).transpose(2, 3).contiguous() for c in caches]
    by_head = run(OP, [q, k, v, *major, *tail], _params(1, inputLayout=1), infer=False)
    assert torch.equal(by_head.outputs[0], plain.outputs[0])
    back = by_head.updated_inputs[4].transpose(2, 3).reshape(caches[1].shape)
    assert torch.equal(back, plain.updated_inputs[4])


# ---- cached prefix --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [9, 3, 1, 4])
@pytest.mark.parametrize("joined", [False, True])
def test_prefix_rows_stand_at_the_end_of_the_keys(
    run: Run, assert_close: AssertClose, attention: Attention, kind: int, joined: bool
) -> None:
    q, _, _ = _qkv(5)
    pages = [torch.randn(6, 4, 2, 16).half() for _ in range(2)]
    tables = torch.tensor([[5, 2, 0], [1, 4, 3]], dtype=torch.int32)
    rows, keys = [3, 2], [10, 7]
    slopes = -torch.rand(4)
    mask = {9: [], 3: [_triangle(128, -1e4)], 1: [_triangle(16, -1e4)], 4: [torch.zeros(256, 256)]}
    masks = [m.half() for m in mask[kind]]
    given_pages = [p.flatten(2) if joined else p for p in pages]
    inputs = [q, *given_pages, tables, *masks, _int32(*rows), _int32(*keys)]
    params = _params(4, maskType=kind, kernelType=1, isTriuMask=int(kind in (3, 4)))
    (y,) = run(OP, inputs + ([slopes] if kind == 4 else []), params).outputs
    for batch, part in enumerate(_parts(rows)):
        flat = [p[tables[batch].long()].flatten(0, 1)[: keys[batch]] for p in pages]
        offset = keys[batch] - rows[batch]

        def bias(head: int, row: int, key: int, offset: int = offset) -> float:
            return float(slopes[head]) * (row + offset - key) if kind == 4 else 0.0

        def sees(row: int, key: int, offset: int = offset) -> bool:
            return key <= row + offset

        expected = attention(q[part], *flat, scale=SCALE, bias=bias, sees=sees)
        assert_close(y[part], expected, floor=0.05)


# ---- int8 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("offline", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_int8_attention_quantises_probabilities(run: Run, offline: bool, masked: bool) -> None:
    q, k, v = (torch.randint(-100, 100, (6, h, 16)).to(torch.int8) for h in (4, 2, 2))
    score, value = torch.rand(4) * 1e-3, torch.rand(4) * 1e-2
    step = torch.rand(4) * 0.01 + 0.005
    zero = torch.zeros(4, dtype=torch.int32)
    mask = [_triangle(6, -10000.0)] if masked else []
    scales = [score, zero, value, zero, *([step] if offline else [])]
    params = _params(quantType=2 if offline else 3, outDataType=1, maskType=int(masked))
    (y,) = run(OP, [q, k, v, *mask, _int32(6), *scales], params).outputs
    assert y.dtype == torch.float16
    exact = []
    for head in range(4):
        for row in range(6):
            keys = range(row + 1 if masked else 6)
            scores = [
                sum(int(a) * int(b) for a, b in zip(q[row, head], k[j, head // 2], strict=True))
                * float(score[head])
                * SCALE
                for j in keys
            ]
            powers = [math.exp(s - max(scores)) for s in scores]
            unit = float(step[head]) if offline else 1 / 127
            counts = [min(round(float(torch.tensor(p / unit).half())), 127) for p in powers]
            for d in range(16):
                total = sum(c * int(v[j, head // 2, d]) for c, j in zip(counts, keys, strict=True))
                expected = total * float(value[head]) * unit / math.fsum(powers)
                error = abs(float(y[row, head, d]) - expected)
                # A count at a rounding boundary may differ by one, in a few elements.
                assert error <= 127 * float(value[head]) * unit
                exact.append(error <= abs(expected) * 1e-3 + 1e-6)
    assert sum(exact) >= 0.9 * len(exact)


# ---- properties and refusals ----------------------------------------------------------------


@settings(max_examples=25)
@given(st.permutations(range(6)), st.integers(0, 2**31))
def test_order_of_keys_does_not_matter(run: Run, order: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(6, h, 16, generator=generator).half() for h in (4, 2, 2))
    (base,) = run(OP, [q, k, v, _int32(6)], _params()).outputs
    (moved,) = run(OP, [q, k[order], v[order], _int32(6)], _params()).outputs
    torch.testing.assert_close(moved, base, rtol=1e-3, atol=1e-5)


@settings(max_examples=25)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any))
def test_packing_equals_one_sequence_at_a_time(run: Run, lengths: list[int]) -> None:
    q, k, v = _qkv(sum(lengths))
    mask = _triangle(6, -65504.0)
    params = _params(maskType=1)
    (packed,) = run(OP, [q, k, v, mask, _int32(*lengths)], params).outputs
    for part in _parts(lengths):
        if part.stop > part.start:
            single = [q[part], k[part], v[part], mask, _int32(part.stop - part.start)]
            assert torch.equal(run(OP, single, params).outputs[0], packed[part])


def test_long_sequences_are_blocked_without_a_trace(run: Run) -> None:
    q, k, v = (torch.randn(1200, h, 16).half() for h in (2, 1, 1))
    mask = torch.full((1200, 1200), -math.inf).triu(1).half()
    params = _params(heads=2, kv_heads=1)
    (by_tensor,) = run(OP, [q, k, v, mask, _int32(1200)], {**params, "maskType": 1}).outputs
    (by_rule,) = run(OP, [q, k, v, _int32(1200)], {**params, "maskType": 9}).outputs
    reference = torch.nn.functional.scaled_dot_product_attention(
        q.double().transpose(0, 1),
        k.double().transpose(0, 1).expand(2, -1, -1),
        v.double().transpose(0, 1).expand(2, -1, -1),
        is_causal=True,
        scale=SCALE,
    ).transpose(0, 1)
    torch.testing.assert_close(by_tensor.double(), reference, rtol=6e-4, atol=1e-5)
    torch.testing.assert_close(by_rule.double(), reference, rtol=6e-4, atol=1e-5)


def _half(*shape: int) -> TensorDesc:
    return TensorDesc(DType.FLOAT16, shape)


LENGTH = TensorDesc(DType.INT32, (1,))


@pytest.mark.parametrize(
    ("descs", "params", "text"),
    [
        ([_half(4, 64), _half(4, 32), LENGTH], _params(), "takes 4"),
        ([_half(4, 64), _half(4, 32), _half(4, 32), LENGTH], _params(heads=3), "multiple"),
        ([_half(4, 64), _half(4, 40), _half(4, 40), LENGTH], _params(), "16 entries and key"),
        ([_half(4, 3, 16), _half(4, 2, 16), _half(4, 2, 16), LENGTH], _params(), "4 heads"),
        ([_half(4, 64)] * 4, _params(maskType=11), "9 CAUSAL"),
        ([_half(4, 64)] * 4, _params(windowSize=3), "needs both"),
    ],
)
def test_self_attention_says_what_it_refuses(
    descs: list[TensorDesc], params: dict[str, Any], text: str
) -> None:
    with pytest.raises(OperationError, match=text):
        golden_ops.get(OP).infer_shape(descs, params)


def test_tokens_and_lengths_must_agree(run: Run) -> None:
    q, k, v = _qkv(4)
    with pytest.raises(OperationError, match="adds up to 5; the query has 4"):
        run(OP, [q, k, v, _int32(5)], _params(), infer=False)


def test_a_mask_too_small_is_refused(run: Run) -> None:
    q, k, v = _qkv(4)
    with pytest.raises(OperationError, match="too small"):
        run(OP, [q, k, v, _triangle(3, -1.0), _int32(4)], _params(maskType=1))


def test_a_cache_too_short_is_refused(run: Run) -> None:
    q, k, v = _qkv(2)
    inputs = [q, k, v, *_cached(1, 1, 4), _int32(5), _int32(2), _int32(0)]
    with pytest.raises(OperationError, match="writes tokens 3 to 5 of a cache of 4"):
        run(OP, inputs, _params(1))
