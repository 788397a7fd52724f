"""Fused attention, quantised products and cache writes of the graph engine, from one dump."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine_operators import Array, Attribute, engine_dump

from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.pipeline import opcheck

B, N, NK, S, D = 2, 4, 2, 6, 16
SCALE = 0.25


def judged(folder: Path, *args: Any, **more: Any) -> tuple[list[Verdict], str]:
    """Verdicts of the results, and why those were left out that were."""
    report = opcheck(engine_dump(folder, *args, **more))
    return [item.verdict for item in report.items], " ".join(
        [*(item.reason for item in report.items), *map(str, report.problems)]
    )


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float16)


def attended(query: Array, key: Array, value: Array, seen: Array | None = None) -> Array:
    """Torch's attention of ``[B, N, S, D]`` in float64, rounded once."""
    wide = [torch.from_numpy(each).double() for each in (query, key, value)]
    mask = None if seen is None else torch.from_numpy(seen)
    found = torch.nn.functional.scaled_dot_product_attention(
        *wide, attn_mask=mask, scale=SCALE, enable_gqa=True
    )
    return found.numpy().astype(np.float16)


def joined(heads: Array) -> Array:
    """``[B, N, S, D]`` as ``[B, S, N D]``."""
    return np.ascontiguousarray(heads.transpose(0, 2, 1, 3).reshape(len(heads), heads.shape[2], -1))


QUERY, KEY, VALUE = (
    drawn(B, N, S, D, seed=1),
    drawn(B, NK, S, D, seed=2),
    drawn(B, NK, S, D, seed=3),
)
CAUSAL = np.tril(np.ones((S, S), np.bool_))
FUSED = "FusedInferAttentionScore"
ATTRIBUTES: dict[str, Attribute] = {"num_heads": N, "scale": SCALE, "num_key_value_heads": NK}


def wrong(result: Array) -> Array:
    """One head is another one's."""
    found = result.copy()
    found[..., :D] = result[..., D : 2 * D]
    return found


@pytest.mark.parametrize(
    ("type", "scale", "key"),
    [
        (FUSED, "scale", "key0"),
        ("PromptFlashAttention", "scale_value", "key"),
        ("IncreFlashAttention", "scale_value", "key0"),
    ],
)
def test_attention_is_judged_by_its_definition(
    type: str, scale: str, key: str, tmp_path: Path
) -> None:
    tokens = 1 if type == "IncreFlashAttention" else S
    query = QUERY[:, :, :tokens]
    inputs = {
        "query": joined(query),
        key: joined(KEY),
        key.replace("key", "value"): joined(VALUE),
        "pse_shift": None,
        "atten_mask": None,
    }
    attributes: dict[str, Attribute] = {"num_heads": N, scale: SCALE, "input_layout": "BSH"}
    right = joined(attended(query, KEY, VALUE))
    assert judged(tmp_path / "right", type, inputs, attributes, [right])[0] == [Verdict.PASS]
    found, reason = judged(tmp_path / "wrong", type, inputs, attributes, [wrong(right)])
    assert found == [Verdict.FAIL], reason


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_a_causal_mask_hides_what_its_mode_says(mode: int, tmp_path: Path) -> None:
    mask = ~(CAUSAL if mode in (0, 1) else np.tril(np.ones((2048, 2048), np.bool_)))
    inputs = {"query": QUERY, "key0": KEY, "value0": VALUE, "atten_mask": mask[None]}
    attributes = {**ATTRIBUTES, "input_layout": "BNSD", "sparse_mode": mode}
    right = attended(QUERY, KEY, VALUE, CAUSAL)
    assert judged(tmp_path / "a", FUSED, inputs, attributes, [right])[0] == [Verdict.PASS]
    other = attended(QUERY, KEY, VALUE)
    assert judged(tmp_path / "b", FUSED, inputs, attributes, [other])[0] == [Verdict.FAIL]


def test_a_band_is_counted_from_the_last_key(tmp_path: Path) -> None:
    """Three tokens of six keys; each sees its own key, two before it and none behind it."""
    query = QUERY[:, :, :3]
    inputs = {
        "query": query,
        "key0": KEY,
        "value0": VALUE,
        "atten_mask": ~np.tril(np.ones((1, 2048, 2048), np.bool_)),
    }
    band: dict[str, Attribute] = {"sparse_mode": 4, "pre_tokens": 2, "next_tokens": 0}
    attributes = {**ATTRIBUTES, "input_layout": "BNSD", **band}
    seen = np.zeros((3, S), np.bool_)
    for token in range(3):
        seen[token, token + 1 : token + 4] = True
    right = attended(query, KEY, VALUE, seen)
    assert judged(tmp_path / "a", FUSED, inputs, attributes, [right])[0] == [Verdict.PASS]
    other = attended(query, KEY, VALUE, np.tril(np.ones((3, S), np.bool_), S - 3))
    assert judged(tmp_path / "b", FUSED, inputs, attributes, [other])[0] == [Verdict.FAIL]


@pytest.mark.parametrize("paged", [True, False])
@pytest.mark.parametrize("back", ["TND", "TND_NTD"])
def test_requests_that_are_packed_are_judged_each_by_itself(
    paged: bool, back: str, tmp_path: Path
) -> None:
    """Two requests, of four tokens with six keys and of two with three, all causal."""
    tokens, lengths, size = [4, 2], [6, 3], 3
    query = np.concatenate([QUERY[row, :, :count] for row, count in enumerate(tokens)], 1)
    rights, keys, values = [], [], []
    pages, more = np.zeros((2, 5, size, NK * D), np.float16), np.int32([[4, 1], [2, 0]])
    for row, (count, length) in enumerate(zip(tokens, lengths, strict=True)):
        key, value = (each[row : row + 1, :, :length] for each in (KEY, VALUE))
        seen = np.tril(np.ones((count, length), np.bool_), length - count)
        rights.append(attended(QUERY[row : row + 1, :, :count], key, value, seen)[0])
        keys.append(key[0].transpose(1, 0, 2))
        values.append(value[0].transpose(1, 0, 2))
        for at in range(length):
            pages[0, more[row, at // size], at % size] = joined(key)[0, at]
            pages[1, more[row, at // size], at % size] = joined(value)[0, at]
    packed = [np.ascontiguousarray(np.concatenate(each)) for each in (keys, values)]
    inputs = {
        "query": np.ascontiguousarray(query.transpose(1, 0, 2)),
        "key0": pages[0] if paged else packed[0],
        "value0": pages[1] if paged else packed[1],
        "atten_mask": ~np.tril(np.ones((2048, 2048), np.bool_)),
        "actual_seq_lengths": np.int64(np.cumsum(tokens)),
        "actual_seq_lengths_kv": np.int64(lengths if paged else np.cumsum(lengths)),
    } | ({"block_table": more} if paged else {})
    attributes = {**ATTRIBUTES, "input_layout": back, "sparse_mode": 3}
    right = np.concatenate(rights, 1)
    right = np.ascontiguousarray(right if back.endswith("NTD") else right.transpose(1, 0, 2))
    found, reason = judged(tmp_path / "a", FUSED, inputs, attributes, [right])
    assert found == [Verdict.PASS], reason
    other = right.copy()
    other[..., -1, :] *= 1.1
    assert judged(tmp_path / "b", FUSED, inputs, attributes, [other])[0] == [Verdict.FAIL]


def test_results_may_come_in_another_layout(tmp_path: Path) -> None:
    inputs = {"query": QUERY, "key0": KEY, "value0": VALUE}
    right = np.ascontiguousarray(attended(QUERY, KEY, VALUE).transpose(0, 2, 1, 3))
    attributes = {**ATTRIBUTES, "input_layout": "BNSD_BSND"}
    assert judged(tmp_path, FUSED, inputs, attributes, [right])[0] == [Verdict.PASS]


def test_keys_of_a_paged_cache_are_gathered(tmp_path: Path) -> None:
    lengths, size = [5, 3], 2
    pages = np.full((8, size, NK * D), np.nan, np.float16)
    values = pages.copy()
    table = np.int32([[6, 1, 4], [2, 7, 0]])
    seen = np.zeros((B, 1, 1, S), np.bool_)
    for row, length in enumerate(lengths):
        seen[row, ..., :length] = True
        for at in range(length):
            page = table[row, at // size]
            pages[page, at % size] = joined(KEY)[row, at]
            values[page, at % size] = joined(VALUE)[row, at]
    inputs = {
        "query": joined(QUERY[:, :, :1]),
        "key0": pages,
        "value0": values,
        "actual_seq_lengths_kv": np.int64(lengths),
        "block_table": table,
    }
    attributes = {**ATTRIBUTES, "input_layout": "BSH", "block_size": size}
    right = joined(attended(QUERY[:, :, :1], KEY, VALUE, seen))
    assert judged(tmp_path / "a", FUSED, inputs, attributes, [right])[0] == [Verdict.PASS]
    other = joined(attended(QUERY[:, :, :1], KEY, VALUE))
    assert judged(tmp_path / "b", FUSED, inputs, attributes, [other])[0] == [Verdict.FAIL]


def test_rotated_elements_beside_latent_ones_count(tmp_path: Path) -> None:
    turned = drawn(B, N, S, 8, seed=5), drawn(B, 1, S, 8, seed=6)
    query, latent = QUERY, KEY[:, :1]
    inputs = {
        "query": query,
        "key0": latent,
        "value0": latent,
        "query_rope": turned[0],
        "key_rope": turned[1],
    }
    whole = [np.concatenate(each, -1) for each in ((query, turned[0]), (latent, turned[1]))]
    right = attended(whole[0], whole[1], latent)
    attributes = {**ATTRIBUTES, "input_layout": "BNSD"}
    assert judged(tmp_path, FUSED, inputs, attributes, [right])[0] == [Verdict.PASS]


def test_attention_of_training_is_judged_without_its_statistics(tmp_path: Path) -> None:
    names = ("query", "key", "value", "real_shift", "drop_mask", "padding_mask", "atten_mask")
    inputs = dict.fromkeys(names) | {"query": QUERY, "key": KEY, "value": VALUE}
    attributes: dict[str, Attribute] = {
        "head_num": N, "scale_value": SCALE, "input_layout": "BNSD", "keep_prob": 1.0
    }  # fmt: skip
    statistics = np.zeros((B, N, S, 8), np.float32)
    made = [statistics, statistics, np.zeros((1,), np.float16), attended(QUERY, KEY, VALUE)]
    found, reason = judged(tmp_path, "FlashAttentionScore", inputs, attributes, made)
    assert found == [Verdict.PASS], reason


@pytest.mark.parametrize(
    ("more", "attributes", "reason"),
    [
        ({"dequant_scale1": np.float32([1])}, {}, "it is fed dequant_scale1"),
        ({"atten_mask": drawn(1, 1, S, S)}, {}, "how its mask of real numbers hides keys"),
        ({"atten_mask": ~CAUSAL[None]}, {"sparse_mode": 5}, "sparse_mode 5"),
        ({"atten_mask": ~CAUSAL[None]}, {"pre_tokens": 1}, "outside of its band"),
        ({"actual_seq_lengths": np.int64([S, 2])}, {}, "fewer tokens"),
        ({"atten_mask": np.ones((1, S, S), np.bool_)}, {}, "sees no key"),
        ({}, {"input_layout": "TND"}, "where its packed requests end"),
    ],
)
def test_what_prototypes_leave_open_is_not_judged(
    more: dict[str, Array], attributes: dict[str, Attribute], reason: str, tmp_path: Path
) -> None:
    inputs = {"query": QUERY, "key0": KEY, "value0": VALUE, **more}
    stated = {**ATTRIBUTES, "input_layout": "BNSD", **attributes}
    right = attended(QUERY, KEY, VALUE)
    found, told = judged(tmp_path, FUSED, inputs, stated, [right])
    assert Verdict.FAIL not in found
    assert Verdict.PASS not in found
    assert reason in told


WHOLE = {
    "x1": np.random.default_rng(7).integers(-128, 128, (5, 64), dtype=np.int8),
    "x2": np.random.default_rng(8).integers(-128, 128, (64, 12), dtype=np.int8),
}
SCALES = np.random.default_rng(9).uniform(1e-4, 1e-3, 12).astype(np.float32)
PER_TOKEN = np.random.default_rng(10).uniform(0.5, 2, 5).astype(np.float32)
TOTAL = WHOLE["x1"].astype(np.float64) @ WHOLE["x2"].astype(np.float64)


def packed(scales: Array) -> Array:
    """Scales with the bits that a device keeps of them."""
    return (scales.view(np.uint32) & 0xFFFFE000).astype(np.uint64)


@pytest.mark.parametrize("is_packed", [True, False])
@pytest.mark.parametrize("turned", [True, False])
def test_a_quantised_product_is_judged(is_packed: bool, turned: bool, tmp_path: Path) -> None:
    bias = np.arange(-600, 600, 100, dtype=np.int32)
    inputs = {
        "x1": WHOLE["x1"],
        "x2": np.ascontiguousarray(WHOLE["x2"].T) if turned else WHOLE["x2"],
        "scale": packed(SCALES) if is_packed else SCALES,
        "offset": None,
        "bias": bias,
        "pertoken_scale": None if is_packed else PER_TOKEN,
    }
    scales = packed(SCALES).astype(np.uint32).view(np.float32) if is_packed else SCALES
    real = (TOTAL + bias) * scales * (1 if is_packed else PER_TOKEN[:, None])
    right = real.astype(np.float16)
    attributes: dict[str, Attribute] = {"dtype": 1, "transpose_x2": turned}
    name = "QuantBatchMatmulV3"
    found, reason = judged(tmp_path / "a", name, inputs, attributes, [right])
    assert found == [Verdict.PASS], reason
    other = (real * 1.02).astype(np.float16)
    assert judged(tmp_path / "b", name, inputs, attributes, [other])[0] == [Verdict.FAIL]


@pytest.mark.parametrize("group", [0, 32])
@pytest.mark.parametrize("turned", [True, False])
def test_a_product_with_a_quantised_weight_is_judged(
    group: int, turned: bool, tmp_path: Path
) -> None:
    x = drawn(5, 64, seed=11)
    rng = np.random.default_rng(12)
    shape = (2, 12) if group else (1, 12)
    scale = rng.uniform(1e-3, 1e-2, shape).astype(np.float16)
    offset = rng.integers(-20, 20, shape).astype(np.float16)
    wide = [np.repeat(each.astype(np.float64), 64 // shape[0], 0) for each in (scale, offset)]
    real = (WHOLE["x2"] + wide[1]) * wide[0]
    bias = drawn(12, seed=13)
    inputs = {
        "x": x,
        "weight": WHOLE["x2"],
        "antiquant_scale": scale,
        "antiquant_offset": offset,
    }
    if turned:
        inputs |= {
            name: np.ascontiguousarray(inputs[name].T)
            for name in ("weight", "antiquant_scale", "antiquant_offset")
        }
    inputs |= {"quant_scale": None, "quant_offset": None, "bias": bias}
    right = (x.astype(np.float64) @ real + bias).astype(np.float16)
    attributes: dict[str, Attribute] = {
        "transpose_weight": turned, "antiquant_group_size": group
    }  # fmt: skip
    name = "WeightQuantBatchMatmulV2"
    found, reason = judged(tmp_path / "a", name, inputs, attributes, [right])
    assert found == [Verdict.PASS], reason
    other = (x.astype(np.float64) @ (WHOLE["x2"] * wide[0]) + bias).astype(np.float16)
    assert judged(tmp_path / "b", name, inputs, attributes, [other])[0] == [Verdict.FAIL]


@pytest.mark.parametrize(
    "more",
    [{"offset": np.float32([3])}, {"pertoken_scale": np.ones((5,), np.float16)[:0]}],
    ids=["offset", "int32"],
)
def test_products_that_quantise_again_are_not_judged(more: Any, tmp_path: Path) -> None:
    inputs = {**WHOLE, "scale": SCALES, **more}
    made = TOTAL.astype(np.int32) if "offset" not in more else (TOTAL / 1e4).astype(np.float16)
    found, _ = judged(tmp_path, "QuantBatchMatmulV3", inputs, {"dtype": 3}, [made])
    assert Verdict.FAIL not in found
    assert Verdict.PASS not in found


@pytest.mark.parametrize("in_place", [True, False])
def test_what_is_written_to_a_cache_is_judged(in_place: bool, tmp_path: Path) -> None:
    before, new = drawn(B, N, 8, D, seed=14), drawn(B, N, 2, D, seed=15)
    after = before.copy()
    for row, start in enumerate((3, 0)):
        after[row, :, start : start + 2] = new[row]
    other = after.copy()
    other[1, 2, 1] = before[1, 2, 1]  # one row was left out
    attributes: dict[str, Attribute] = {"reduce": "update", "axis": -2}
    for made, verdict in ((after, Verdict.PASS), (other, Verdict.FAIL)):
        inputs = {
            "var": made if in_place else before,
            "indices": np.int64([3, 0]),
            "updates": new,
        }
        found, reason = judged(
            tmp_path / verdict.name, "Scatter", inputs, attributes, [made], in_place=in_place
        )
        assert found == [verdict], reason


@pytest.mark.parametrize(
    ("type", "places"),
    [("ScatterUpdate", np.int32([4, 1])), ("ScatterNdUpdate", np.int32([[4], [1]]))],
)
def test_rows_that_are_written_are_judged(type: str, places: Array, tmp_path: Path) -> None:
    before, new = drawn(6, D, seed=16), drawn(2, D, seed=17)
    after = before.copy()
    after[[4, 1]] = new
    inputs = {"var": before, "indices": places, "updates": new}
    assert judged(tmp_path / "a", type, inputs, {}, [after])[0] == [Verdict.PASS]
    assert judged(tmp_path / "b", type, inputs, {}, [before])[0] == [Verdict.FAIL]


def test_rows_that_are_written_twice_are_not_judged(tmp_path: Path) -> None:
    before, new = drawn(6, D, seed=16), drawn(2, D, seed=17)
    inputs = {"var": before, "indices": np.int32([4, 4]), "updates": new}
    found, reason = judged(tmp_path, "ScatterUpdate", inputs, {}, [before])
    assert Verdict.FAIL not in found
    assert "writes twice to one place" in reason
