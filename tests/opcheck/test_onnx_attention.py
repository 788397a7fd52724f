"""Attention in one node: the definition against ONNX Runtime's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ait_llm.opcheck.golden.onnx_attention import group_query_attention

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
    helper = onnx.helper
    kinds = {name: helper.np_dtype_to_tensor_dtype(each.dtype) for name, each in values.items()}
    results = ("result", "present_key", "present_value")
    node = helper.make_node(
        "GroupQueryAttention", [name if name in values else "" for name in INPUTS], results,
        domain="com.microsoft", num_heads=HEADS, kv_num_heads=GROUPS, **options,
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
