"""Attention in one node: the definition against ONNX Runtime's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from ait_llm.opcheck.golden.onnx_attention import (
    group_query_attention,
    multi_head_attention,
    rotary_embedding,
)

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
HEADS, GROUPS, WIDTH = 4, 2, 16
INPUTS = (
    "query", "key", "value", "past_key", "past_value", "seqlens_k", "total", "cos", "sin",
)  # fmt: skip


def given(tokens: int, earlier: int, *, packed: bool = False) -> dict[str, Any]:
    random = np.random.default_rng(tokens + 10 * earlier)

    def draw(*shape: int) -> Any:
        return random.standard_normal(shape, np.float32)

    parts = {
        "query": draw(1, tokens, HEADS * WIDTH),
        "key": draw(1, tokens, GROUPS * WIDTH),
        "value": draw(1, tokens, GROUPS * WIDTH),
    }
    if packed:
        parts = {"query": np.concatenate(list(parts.values()), -1)}
    angles = draw(32, WIDTH // 2)
    return {
        **parts,
        "past_key": draw(1, GROUPS, earlier, WIDTH),
        "past_value": draw(1, GROUPS, earlier, WIDTH),
        "seqlens_k": np.array([earlier + tokens - 1], np.int32),
        "total": np.array([earlier + tokens], np.int32),
        "cos": np.cos(angles),
        "sin": np.sin(angles),
    }


def of_runtime(values: dict[str, Any], **options: Any) -> list[Any]:
    heads = {"num_heads": HEADS, "kv_num_heads": GROUPS}
    results = ("result", "present_key", "present_value")
    return ran("GroupQueryAttention", INPUTS, results, values, **heads, **options)


def ran(
    kind: str, inputs: Sequence[str], results: Sequence[str], values: dict[str, Any], **options: Any
) -> list[Any]:
    """What ONNX Runtime gives for one node."""
    helper = onnx.helper
    kinds = {name: helper.np_dtype_to_tensor_dtype(each.dtype) for name, each in values.items()}
    node = helper.make_node(
        kind, [name if name in values else "" for name in inputs], results,
        domain="com.microsoft", **options,
    )  # fmt: skip
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info(name, kinds[name], each.shape)
         for name, each in values.items()],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in results],
    )  # fmt: skip
    sets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=sets, ir_version=10)
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found: list[Any] = session.run(None, values)
    return found


@pytest.mark.parametrize(
    ("tokens", "earlier", "packed", "options"),
    [
        (5, 0, False, {}),
        (5, 0, False, {"do_rotary": 1}),
        (1, 6, False, {"do_rotary": 1}),
        (5, 0, True, {"do_rotary": 1, "rotary_interleaved": 1}),
        (6, 0, False, {"local_window_size": 3}),
        (1, 6, False, {"local_window_size": 3}),
        (5, 0, False, {"softcap": 2.0, "scale": 0.7}),
    ],
)
def test_it_computes_what_onnx_runtime_does(
    tokens: int, earlier: int, packed: bool, options: dict[str, Any]
) -> None:
    values = given(tokens, earlier, packed=packed)
    args = [torch.from_numpy(values[name]) if name in values else None for name in INPUTS]
    made = group_query_attention(
        *args,  # type: ignore[arg-type]  # the first is always there
        num_heads=HEADS,
        kv_num_heads=GROUPS,
        **options,
    )
    for mine, theirs in zip(made, of_runtime(values, **options), strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs, rtol=2e-5, atol=2e-6)


def test_what_a_cache_holds_beside_tokens_is_not_computed() -> None:
    values = given(1, 6) | {"seqlens_k": np.array([4], np.int32)}
    args = [torch.from_numpy(values[name]) for name in INPUTS]
    with pytest.raises(ValueError, match="has room for more tokens"):
        group_query_attention(*args, num_heads=HEADS, kv_num_heads=GROUPS)


_MANY = (
    "query", "key", "value", "bias", "key_padding_mask", "attention_bias", "past_key", "past_value",
)  # fmt: skip


def of_many(**shapes: tuple[int, ...]) -> dict[str, Any]:
    random = np.random.default_rng(len(shapes))
    hidden = (2, 5, HEADS * WIDTH)
    shapes = {"query": hidden, "key": hidden, "value": hidden, **shapes}
    return {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}


PAST = dict.fromkeys(("past_key", "past_value"), (2, HEADS, 3, WIDTH))
MASK = {"key_padding_mask": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32)}


@pytest.mark.parametrize(
    ("shapes", "more", "options"),
    [
        ({}, {}, {}),
        ({}, {}, {"unidirectional": 1}),
        ({"bias": (3 * HEADS * WIDTH,)}, {}, {"scale": 0.3}),
        ({}, MASK, {}),
        ({}, MASK, {"mask_filter_value": -50.0}),
        ({"attention_bias": (1, HEADS, 5, 5)}, {}, {}),
        ({"attention_bias": (2, 1, 5, 5)}, MASK, {}),
        (PAST, {}, {"unidirectional": 1}),
        ({"key": (2, 7, HEADS * WIDTH), "value": (2, 7, HEADS * WIDTH)}, {}, {}),
        ({"key": (2, HEADS, 7, WIDTH), "value": (2, HEADS, 7, WIDTH)}, {}, {}),
        ({"value": (2, 5, HEADS * 8)}, {}, {}),
    ],
)
def test_many_heads_attend_as_in_onnx_runtime(
    shapes: dict[str, Any], more: dict[str, Any], options: dict[str, Any]
) -> None:
    values = of_many(**shapes) | more
    args = [torch.from_numpy(values[name]) if name in values else None for name in _MANY]
    made = multi_head_attention(*args, num_heads=HEADS, **options)  # type: ignore[arg-type]
    results = ("result", "present_key", "present_value")[: 3 if "past_key" in shapes else 1]
    theirs = ran("MultiHeadAttention", _MANY, results, values, num_heads=HEADS, **options)
    for mine, each in zip(made, theirs, strict=False):
        np.testing.assert_allclose(mine.numpy(), each, rtol=2e-5, atol=2e-6)


def test_a_mask_of_lengths_is_not_computed() -> None:
    values = [torch.from_numpy(each) for each in of_many().values()]
    with pytest.raises(ValueError, match="only a mask of all tokens"):
        multi_head_attention(*values, None, torch.tensor([5, 3]), num_heads=HEADS)


@pytest.mark.parametrize("positions", [[4], [[0, 1, 2, 3, 4], [3, 4, 5, 6, 7]]])
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((2, 5, HEADS * WIDTH), {}),
        ((2, 5, HEADS * WIDTH), {"interleaved": 1}),
        ((2, HEADS, 5, WIDTH), {}),
        ((2, 5, HEADS * WIDTH), {"num_heads": HEADS, "rotary_embedding_dim": 8}),
    ],
)
def test_positions_are_turned_as_in_onnx_runtime(
    shape: tuple[int, ...], options: dict[str, Any], positions: list[Any]
) -> None:
    angles = np.random.default_rng(3).standard_normal((16, WIDTH // 2), np.float32)
    angles = angles[:, : options.get("rotary_embedding_dim", WIDTH) // 2]
    values = {
        "input": np.random.default_rng(4).standard_normal(shape, np.float32),
        "position_ids": np.array(positions, np.int64),
        "cos_cache": np.cos(angles),
        "sin_cache": np.sin(angles),
    }
    made = rotary_embedding(*map(torch.from_numpy, values.values()), **options)
    [theirs] = ran("RotaryEmbedding", tuple(values), ("result",), values, **options)
    np.testing.assert_allclose(made.numpy(), theirs, rtol=2e-5, atol=2e-6)
