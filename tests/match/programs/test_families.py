"""Models of the field, captured on both sides, matched without a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from ait_llm.match.model import Match
from ait_llm.match.views import Part, describe
from tests.match.programs.checking import (
    Found,
    find,
    matched,
    matches_of,
    outputs,
    unmatched_of,
    wrong_numbers,
)
from tests.match.programs.families import (
    FAMILIES,
    Runs,
    capture,
    capture_atb,
    capture_torch,
    random_weights,
)

# Operation of the ATB side within a layer, by module; {a} is the layer's own number there.
_LLAMA_LAYER = {
    "": "Prefill_layer_{a}",
    ".input_layernorm": "RmsNormOperation_{a}_0_0",
    ".self_attn": "Attention_{a}_0",
    ".self_attn.q_proj": "LinearOperation_{a}_0_1",
    ".self_attn.k_proj": "LinearOperation_{a}_0_1",
    ".self_attn.v_proj": "LinearOperation_{a}_0_1",
    ".self_attn.o_proj": "LinearOperation_{a}_0_5",
    ".post_attention_layernorm": "RmsNormOperation_{a}_2_0",
    ".mlp": "Mlp_{a}_2",
    ".mlp.gate_proj": "LinearOperation_{a}_2_1",
    ".mlp.up_proj": "LinearOperation_{a}_2_1",
    ".mlp.down_proj": "LinearOperation_{a}_2_3",
}
_QWEN3 = _LLAMA_LAYER | {
    ".self_attn.q_norm": "RmsNormOperation_{a}_0_3",
    ".self_attn.k_norm": "RmsNormOperation_{a}_0_4",
    ".self_attn.o_proj": "LinearOperation_{a}_0_7",
}
_UNPACKED = _LLAMA_LAYER | {
    ".self_attn.q_proj": "LinearOperation_{a}_0_1",
    ".self_attn.k_proj": "LinearOperation_{a}_0_2",
    ".self_attn.v_proj": "LinearOperation_{a}_0_3",
    ".self_attn.q_norm": "RmsNormOperation_{a}_0_4",
    ".self_attn.k_norm": "RmsNormOperation_{a}_0_5",
    ".self_attn.o_proj": "LinearOperation_{a}_0_8",
    ".mlp.up_proj": "LinearOperation_{a}_2_2",
    ".mlp.act_fn": "ActivationOperation_{a}_2_3",
    ".mlp.down_proj": "LinearOperation_{a}_2_5",
}
_NO_MLP = {name: op for name, op in _LLAMA_LAYER.items() if not name.startswith(".mlp.")}
_MIXTRAL = _NO_MLP | {
    ".mlp.gate": "LinearOperation_{a}_2_1",
    ".mlp.experts": "MoeTokenUnpermuteOperation_{a}_2_7",
}
_PACKED_MLP = _NO_MLP | {
    ".mlp.gate_up_proj": "LinearOperation_{a}_2_1",
    ".mlp.down_proj": "LinearOperation_{a}_2_3",
}
_PHI3 = {
    name: op
    for name, op in _PACKED_MLP.items()
    if name.split(".")[-1] not in ("q_proj", "k_proj", "v_proj")
}
_PHI3[".self_attn.qkv_proj"] = "LinearOperation_{a}_0_1"
_NEOX = {
    "": "Prefill_layer_{a}",
    ".input_layernorm": "LayerNormOperation_{a}_0_0",
    ".attention": "Attention_{a}_0",
    ".attention.query_key_value": "LinearOperation_{a}_0_1",
    ".attention.dense": "LinearOperation_{a}_0_5",
    ".post_attention_layernorm": "LayerNormOperation_{a}_1_0",
    ".mlp": "Mlp_{a}_1",
    ".mlp.dense_h_to_4h": "LinearOperation_{a}_1_1",
    ".mlp.act": "ActivationOperation_{a}_1_2",
    ".mlp.dense_4h_to_h": "LinearOperation_{a}_1_3",
}
_PHI = {
    "": "Prefill_layer_{a}",
    ".input_layernorm": "LayerNormOperation_{a}_0",
    ".self_attn": "Attention_{a}_1",
    ".self_attn.q_proj": "LinearOperation_{a}_1_0",
    ".self_attn.k_proj": "LinearOperation_{a}_1_0",
    ".self_attn.v_proj": "LinearOperation_{a}_1_0",
    ".self_attn.dense": "LinearOperation_{a}_1_4",
    ".mlp": "Mlp_{a}_2",
    ".mlp.fc1": "LinearOperation_{a}_2_0",
    ".mlp.activation_fn": "ActivationOperation_{a}_2_1",
    ".mlp.fc2": "LinearOperation_{a}_2_2",
}
_ENDS = {
    "root.model.embed_tokens": "GatherOperation_0_0",
    "root.model.norm": "RmsNormOperation_{a}",
    "root.lm_head": "LinearOperation_{b}_0",
}
_NEOX_ENDS = {
    "root.gpt_neox.embed_in": "GatherOperation_0_0",
    "root.gpt_neox.final_layer_norm": "LayerNormOperation_{a}",
    "root.lm_head": "LinearOperation_{b}_0",
}
_PHI_ENDS = {
    "root.model.embed_tokens": "GatherOperation_0_0",
    "root.model.final_layernorm": "LayerNormOperation_{a}",
    "root.lm_head": "LinearOperation_{b}_0",
}
_LAYERS = {
    "qwen2": _LLAMA_LAYER,
    "qwen3": _QWEN3,
    "qwen3 unpacked": _UNPACKED,
    "mixtral": _MIXTRAL,
    "qwen3 with dense and expert layers": _QWEN3,
    "one layer": _LLAMA_LAYER,
    "phi3": _PHI3,
    "glm": _PACKED_MLP,
    "phi": _PHI,
    "neox": _NEOX,
}


def _truth(family: str) -> Mapping[str, str]:
    """The operation that computes each module, written down by hand."""
    ends, layers = _ENDS, "root.model.layers"
    if family == "neox":
        ends, layers = _NEOX_ENDS, "root.gpt_neox.layers"
    if family == "phi":
        ends = _PHI_ENDS
    count = {"one layer": 1, "qwen3 with dense and expert layers": 3}.get(family, 2)
    table = {name: op.format(a=count + 2, b=count + 3) for name, op in ends.items()}
    for number in range(count):
        for name, op in _LAYERS[family].items():
            table[f"{layers}.{number}{name}"] = op.format(a=number + 2)
        if "expert" in family and number > 0:
            of_layer = [name for name in table if f"layers.{number}.mlp." in name]
            for name in of_layer:
                del table[name]
            for name in (".mlp.gate", ".mlp.experts"):
                table[f"{layers}.{number}{name}"] = _MIXTRAL[name].format(a=number + 2)
    return table


@dataclass(frozen=True)
class Case:
    """A family, its runs, and what the matcher says of them."""

    family: str
    runs: Runs
    found: Found


@cache
def _case(family: str, folder: Path) -> Case:
    runs = capture(FAMILIES[family], folder / family)
    return Case(family, runs, matched(runs.torch, runs.atb))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(params=FAMILIES)
def case(request: pytest.FixtureRequest, folder: Path) -> Case:
    return _case(request.param, folder)


def test_every_module_with_a_counterpart_is_matched(case: Case) -> None:
    assert set(_truth(case.family).items()) <= outputs(case.found)


def test_every_match_holds_the_same_numbers(case: Case) -> None:
    assert len(matches_of(case.found)) > 60
    assert wrong_numbers(case.found) == []


def test_nothing_is_ambiguous(case: Case) -> None:
    for match in matches_of(case.found):
        assert match.confidence > 0.5, match.reason
        assert not match.alternatives


def test_the_roles_of_the_sides_can_be_exchanged(case: Case) -> None:
    forth = matches_of(case.found)
    back = matches_of(matched(case.runs.atb, case.runs.torch))

    def both(match: Match) -> tuple[str, ...]:
        return match.golden.record.title, match.mine.record.title, describe(match.golden.views)

    assert [both(m) for m in forth] == [
        (m.mine.record.title, m.golden.record.title, describe(m.mine.views)) for m in back
    ]


def test_every_tensor_is_mentioned_and_has_a_reason_if_it_is_alone(case: Case) -> None:
    mentioned = {
        record.path
        for item in case.found
        for record in (
            (item.golden.record, item.mine.record) if isinstance(item, Match) else (item.record,)
        )
    }
    for run in (case.runs.torch, case.runs.atb):
        for operation in run.operations:
            for tensor in (*operation.inputs, *operation.outputs):
                assert str(tensor.path) in mentioned
    assert all(len(item.reason) > 20 for item in unmatched_of(case.found))


def test_weights_are_said_to_be_weights(case: Case) -> None:
    reasons = {
        item.record.title: item.reason
        for item in unmatched_of(case.found)
        if item.record.op == "WordEmbedding_0"
    }
    assert reasons["WordEmbedding_0 intensor0"].startswith("it is a weight")


@pytest.mark.parametrize("padding", ["left", "right"])
def test_padding_on_either_side_is_left_out(tmp_path: Path, padding: str) -> None:
    runs = capture(FAMILIES["qwen2"], tmp_path, padding=padding)
    found = matched(runs.torch, runs.atb)
    assert wrong_numbers(found) == []
    assert set(_truth("qwen2").items()) <= outputs(found)


@pytest.mark.parametrize("inputs_before", [True, False])
def test_without_topology_values_show_the_data_flow(tmp_path: Path, inputs_before: bool) -> None:
    runs = capture(FAMILIES["qwen3"], tmp_path, topology=False, inputs_before=inputs_before)
    found = matched(runs.torch, runs.atb)
    assert not runs.atb.graphs
    assert wrong_numbers(found) == []
    assert set(_truth("qwen3").items()) <= outputs(found)


def test_interleaved_query_key_value_is_taken_apart_by_heads(folder: Path) -> None:
    found = _case("neox", folder).found
    parts = [
        match
        for match in matches_of(found)
        if match.golden.record.op == "root.gpt_neox.layers.0.attention.query_key_value"
        and match.mine.record.op == "LinearOperation_2_0_1"
        and match.mine.record.role == "out"
    ]
    assert [match.mine.views for match in parts] == [
        (Part(1, 0, 64),),
        (Part(1, 64, 128),),
        (Part(1, 128, 192),),
    ]
    for place, match in enumerate(parts):
        views = describe(match.golden.views)
        assert views.endswith(f"as [11, 4, 3, 16], {place}:{place + 1} of axis 2, as [11, 64]")


def test_torch_operators_show_turned_queries_and_keys(tmp_path: Path) -> None:
    runs = capture(FAMILIES["qwen3"], tmp_path, operators=True)
    found = matched(runs.torch, runs.atb)
    assert wrong_numbers(found) == []
    query = [
        match
        for match in matches_of(found)
        if match.mine.record.title == "RopeOperation_2_0_5 outtensor0"
    ]
    assert query[0].golden.record.op_type == "aten.add.Tensor"
    assert "query turned" in query[0].reason


def test_a_residual_sum_answers_what_the_next_norm_reads(folder: Path) -> None:
    found = _case("qwen2", folder).found
    (match,) = (
        match
        for match in matches_of(found)
        if match.mine.record.title == "ElewiseOperation_2_1 outtensor0"
    )
    assert match.golden.record.title == "root.model.layers.0.post_attention_layernorm intensor0"


def test_the_context_of_attention_answers_what_the_output_projection_reads(folder: Path) -> None:
    found = _case("qwen2", folder).found
    (match,) = (
        match
        for match in matches_of(found)
        if match.mine.record.title == "SelfAttentionOperation_2_0_4 outtensor0"
    )
    assert match.golden.record.title == "root.model.layers.0.self_attn.o_proj intensor0"


def test_the_experts_chosen_are_compared_with_less_confidence(folder: Path) -> None:
    found = _case("mixtral", folder).found
    chosen = find(found, "root.model.layers.0.mlp.experts", "MoeTokenUnpermuteOperation_2_2_7")
    assert chosen.confidence > 0.8
    numbers = [
        match
        for match in matches_of(found)
        if match.mine.record.title == "MoeTopkSoftmaxOperation_2_2_2 outtensor1"
    ]
    assert numbers[0].golden.record.title == "root.model.layers.0.mlp.gate outtensor2"
    assert numbers[0].confidence < 0.7


class _Expert(nn.Module):
    def __init__(self, gate_up: Tensor, down: Tensor) -> None:
        super().__init__()
        gate, up = gate_up.chunk(2)
        for name, weight in (("gate_proj", gate), ("up_proj", up), ("down_proj", down)):
            linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
            linear.weight = nn.Parameter(weight, requires_grad=False)
            self.add_module(name, linear)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.get_submodule("gate_proj")(x), self.get_submodule("up_proj")(x)
        y: Tensor = self.get_submodule("down_proj")((functional.silu(gate.float()) * up).half())
        return y


class _Experts(nn.Module):
    """Mixture of experts as models of one's own have it: each expert is a module."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.gate = nn.Linear(64, 4, bias=False)
        self.gate.weight = block.gate.weight
        weights = zip(block.experts.gate_up_proj, block.experts.down_proj, strict=True)
        self.experts = nn.ModuleList(_Expert(*pair) for pair in weights)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        best = self.gate(flat).float().softmax(-1).topk(2, dim=-1)
        weights = best.values / best.values.sum(-1, keepdim=True)
        total = torch.zeros_like(flat, dtype=torch.float32)
        for number, expert in enumerate(self.experts):
            rows, place = (best.indices == number).nonzero(as_tuple=True)
            total.index_add_(0, rows, expert(flat[rows]).float() * weights[rows, place, None])
        return total.half().reshape(x.shape)


def test_experts_that_are_modules_are_compared_as_their_sum(tmp_path: Path) -> None:
    family = FAMILIES["mixtral"]
    model: Any = random_weights(family.make())
    mine = capture_atb(family, model, tmp_path / "mine")
    for layer in model.model.layers:
        layer.mlp = _Experts(layer.mlp)
    golden = capture_torch(model, tmp_path / "golden")
    found = matched(golden, mine)
    assert wrong_numbers(found) == []
    for number in (0, 1):
        block = f"root.model.layers.{number}.mlp"
        assert {
            (f"{block}.gate", f"LinearOperation_{number + 2}_2_1"),
            (block, f"MoeTokenUnpermuteOperation_{number + 2}_2_7"),
            (block, f"Mlp_{number + 2}_2"),
        } <= outputs(found)
    assert not any(".experts." in match.golden.record.op for match in matches_of(found))
