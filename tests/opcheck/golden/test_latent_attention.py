"""MultiLatentAttention and RingMLA: against attention one score at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ait_llm.core import FORMAT_FRACTAL_NZ, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.opcheck.golden import golden_ops
from ait_llm.opcheck.golden.layout import nd_to_nz
from ait_llm.opcheck.golden.support import desc_of

MLA, RING = "MultiLatentAttentionOperation", "RingMLAOperation"
HEADS, LATENT, ROPE, SIZE = 3, 32, 16, 16
SCALE = 0.2
TABLES = torch.tensor([[2, 0], [1, 3]], dtype=torch.int32)
LENGTHS = torch.tensor([20, 7], dtype=torch.int32)
PARAMS: dict[str, Any] = {"headNum": HEADS, "kvHeadNum": 1, "qkScale": SCALE, "cacheMode": 1}

Oracle = Callable[..., Tensor]


def caches(dtype: torch.dtype = torch.float16) -> tuple[Tensor, Tensor]:
    return torch.randn(4, SIZE, 1, LATENT).to(dtype), torch.randn(4, SIZE, 1, ROPE).to(dtype)


def keys_of(latent: Tensor, rope: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Joined keys and values of one sequence, entry by entry."""
    keys, values = [], []
    for position in range(int(LENGTHS[number])):
        block, entry = int(TABLES[number, position // SIZE]), position % SIZE
        keys.append(torch.cat([latent[block, entry], rope[block, entry]], dim=-1))
        values.append(latent[block, entry])
    return torch.stack(keys), torch.stack(values)


def queries(rows: int, dtype: torch.dtype = torch.float16) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, HEADS, LATENT).to(dtype), torch.randn(rows, HEADS, ROPE).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("blocked", [False, True])
def test_decode_attends_to_latent_and_rotated_keys(
    run: Any, assert_close: Any, attention: Oracle, dtype: torch.dtype, blocked: bool
) -> None:
    latent, rope = caches(dtype)
    query, rotated = queries(2, dtype)
    stored = [nd_to_nz(x[:, :, 0]) if blocked else x for x in (latent, rope)]
    params = {**PARAMS, "cacheMode": 3 if blocked else 1}
    found = run(MLA, [query, rotated, *stored, TABLES, LENGTHS], params, infer=False).outputs
    assert len(found) == 1
    for number in range(2):
        keys, values = keys_of(latent, rope, number)
        joined = torch.cat([query, rotated], dim=-1)[number : number + 1]
        assert_close(found[0][number : number + 1], attention(joined, keys, values, scale=SCALE))


def test_ring_returns_the_logarithm_of_the_sums(run: Any) -> None:
    latent, rope = caches()
    query, rotated = queries(2)
    params = {**PARAMS, "calcType": 2}
    _, lse = run(MLA, [query, rotated, latent, rope, TABLES, LENGTHS], params, infer=False).outputs
    keys, _ = keys_of(latent, rope, 1)
    joined = torch.cat([query, rotated], dim=-1)[1].double()
    expected = (joined @ keys[:, 0].double().T * SCALE).logsumexp(dim=-1)
    torch.testing.assert_close(lse[1, :, 0].double(), expected, rtol=2**-11, atol=1e-3)
    assert lse.shape == (2, HEADS, 1)
    assert lse.dtype == torch.float16


ROWS = torch.tensor([2, 3], dtype=torch.int32)


def spec_mask(kind: str) -> tuple[dict[str, Any], list[Tensor], Callable[[int, int, int], bool]]:
    """Parameters, mask tensors, and what a row of a sequence sees."""
    causal = lambda number, row, key: key <= int(LENGTHS[number] - ROWS[number]) + row  # noqa: E731
    if kind == "tensor":
        mask = torch.zeros(5, 20)
        mask[1, 4], mask[3, 2] = -10000, -10000
        hidden = {(0, 1, 4), (1, 1, 2)}
        return {"maskType": 1}, [mask.half()], lambda *place: place not in hidden
    if kind == "free":
        return {"maskType": 2}, [torch.triu(torch.ones(129, 128), 1).half() * -10000], causal
    if kind == "free for the second":
        template = torch.zeros(2, 129, 128).half()
        template[1] = torch.triu(torch.ones(129, 128), 1) * -10000
        return {"maskType": 2}, [template], lambda n, row, key: n == 0 or causal(n, row, key)
    return {"maskType": 3}, [], causal


@pytest.mark.parametrize("kind", ["tensor", "free", "free for the second", "causal"])
def test_several_rows_per_sequence_with_masks(
    run: Any, assert_close: Any, attention: Oracle, kind: str
) -> None:
    latent, rope = caches()
    query, rotated = queries(5)
    changes, masks, sees = spec_mask(kind)
    inputs = [query, rotated, latent, rope, TABLES, LENGTHS, *masks, ROWS]
    found = run(MLA, inputs, {**PARAMS, "calcType": 1, **changes}, infer=False).outputs[0]
    for number, rows in enumerate((slice(0, 2), slice(2, 5))):
        keys, values = keys_of(latent, rope, number)
        joined = torch.cat([query, rotated], dim=-1)[rows]
        expected = attention(
            joined, keys, values, scale=SCALE, sees=lambda row, key, n=number: sees(n, row, key)
        )
        assert_close(found[rows], expected)


def test_bfloat16_masks_of_ones_hide_keys(run: Any, assert_close: Any, attention: Oracle) -> None:
    latent, rope = caches(torch.bfloat16)
    query, rotated = queries(5, torch.bfloat16)
    mask = torch.zeros(5, 20, dtype=torch.bfloat16)
    mask[0, 3] = 1
    inputs = [query, rotated, latent, rope, TABLES, LENGTHS, mask, ROWS]
    found = run(MLA, inputs, {**PARAMS, "calcType": 1, "maskType": 1}, infer=False).outputs[0]
    keys, values = keys_of(latent, rope, 0)
    joined = torch.cat([query, rotated], dim=-1)[:2]
    expected = attention(
        joined, keys, values, scale=SCALE, sees=lambda row, key: (row, key) != (0, 3)
    )
    assert_close(found[:2], expected)


def test_a_zero_status_switches_the_mask_of_a_sequence_off(run: Any) -> None:
    latent, rope = caches()
    query, rotated = queries(5)
    status = torch.tensor([1, 0], dtype=torch.int32)
    inputs = [query, rotated, latent, rope, TABLES, LENGTHS]
    params = {**PARAMS, "calcType": 3}
    masked = run(MLA, [*inputs, ROWS], {**params, "maskType": 3}, infer=False).outputs[0]
    free = run(MLA, [*inputs, ROWS], params, infer=False).outputs[0]
    mixed = run(
        MLA, [*inputs, ROWS, status], {**params, "maskType": 3, "maskUseStatusType": 1}, infer=False
    ).outputs[0]
    assert torch.equal(mixed[:2], masked[:2])
    assert torch.equal(mixed[2:], free[2:])
    assert not torch.equal(masked, free)


def test_int8_latent_keys(run: Any, assert_close: Any) -> None:
    latent = torch.randint(-128, 128, (4, SIZE, 1, LATENT), dtype=torch.int8)
    rope = torch.randn(4, SIZE, 1, ROPE).half()
    query = torch.randint(-128, 128, (2, HEADS, LATENT), dtype=torch.int8)
    rotated = torch.randn(2, HEADS, ROPE).half()
    scores, values = torch.rand(HEADS) / 1e4, torch.rand(HEADS) / 100
    stored = [nd_to_nz(x[:, :, 0]) for x in (latent, rope)]
    inputs = [query, rotated, *stored, TABLES, LENGTHS, scores, values]
    params = {**PARAMS, "cacheMode": 2, "calcType": 2}
    output, lse = run(MLA, inputs, params, infer=False).outputs
    assert (output.dtype, lse.dtype) == (torch.float16, torch.float32)
    for number in range(2):
        joined, _ = keys_of(latent.double(), rope.double(), number)
        keys, turned = joined[:, 0, :LATENT], joined[:, 0, LATENT:]
        for head in range(HEADS):
            raw = keys @ query[number, head].double() * scores[head].double()
            score = (raw + turned @ rotated[number, head].double()) * SCALE
            power = torch.exp(score - score.max())
            step = power.max() / 127
            quantised = torch.round((power / step).half().double())
            mean = quantised @ keys * values[head].double() * step / power.sum()
            # One probability that rounds the other way moves the result by a step.
            tolerance = float(128 * values[head].double() * step / power.sum()) * 2
            torch.testing.assert_close(
                output[number, head].double(), mean, rtol=2**-10, atol=tolerance
            )
            assert abs(float(lse[number, head, 0]) - float(score.logsumexp(0))) < 1e-4


@pytest.mark.parametrize("padded", [False, True])
def test_prefill_reads_packed_and_padded_keys(
    run: Any, assert_close: Any, attention: Oracle, padded: bool
) -> None:
    rows, lengths, heads, kv_heads = [4, 2], [5, 2], 4, 2
    query, rotated = torch.randn(6, heads, 128).half(), torch.randn(6, heads, 64).half()
    key, rope = torch.randn(7, kv_heads, 128).half(), torch.randn(7, kv_heads, 64).half()
    value = torch.randn(7, kv_heads, 128).half()

    def stored(tensor: Tensor) -> Tensor:
        if not padded:
            return tensor
        batch = torch.zeros(2, 5, kv_heads * tensor.shape[2]).half()
        batch[0], batch[1, :2] = tensor[:5].flatten(1), tensor[5:].flatten(1)
        return batch

    counts = [torch.tensor(x, dtype=torch.int32) for x in (rows, lengths)]
    params = {"headNum": heads, "kvHeadNum": kv_heads, "qkScale": SCALE, "calcType": 4}
    params |= {"cacheMode": 1, "maskType": 3}
    inputs = [query, rotated, stored(key), stored(rope), stored(value), *counts]
    found = run(MLA, inputs, params, infer=padded).outputs[0]
    for own, keys in ((slice(0, 4), slice(0, 5)), (slice(4, 6), slice(5, 7))):
        diagonal = (keys.stop - keys.start) - (own.stop - own.start)
        expected = attention(
            torch.cat([query, rotated], dim=-1)[own],
            torch.cat([key, rope], dim=-1)[keys],
            value[keys],
            scale=SCALE,
            sees=lambda row, column, d=diagonal: column <= row + d,
        )
        assert_close(found[own], expected)


def test_prefill_window_hides_keys_that_are_too_far_back(run: Any, attention: Oracle) -> None:
    query, rotated = torch.randn(6, 2, 128).half(), torch.randn(6, 2, 64).half()
    key, rope, value = (torch.randn(6, 2, size).half() for size in (128, 64, 128))
    count = torch.tensor([6], dtype=torch.int32)
    params = {"headNum": 2, "kvHeadNum": 2, "qkScale": SCALE, "calcType": 4, "cacheMode": 1}
    params |= {"maskType": 4, "windowSize": 2}
    mask = torch.zeros(512, 512).half()
    found = run(MLA, [query, rotated, key, rope, value, count, count, mask], params).outputs[0]
    expected = attention(
        torch.cat([query, rotated], dim=-1),
        torch.cat([key, rope], dim=-1),
        value,
        scale=SCALE,
        sees=lambda row, column: row - 2 < column <= row,
    )
    torch.testing.assert_close(found.double(), expected, rtol=2**-10, atol=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kvHeadNum": 2}, "kvHeadNum is 2"),
        ({"cacheMode": 0}, "cacheMode is KVCACHE"),
        ({"maskType": 1}, "maskType SPEC needs calcType"),
        ({"calcType": 4, "maskType": 1}, "does not go with calcType PREFILL"),
        ({"calcType": 4, "maskType": 4}, "a windowSize"),
    ],
)
def test_parameters_that_exclude_each_other_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(OperationError, match=message):
        golden_ops.get(MLA).infer_shape([], {**PARAMS, **changes})


def test_shapes_of_a_blocked_int8_cache_are_inferred() -> None:
    heads = 8
    inputs = [
        torch.zeros(4, heads, 512, dtype=torch.int8),
        torch.zeros(4, heads, 64, dtype=torch.bfloat16),
        torch.zeros(2, 16, 128, 32, dtype=torch.int8),
        torch.zeros(2, 4, 128, 16, dtype=torch.bfloat16),
        torch.zeros(4, 2, dtype=torch.int32),
        torch.zeros(4, dtype=torch.int32),
        *(torch.zeros(heads) for _ in range(2)),
    ]
    descs = [
        desc_of(tensor, FORMAT_FRACTAL_NZ if i in (2, 3) else 2) for i, tensor in enumerate(inputs)
    ]
    params = {**PARAMS, "headNum": heads, "cacheMode": 2, "calcType": 2}
    output, lse = golden_ops.get(MLA).infer_shape(descs, params)
    assert output == TensorDesc(desc_of(inputs[1]).dtype, (4, heads, 512))
    assert lse == TensorDesc(desc_of(torch.zeros(1)).dtype, (4, heads, 1))


def ring_inputs(rows: int, keys: int, heads: int = 2) -> list[Tensor]:
    shapes = [(rows, heads, 128), (rows, heads, 64), (keys, 1, 128), (keys, 1, 64), (keys, 1, 128)]
    return [(torch.randn(*shape) / 3).half() for shape in shapes]


RING_PARAMS = {"headNum": 2, "kvHeadNum": 1, "qkScale": SCALE, "maskType": 0}
MASK = torch.triu(torch.ones(512, 512), 1).half() * -10000


def test_first_ring_step_gives_output_and_logarithms(run: Any, attention: Oracle) -> None:
    inputs = ring_inputs(4, 6)
    lengths = torch.tensor([[4], [6]], dtype=torch.int32)
    params = {**RING_PARAMS, "calcType": 1, "maskType": 1}
    output, lse = run(RING, [*inputs, MASK, lengths], params).outputs
    query, key = torch.cat(inputs[:2], dim=-1), torch.cat(inputs[2:4], dim=-1)
    expected = attention(query, key, inputs[4], scale=SCALE, sees=lambda row, column: column <= row)
    torch.testing.assert_close(output.double(), expected, rtol=2**-10, atol=1e-3)
    scores = (query[3].double() @ key[:4, 0].double().T * SCALE).logsumexp(-1)
    torch.testing.assert_close(lse[:, 3].double(), scores, rtol=1e-6, atol=1e-6)


def test_ring_steps_add_up_to_attention_over_all_keys(run: Any, attention: Oracle) -> None:
    inputs = ring_inputs(5, 9)
    query, key, value = torch.cat(inputs[:2], -1), torch.cat(inputs[2:4], -1), inputs[4]
    first = torch.tensor([[2, 3], [4, 0]], dtype=torch.int32)
    second = torch.tensor([[2, 3], [2, 3]], dtype=torch.int32)
    parts = [tensor[:4] for tensor in inputs[2:]], [tensor[4:] for tensor in inputs[2:]]
    params = {**RING_PARAMS, "calcType": 1}
    done = run(RING, [*inputs[:2], *parts[0], MASK, first], params).outputs
    assert torch.equal(done[1][:, 2:], torch.zeros(2, 3))  # a sequence without keys
    previous = [done[0], done[1].clone()]
    previous[1][:, 2:] = -math.inf
    params = {**RING_PARAMS, "calcType": 0}
    output, _ = run(RING, [*inputs[:2], *parts[1], MASK, second, *previous], params).outputs
    rows = slice(0, 2)
    chosen = torch.tensor([0, 1, 2, 3, 4, 5])
    expected = attention(query[rows], key[chosen], value[chosen], scale=SCALE)
    torch.testing.assert_close(output[rows].double(), expected, rtol=2**-9, atol=2e-3)
    expected = attention(query[2:], key[6:], value[6:], scale=SCALE)
    torch.testing.assert_close(output[2:].double(), expected, rtol=2**-9, atol=2e-3)


def test_a_ring_step_without_keys_keeps_the_previous_output(run: Any) -> None:
    inputs = ring_inputs(3, 2)
    lengths = torch.tensor([[3], [0]], dtype=torch.int32)
    previous = [torch.randn(3, 2, 128).half(), torch.randn(2, 3)]
    output, lse = run(RING, [*inputs, MASK, lengths, *previous], RING_PARAMS).outputs
    assert torch.equal(output, previous[0])
    assert torch.equal(lse, torch.zeros(2, 3))


def test_a_ring_step_without_mask_takes_an_empty_one(run: Any) -> None:
    inputs, lengths = ring_inputs(3, 3), torch.tensor([3], dtype=torch.int32)
    params = {**RING_PARAMS, "calcType": 1}
    found = [run(RING, [*inputs, mask, lengths], params).outputs for mask in (MASK, torch.empty(0))]
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_ring_shapes_follow_the_tensors_and_other_heads_are_refused_when_it_runs(run: Any) -> None:
    inputs = [*ring_inputs(3, 3), MASK, torch.tensor([3], dtype=torch.int32)]
    params = {**RING_PARAMS, "headNum": 10, "kvHeadNum": 10, "calcType": 1}
    shapes = golden_ops.get(RING).infer_shape([desc_of(tensor) for tensor in inputs], params)
    assert [desc.shape for desc in shapes] == [(3, 2, 128), (2, 3)]
    with pytest.raises(OperationError, match="; the heads are 10 and 10"):
        run(RING, inputs, params)
