"""Graphs of ggml in the words of PyTorch."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from llama_stand_in import tensor

from ait_llm.dump.ggml.layout import Evaluated, Layout
from ait_llm.dump.ggml.library import Tensor
from ait_llm.dump.onnx.node import Named


class Graph:
    """Lays out one tensor after the other."""

    def __init__(self, whole: set[str] | None = None) -> None:
        self.layout = Layout(set() if whole is None else whole)
        self.done: list[Evaluated] = []
        self._address = 0

    def leaf(self, name: str, sizes: tuple[int, ...], **fields: Any) -> Tensor:
        made = self._made(name, "NONE", sizes, fields)
        self.layout.leaf(made)
        return made

    def add(
        self, op: str, sizes: tuple[int, ...], *sources: Tensor, rows: Any = (), **fields: Any
    ) -> Tensor:
        fields["sources"] = tuple(each.address for each in sources)
        made = self._made(fields.pop("name", op.lower()), op, sizes, fields)
        self.done += self.layout.add(made, rows)
        return made

    def _made(self, name: str, op: str, sizes: tuple[int, ...], fields: dict[str, Any]) -> Tensor:
        self._address += 1
        return tensor(name, op, sizes, address=self._address, **fields)

    def operators(self) -> list[tuple[str, tuple[Any, ...]]]:
        self.done += self.layout.finish()
        return [(each.placed.operator.target, each.placed.operator.args) for each in self.done]


def floats(*numbers: float) -> tuple[int, ...]:
    return struct.unpack(f"<{len(numbers)}i", struct.pack(f"<{len(numbers)}f", *numbers))


def hidden(graph: Graph, tokens: int, width: int = 8) -> Tensor:
    table = graph.leaf("token_embd.weight", (width, 50))
    ids = graph.leaf("inp_tokens", (tokens,), dtype="i32")
    return graph.add("GET_ROWS", (width, tokens), table, ids, name="embd")


@pytest.mark.parametrize("tokens", [5, 1])
def test_heads_keep_their_axis_also_of_one_token(tokens: int) -> None:
    graph = Graph()
    x = hidden(graph, tokens)
    split = graph.add("RESHAPE", (4, 2, tokens), x)
    graph.add("RESHAPE", (8, tokens), split)
    graph.operators()
    assert [each.value.shape for each in graph.done] == [(tokens, 8), (tokens, 2, 4), (tokens, 8)]
    assert [each.placed.operator.args[1] for each in graph.done[1:]] == [[-1, 2, 4], [-1, 8]]


@pytest.mark.parametrize("tokens", [5, 1])
def test_what_is_laid_flat_has_the_same_axes_for_one_token(tokens: int) -> None:
    graph = Graph()
    graph.add("RESHAPE", (1, 8 * tokens), hidden(graph, tokens))
    graph.operators()
    assert graph.done[-1].value.shape == (8 * tokens, 1)


def test_no_two_values_have_one_name() -> None:
    """``norm-1`` of layer 1, and the second one that is called ``norm``."""
    graph = Graph()
    x = hidden(graph, 5)
    for name in ("norm-1", "norm", "norm", "norm-1"):
        graph.add("SCALE", (8, 5), x, name=name, params=floats(2.0, 0.0))
    graph.operators()
    names = [each.value.name for each in graph.done]
    assert names[:3] == ["embd", "norm_1", "norm"]
    assert len(set(names)) == len(names) == 5


def test_a_norm_and_its_weight_are_one_node() -> None:
    graph = Graph()
    x = hidden(graph, 5)
    norm = graph.add("RMS_NORM", (8, 5), x, name="norm-0", params=floats(1e-5))
    weight = graph.leaf("blk.0.attn_norm.weight", (8,))
    graph.add("MUL", (8, 5), norm, weight, name="attn_norm-0")
    (_, (target, args)) = graph.operators()
    assert target == "aten.rms_norm.default"
    assert args[:3] == (Named("embd"), [8], Named("blk.0.attn_norm.weight"))
    assert args[3] == pytest.approx(1e-5)
    assert graph.done[-1].placed.name == "attn_norm_0"
    assert graph.done[-1].placed.module == "model.layers.0.input_layernorm"


def test_a_layer_norm_takes_weight_and_bias() -> None:
    graph = Graph()
    norm = graph.add("NORM", (8, 5), hidden(graph, 5), params=floats(1e-5))
    scaled = graph.add("MUL", (8, 5), norm, graph.leaf("n.weight", (8,)))
    graph.add("ADD", (8, 5), scaled, graph.leaf("n.bias", (8,)))
    (_, (target, args)) = graph.operators()
    assert target == "aten.layer_norm.default"
    assert args[2:4] == (Named("n.weight"), Named("n.bias"))


def test_a_product_with_another_value_is_no_part_of_a_norm() -> None:
    graph = Graph()
    x = hidden(graph, 5)
    norm = graph.add("RMS_NORM", (8, 5), x, params=floats(1e-5))
    graph.add("MUL", (8, 5), norm, x)
    targets = [target for target, _ in graph.operators()]
    assert targets[1:] == ["aten.rms_norm.default", "aten.mul.Tensor"]


@pytest.mark.parametrize(
    ("dtype", "target"),
    [("f32", "aten.linear.default"), ("f16", "ait_ggml.linear.default"),
     ("q4_0", "ggml.linear.default")],
)  # fmt: skip
def test_projections_say_what_their_kernel_rounds(dtype: str, target: str) -> None:
    graph = Graph()
    weight = graph.leaf("blk.0.attn_q.weight", (8, 6), dtype=dtype)
    graph.add("MUL_MAT", (6, 5), weight, hidden(graph, 5), name="Qcur-0")
    (_, found) = graph.operators()
    assert found == (target, (Named("embd"), Named("blk.0.attn_q.weight")))
    assert graph.done[-1].value.shape == (5, 6)


def test_what_reads_a_cache_reads_what_was_written_to_it() -> None:
    graph = Graph()
    cache = graph.leaf("cache_k_l0", (8, 16))
    places = graph.leaf("k_idxs", (5,), dtype="i64")
    view = graph.add(
        "SET_ROWS", (8, 16), hidden(graph, 5), places, cache, name="cache (view)",
        root=cache.address,
    )  # fmt: skip
    graph.add("VIEW", (4, 2, 16), cache, root=cache.address, name="k")
    (_, (target, args), (_, read)) = graph.operators()
    assert target == "ait_ggml.set_rows.default"
    assert args == (Named("cache_k_l0"), Named("k_idxs"), Named("embd"))
    assert read[0] == Named("cache_view")
    assert view.op == "SET_ROWS"


def test_a_view_of_some_elements_says_which() -> None:
    graph = Graph()
    cache = graph.leaf("cache_v_l0", (8, 16), dtype="f16", strides=(2, 16, 256, 256))
    graph.add(
        "VIEW", (4, 2, 3), cache, dtype="f16", strides=(32, 8, 2, 256), root=cache.address, offset=4
    )
    ((target, args),) = graph.operators()
    assert target == "ait_ggml.strided.default"
    assert args == (Named("cache_v_l0"), [3, 2, 4], [1, 4, 16], 2)


@pytest.mark.parametrize(
    ("rows", "target"),
    [([0, 1, 2], "aten.clone.default"), ([2], "aten.slice.Tensor"),
     ([0, 2], "ait_ggml.get_rows.default")],
)  # fmt: skip
def test_rows_that_are_wanted_are_told_by_what_they_are(rows: list[int], target: str) -> None:
    graph = Graph()
    ids = graph.leaf("out_ids", (len(rows),), dtype="i32")
    graph.add("GET_ROWS", (8, len(rows)), hidden(graph, 3), ids, rows=rows)
    assert graph.operators()[-1][0] == target


def test_one_row_of_one_is_what_it_was_in_the_evaluation_before() -> None:
    whole: set[str] = set()
    for tokens in (3, 1):
        graph = Graph(whole)
        ids = graph.leaf("out_ids", (tokens,), dtype="i32")
        x = hidden(graph, tokens)
        graph.add("GET_ROWS", (8, tokens), x, ids, name="node_65", rows=list(range(tokens)))
        assert graph.operators()[-1][0] == "aten.clone.default"


def test_axes_are_ordered_as_torch_counts_them() -> None:
    graph = Graph()
    split = graph.add("RESHAPE", (4, 2, 5), hidden(graph, 5))
    graph.add("PERMUTE", (4, 5, 2), split, params=(0, 2, 1, 3))
    assert graph.operators()[-1] == ("aten.permute.default", (Named("reshape"), [1, 0, 2]))
    assert graph.done[-1].value.shape == (2, 5, 4)


def test_rotary_positions_have_the_numbers_of_their_definition() -> None:
    graph = Graph()
    positions = graph.leaf("inp_pos", (5,), dtype="i32")
    params = (0, 4, 2, 0, 64, *floats(10000.0, 0.5, 0.0, 1.0, 32.0, 1.0))
    graph.add("ROPE", (4, 2, 5), graph.leaf("q", (4, 2, 5)), positions, params=params)
    operator = (graph.operators() and graph.done[-1].placed.operator) or None
    assert operator is not None
    assert operator.target == "ait_ggml.rope.default"
    assert operator.options == {
        "dims": 4, "neox": True, "base": 10000.0, "scale": 0.5, "factor": 1.0,
    }  # fmt: skip


def test_what_is_not_known_keeps_its_name_and_numbers() -> None:
    graph = Graph()
    graph.add("POOL_1D", (8, 5), hidden(graph, 5), params=(3, 0, 2))
    assert graph.operators()[-1] == ("ggml.POOL_1D.default", (Named("embd"),))
    assert graph.done[-1].placed.operator.options == {"param_0": 3, "param_2": 2}


def test_names_are_those_of_llama_cpp_once_each() -> None:
    graph = Graph()
    x = hidden(graph, 5)
    graph.add("SILU", (8, 5), x, name="Qcur-0 (view)")
    graph.add("SILU", (8, 5), x, name="Qcur-0 (view)")
    graph.operators()
    assert [each.placed.name for each in graph.done[1:]] == ["Qcur_0_view", "Qcur_0_view_1"]


@pytest.mark.parametrize("tokens", [5, 1])
def test_experts_are_chosen_and_weighed_with_axes_for_tokens(tokens: int) -> None:
    graph = Graph()
    probs = graph.add("SOFT_MAX", (4, tokens), hidden(graph, tokens, 4), params=floats(1.0, 0.0))
    order = graph.add("ARGSORT", (4, tokens), probs, params=(1,))
    strides = (4, 16, 16 * tokens, 16 * tokens)
    chosen = graph.add("VIEW", (2, tokens), order, dtype="i32", strides=strides)
    split = graph.add("RESHAPE", (1, 4, tokens), probs)
    weights = graph.add("GET_ROWS", (1, 2, tokens), split, chosen, rows=[0, 1] * tokens)
    total = graph.add("SUM_ROWS", (1, tokens), graph.add("RESHAPE", (2, tokens), weights))
    graph.add("CLAMP", (1, tokens), total, params=floats(0.5, float("inf")))
    experts = graph.leaf("blk.0.ffn_up_exps.weight", (4, 6, 4))
    graph.add("MUL_MAT_ID", (6, 2, tokens), experts, hidden(graph, tokens, 4), chosen)
    found = dict(graph.operators())
    shapes = [each.value.shape for each in graph.done]
    assert shapes[3] == (tokens, 2)
    assert shapes[-1] == (tokens, 2, 6)
    assert "ait_ggml.argsort.default" in found
    assert found["aten.sum.dim_IntList"][1:] == ([-1], True)
    assert found["aten.clamp.default"][1:] == (0.5, None)
    assert len(found["ait_ggml.mul_mat_id.default"]) == 3
    assert "ait_ggml.get_rows.default" in found


def test_products_with_quantised_experts_keep_their_name() -> None:
    graph = Graph()
    x = hidden(graph, 5, 4)
    ids = graph.leaf("ids", (2, 5), dtype="i32")
    experts = graph.leaf("blk.0.ffn_up_exps.weight", (4, 6, 4), dtype="q8_0")
    graph.add("MUL_MAT_ID", (6, 2, 5), experts, x, ids)
    assert graph.operators()[-1][0] == "ggml.MUL_MAT_ID.default"
