"""PagedAttention in every layout, mask and quantisation, against scores written out."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ait_llm.core import FORMAT_FRACTAL_NZ, DType, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.opcheck.golden import DEVICE, GOLDEN, Arithmetic, Result, golden_ops
from ait_llm.opcheck.golden.layout import nd_to_nz

Run = Callable[..., Result]
AssertClose = Callable[..., None]
Attention = Callable[..., Tensor]
OP = "PagedAttentionOperation"
SCALE = 0.3
BLOCK = 4
TABLES = torch.tensor([[5, 2, 0], [1, 4, 3], [6, 0, 0]], dtype=torch.int32)
CONTEXTS = [10, 7, 1]


def _params(heads: int = 4, kv_heads: int = 2, **own: Any) -> dict[str, Any]:
    return {"headNum": heads, "kvHeadNum": kv_heads, "qkScale": SCALE, **own}


def _int32(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def _caches(
    dtype: torch.dtype = torch.float16, value_size: int = 16, blocks: int = 7
) -> tuple[Tensor, Tensor]:
    key = torch.randn(blocks, BLOCK, 2, 16).to(dtype)
    return key, torch.randn(blocks, BLOCK, 2, value_size).to(dtype)


def _entries(cache: Tensor, batch: int, count: int) -> Tensor:
    """Entry j of a sequence is ``cache[table[j // bs], j % bs]``."""
    return torch.stack([cache[TABLES[batch, j // BLOCK], j % BLOCK] for j in range(count)])


@pytest.mark.parametrize("arithmetic", [GOLDEN, DEVICE], ids=["golden", "device"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("value_size", [16, 8])
def test_each_token_attends_to_its_pages(
    run: Run,
    assert_close: AssertClose,
    attention: Attention,
    dtype: torch.dtype,
    value_size: int,
    arithmetic: Arithmetic,
) -> None:
    query, caches = torch.randn(3, 4, 16).to(dtype), _caches(dtype, value_size)
    inputs = [query, *caches, TABLES, _int32(*CONTEXTS)]
    (y,) = run(OP, inputs, _params(), arithmetic).outputs
    assert y.dtype == dtype
    for batch, count in enumerate(CONTEXTS):
        keys, values = (_entries(cache, batch, count) for cache in caches)
        expected = attention(query[batch : batch + 1], keys, values, scale=SCALE)
        assert_close(y[batch : batch + 1], expected, floor=0.05)


def test_kv_head_number_zero_means_all_heads(run: Run) -> None:
    query, caches = torch.randn(1, 2, 16).half(), _caches()
    inputs = [query, *caches, TABLES[:1], _int32(6)]
    implied = run(OP, inputs, _params(2, 0)).outputs[0]
    assert torch.equal(implied, run(OP, inputs, _params(2, 2)).outputs[0])


def test_empty_contexts_have_no_rows(run: Run) -> None:
    """The kernels count a sequence's rows only where it has keys, whatever its run status is."""
    query, caches = torch.randn(3, 4, 16).half(), _caches()
    alone = [
        run(OP, [row[None], *caches, TABLES[[table]], _int32(keys)], _params()).outputs[0][0]
        for row, table, keys in zip(query, (0, 2), (10, 1), strict=False)
    ]
    for more in ((), (_int32(1, 0, 1),)):
        params = _params(batchRunStatusEnable=bool(more))
        result = run(OP, [query, *caches, TABLES, _int32(10, 0, 1), *more], params)
        assert torch.equal(result.outputs[0][:2], torch.stack(alone))
        assert result.undefined[0].expand(3, 4, 16)[:, 0, 0].tolist() == [False, False, True]


def test_rows_of_switched_off_sequences_are_undefined_and_may_be_absent(run: Run) -> None:
    query, caches = torch.randn(3, 4, 16).half(), _caches()
    (full,) = run(OP, [query, *caches, TABLES, _int32(10, 7, 1)], _params()).outputs
    inputs = [*caches, TABLES, _int32(10, 7, 1), _int32(1, 0, 1)]
    switched = _params(batchRunStatusEnable=True)
    result = run(OP, [query, *inputs], switched)
    assert torch.equal(result.outputs[0][[0, 2]], full[[0, 2]])
    assert result.undefined[0].expand(3, 4, 16)[:, 0, 0].tolist() == [False, True, False]
    (packed,) = run(OP, [query[[0, 2]], *inputs], switched).outputs
    assert torch.equal(packed, full[[0, 2]])


@pytest.mark.parametrize("layout", ["nz", "head_major"])
def test_other_cache_layouts_give_the_same(run: Run, layout: str) -> None:
    query = torch.randn(3, 4, 16).half()
    caches = [torch.randn(7, 16, 2, 16).half() for _ in range(2)]
    contexts = _int32(40, 17, 3)
    (plain,) = run(OP, [query, *caches, TABLES, contexts], _params()).outputs
    if layout == "nz":
        other = [nd_to_nz(c.flatten(2)) for c in caches]
        formats = {1: FORMAT_FRACTAL_NZ, 2: FORMAT_FRACTAL_NZ}
        (same,) = run(OP, [query, *other, TABLES, contexts], _params(), formats=formats).outputs
    else:
        other = [c.transpose(1, 2).contiguous() for c in caches]
        (same,) = run(OP, [query, *other, TABLES, contexts], _params(inputLayout=1)).outputs
        (guessed,) = run(OP, [query, *other, TABLES, contexts], _params(), infer=False).outputs
        assert torch.equal(guessed, plain)
    assert torch.equal(same, plain)


def test_mla_values_are_the_head_of_the_keys(
    run: Run, assert_close: AssertClose, attention: Attention
) -> None:
    query, (cache, _) = torch.randn(2, 4, 16).half(), _caches()
    inputs = [query, cache, TABLES[:2], _int32(9, 4)]
    (y,) = run(OP, inputs, _params(mlaVHeadSize=8)).outputs
    for batch, count in ((0, 9), (1, 4)):
        keys = _entries(cache, batch, count)
        expected = attention(query[batch : batch + 1], keys, keys[..., :8], scale=SCALE)
        assert_close(y[batch : batch + 1], expected, floor=0.05)


# ---- masks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [1, 2])
def test_decode_masks_are_added_as_they_are(
    run: Run, assert_close: AssertClose, attention: Attention, kind: int
) -> None:
    """Scale before mask; coefficient 1, for bfloat16 too."""
    query, caches = torch.randn(3, 4, 16).bfloat16(), _caches(torch.bfloat16)
    mask = torch.randn(*((3, 1, 12) if kind == 1 else (3, 4, 1, 12))).bfloat16().abs()
    (y,) = run(
        OP, [query, *caches, TABLES, _int32(*CONTEXTS), mask], _params(maskType=kind)
    ).outputs
    for batch, count in enumerate(CONTEXTS):
        keys, values = (_entries(cache, batch, count) for cache in caches)

        def bias(head: int, row: int, key: int, batch: int = batch) -> float:
            return float(mask[batch, 0, key] if kind == 1 else mask[batch, head, 0, key])

        expected = attention(query[batch : batch + 1], keys, values, scale=SCALE, bias=bias)
        assert_close(y[batch : batch + 1], expected, floor=0.05)


def test_blocked_masks_join_batch_and_heads(run: Run) -> None:
    query, caches = torch.randn(3, 4, 16).half(), _caches()
    mask = torch.randn(3, 4, 1, 12).half()
    inputs = [query, *caches, TABLES, _int32(*CONTEXTS)]
    (plain,) = run(OP, [*inputs, mask], _params(maskType=2)).outputs
    blocked = nd_to_nz(mask.reshape(12, 1, 12))
    (same,) = run(OP, [*inputs, blocked], _params(maskType=2)).outputs
    assert torch.equal(plain, same)


ROWS = [3, 2, 1]


@pytest.mark.parametrize(
    ("kind", "blocked"), [(1, False), (3, False), (3, True), (4, False), (5, False)]
)
def test_several_rows_per_sequence(
    run: Run, assert_close: AssertClose, attention: Attention, kind: int, blocked: bool
) -> None:
    """Disagreement 35: calcType SPEC. All four masks can say 'causal from the last key'."""
    query, caches = torch.randn(6, 4, 16).half(), _caches()
    masks = {
        1: [torch.full((12, 12), -math.inf).triu(1).half()],
        3: [
            torch.cat(
                [
                    torch.full((n, 12), -math.inf).triu(1 + c - n)
                    for n, c in zip(ROWS, CONTEXTS, strict=True)
                ]
            ).half()
        ],
        4: [torch.zeros(128, 128).half()],
        5: [torch.zeros(128, 128).half()],
    }[kind]
    masks = [nd_to_nz(one)[None] for one in masks] if blocked else masks
    inputs = [query, *caches, TABLES, _int32(*CONTEXTS), *masks, _int32(*ROWS)]
    params = _params(maskType=kind, calcType=1)
    (y,) = run(OP, inputs, params, infer=not blocked).outputs
    first = 0
    for batch, (rows, count) in enumerate(zip(ROWS, CONTEXTS, strict=True)):
        keys, values = (_entries(cache, batch, count) for cache in caches)
        offset = count - rows

        def sees(row: int, key: int, offset: int = offset) -> bool:
            return key <= row + offset

        expected = attention(query[first : first + rows], keys, values, scale=SCALE, sees=sees)
        assert_close(y[first : first + rows], expected, floor=0.05)
        first += rows


# ---- compression, logN ----------------------------------------------------------------------


@pytest.mark.parametrize("compress", [1, 2])
def test_compressed_heads_have_their_own_tables(
    run: Run, assert_close: AssertClose, attention: Attention, compress: int
) -> None:
    query = torch.randn(2, 4, 16).half()
    caches = [torch.randn(9, BLOCK, 1, 16).half() for _ in range(2)]
    tables = torch.tensor([[8, 1], [3, 2], [5, 0], [7, 6]], dtype=torch.int32)
    contexts = [5, 8, 3, 1]
    offsets = torch.randn(9, BLOCK)
    inputs = [query, *caches, tables, _int32(*contexts)] + [offsets] * (compress == 2)
    (y,) = run(OP, inputs, _params(compressType=compress)).outputs
    for batch in range(2):
        for kv_head in range(2):
            row = 2 * batch + kv_head
            picked = [(tables[row, j // BLOCK], j % BLOCK) for j in range(contexts[row])]
            keys, values = (torch.stack([c[b, o] for b, o in picked]) for c in caches)

            def bias(head: int, _: int, key: int, picked: Any = picked) -> float:
                return float(offsets[picked[key]]) * SCALE if compress == 2 else 0.0

            heads = slice(2 * kv_head, 2 * kv_head + 2)
            expected = attention(
                query[batch : batch + 1, heads], keys, values, scale=SCALE, bias=bias
            )
            assert_close(y[batch : batch + 1, heads], expected, floor=0.05)


@pytest.mark.parametrize("dims", [3, 4])
def test_alibi_of_compressed_heads_is_that_of_their_own(
    run: Run, assert_close: AssertClose, attention: Attention, dims: int
) -> None:
    """As in the vendor's suite: heads behind one without keys move up, their masks do not."""
    query = torch.randn(2, 4, 16).half()
    caches = [torch.randn(9, BLOCK, 1, 16).half() for _ in range(2)]
    tables = torch.tensor([[8, 1], [3, 2], [5, 0], [7, 6]], dtype=torch.int32)
    contexts = [5, 0, 3, 8]
    mask = -torch.rand(2, 4, 1, 8).half()
    given = mask if dims == 4 else mask[:1, :, 0].reshape(4, 1, 8)
    inputs = [query, *caches, tables, _int32(*contexts), given]
    found = run(OP, inputs, _params(compressType=1, maskType=2))
    rows = query.reshape(4, 2, 16)
    for place, row in enumerate((0, 2, 3)):
        picked = [(tables[row, j // BLOCK], j % BLOCK) for j in range(contexts[row])]
        keys, values = (torch.stack([c[b, o] for b, o in picked]) for c in caches)
        request, head = divmod(row, 2)
        own = mask[request if dims == 4 else 0, 2 * head : 2 * head + 2, 0]

        def bias(of: int, _: int, key: int, own: Tensor = own) -> float:
            return float(own[of, key])

        expected = attention(rows[place : place + 1], keys, values, scale=SCALE, bias=bias)
        made = found.outputs[0].reshape(4, 2, 16)[place : place + 1]
        assert_close(made, expected, floor=0.05)
    assert found.undefined[0].reshape(4, 2).tolist() == [[False] * 2] * 3 + [[True] * 2]


def test_one_input_more_is_log_n(run: Run, assert_close: AssertClose, attention: Attention) -> None:
    query, caches = torch.randn(3, 4, 16).half(), _caches()
    factors = torch.tensor([0.5, 1.0, 1.5])
    (y,) = run(OP, [query, *caches, TABLES, _int32(*CONTEXTS), factors], _params()).outputs
    for batch, count in enumerate(CONTEXTS):
        keys, values = (_entries(cache, batch, count) for cache in caches)
        expected = attention(
            query[batch : batch + 1], keys, values, scale=SCALE * float(factors[batch])
        )
        assert_close(y[batch : batch + 1], expected, floor=0.05)


# ---- quantised caches -----------------------------------------------------------------------


def _bits(scale: Tensor) -> Tensor:
    return torch.tensor([struct.unpack("<I", struct.pack("<f", v))[0] for v in scale.tolist()])


@pytest.mark.parametrize("offsets", [False, True])
@pytest.mark.parametrize("as_bits", [False, True])
def test_int8_caches_are_dequantised_per_channel(
    run: Run, assert_close: AssertClose, attention: Attention, offsets: bool, as_bits: bool
) -> None:
    query = torch.randn(2, 4, 16).half()
    caches = [torch.randint(-128, 128, (7, BLOCK, 2, 16)).to(torch.int8) for _ in range(2)]
    scales = [torch.rand(32) * 0.02 for _ in range(2)]
    shifts = [torch.randint(-9, 9, (32,), dtype=torch.int32) for _ in range(2)]
    tail: list[Tensor] = []
    for scale, shift in zip(scales, shifts, strict=True):
        tail += [_bits(scale) if as_bits else scale, *([shift] if offsets else [])]
    params = _params(quantType=1, hasQuantOffset=offsets)
    (y,) = run(OP, [query, *caches, TABLES[:2], _int32(9, 4), *tail], params).outputs
    for batch, count in ((0, 9), (1, 4)):
        plain = [
            (_entries(c, batch, count).double() + (s if offsets else 0 * s).reshape(2, 16))
            * f.double().reshape(2, 16)
            for c, f, s in zip(caches, scales, shifts, strict=True)
        ]
        expected = attention(query[batch : batch + 1], *plain, scale=SCALE)
        assert_close(y[batch : batch + 1], expected, floor=0.05)


def test_compressed_rows_dequantise_with_their_head(
    run: Run, assert_close: AssertClose, attention: Attention
) -> None:
    query = torch.randn(1, 4, 16).half()
    caches = [torch.randint(-128, 128, (4, BLOCK, 1, 16)).to(torch.int8) for _ in range(2)]
    tables = torch.tensor([[3, 1], [2, 0]], dtype=torch.int32)
    scales = [torch.rand(32) * 0.02 for _ in range(2)]
    params = _params(quantType=1, compressType=1)
    (y,) = run(OP, [query, *caches, tables, _int32(6, 3), *scales], params).outputs
    for head, count in ((0, 6), (1, 3)):
        plain = [
            torch.stack([c[tables[head, j // BLOCK], j % BLOCK] for j in range(count)]).double()
            * scale.double().reshape(2, 16)[head]
            for c, scale in zip(caches, scales, strict=True)
        ]
        own = slice(2 * head, 2 * head + 2)
        assert_close(y[:, own], attention(query[:, own], *plain, scale=SCALE), floor=0.05)


@pytest.mark.parametrize("offline", [True, False])
def test_int8_queries_quantise_probabilities(run: Run, offline: bool) -> None:
    query = torch.randint(-100, 100, (2, 4, 16)).to(torch.int8)
    caches = [torch.randint(-100, 100, (7, BLOCK, 2, 16)).to(torch.int8) for _ in range(2)]
    score, value = torch.rand(4) * 1e-3, torch.rand(4) * 1e-2
    step = torch.rand(4) * 0.01 + 0.005
    tail = [score, value, *([step] if offline else [])]
    params = _params(quantType=2 if offline else 3, outDataType=27)
    (y,) = run(OP, [query, *caches, TABLES[:2], _int32(9, 4), *tail], params).outputs
    assert y.dtype == torch.bfloat16
    exact = []
    for batch, count in ((0, 9), (1, 4)):
        keys, values = (_entries(cache, batch, count) for cache in caches)
        for head in range(4):
            products = (query[batch, head].long() * keys[:, head // 2].long()).sum(-1)
            scores = [float(p) * float(score[head]) * SCALE for p in products.tolist()]
            powers = [math.exp(s - max(scores)) for s in scores]
            unit = float(step[head]) if offline else 1 / 127
            counts = [min(round(float(torch.tensor(p / unit).half())), 127) for p in powers]
            total = sum(c * v for c, v in zip(counts, values[:, head // 2].double(), strict=True))
            expected = total * float(value[head]) * unit / math.fsum(powers)
            difference = (y[batch, head].double() - expected).abs()
            # A count at a rounding boundary may differ by one, in a few elements.
            assert bool((difference <= 127 * float(value[head]) * unit).all())
            exact.append(difference <= expected.abs() * 2**-8 * 0.6 + 1e-6)
    assert float(torch.stack(exact).double().mean()) >= 0.8


# ---- properties and refusals ----------------------------------------------------------------


@settings(max_examples=25)
@given(st.permutations(range(7)), st.integers(1, 12))
def test_block_numbers_carry_no_meaning(run: Run, order: list[int], count: int) -> None:
    query, caches = torch.randn(1, 4, 16).half(), _caches()
    (base,) = run(OP, [query, *caches, TABLES[:1], _int32(count)], _params()).outputs
    moved = [torch.empty_like(cache) for cache in caches]
    for cache, other in zip(caches, moved, strict=True):
        other[order] = cache
    table = torch.tensor(order, dtype=torch.int32)[TABLES[:1].long()]
    assert torch.equal(run(OP, [query, *moved, table, _int32(count)], _params()).outputs[0], base)


def test_a_table_that_names_no_block_is_refused(run: Run) -> None:
    query, caches = torch.randn(1, 4, 16).half(), _caches(blocks=5)
    with pytest.raises(OperationError, match="cache of 5 blocks"):
        run(OP, [query, *caches, TABLES[:1], _int32(10)], _params())


def _half(*shape: int) -> TensorDesc:
    return TensorDesc(DType.FLOAT16, shape)


PLAIN = [
    _half(3, 4, 16),
    _half(7, 4, 2, 16),
    _half(7, 4, 2, 16),
    TensorDesc(DType.INT32, (3, 3)),
    TensorDesc(DType.INT32, (3,)),
]


@pytest.mark.parametrize(
    ("index", "desc", "params", "text"),
    [
        (0, _half(4, 4, 16), _params(), "4 tokens for 3"),
        (0, _half(3, 4, 32), _params(), "heads of one size"),
        (0, _half(3, 4), _params(), "3 dimensions"),
        (4, TensorDesc(DType.INT32, (2,)), _params(), "input 4"),
        (1, TensorDesc(DType.INT8, (7, 4, 2, 16)), _params(), "dtypes"),
        (0, _half(3, 4, 16), _params(maskType=1, calcType=1), "takes 7"),
        (0, _half(3, 4, 16), _params(heads=5), "multiple"),
        (0, _half(3, 4, 16), _params(maskType=9), "5 NORM_COMPRESS"),
    ],
)
def test_paged_attention_says_what_it_refuses(
    index: int, desc: TensorDesc, params: dict[str, Any], text: str
) -> None:
    descs = [*PLAIN[:index], desc, *PLAIN[index + 1 :]]
    with pytest.raises(OperationError, match=text):
        golden_ops.get(OP).infer_shape(descs, params)
