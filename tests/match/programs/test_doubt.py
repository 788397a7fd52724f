"""What cannot be known is not claimed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ait_llm.hostatb as torch_atb
from ait_llm import DumpConfig, register_hook
from ait_llm.program.one_pass import Pass
from tests.match.programs.atb_program import AtbProgram
from tests.match.programs.checking import (
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
    read_atb,
    read_torch,
)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return capture(FAMILIES["qwen2"], tmp_path_factory.mktemp("qwen"))


def _without(run: Pass, *names: str) -> Pass:
    """The run without operations whose names contain one of these words."""
    kept = [o for o in run.operations if not any(name in o.name for name in names)]
    return replace(run, operations=kept)


class _Renamed(nn.Module):
    """An attention and an MLP whose projections have names that say nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.a, self.b, self.c = nn.Linear(32, 32), nn.Linear(32, 16), nn.Linear(32, 16)
        self.out = nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        a, b, c = self.a(y), self.b(y), self.c(y)
        mixed = torch.cat([b, c], -1).softmax(-1) * a
        z: Tensor = x + self.out(mixed)
        return z


def _renamed(folder: Path) -> tuple[Pass, Pass]:
    model = random_weights(_Renamed())
    x = torch.randn(5, 32, generator=torch.Generator().manual_seed(3)).half()
    with torch.no_grad(), register_hook(model, DumpConfig(str(folder / "golden"))):
        model(x)
    state = model.state_dict()
    program = AtbProgram(folder / "mine")
    kinds = torch_atb.LayerNormParam
    normal = kinds.NormParam(epsilon=1e-5, begin_norm_axis=1, begin_params_axis=1)
    with program.graph("Layer") as out:
        norm = kinds(layer_type=kinds.LayerNormType.LAYER_NORM_NORM, norm_param=normal)
        y = program.run(norm, x, state["norm.weight"], state["norm.bias"])
        weight, bias = (
            torch.cat([state[f"{m}.{kind}"] for m in "abc"]) for kind in ("weight", "bias")
        )
        packed = program.run(
            torch_atb.LinearParam(transpose_b=True, has_bias=True), y, weight, bias
        )
        a, b, c = packed.split([32, 16, 16], -1)
        mixed = (torch.cat([b, c], -1).float().softmax(-1) * a.float()).half()
        program.plugin("MixOperation", [packed], [mixed])
        z = program.run(
            torch_atb.LinearParam(transpose_b=True, has_bias=True),
            mixed,
            state["out.weight"],
            state["out.bias"],
        )
        add = torch_atb.ElewiseParam.ElewiseType.ELEWISE_ADD
        out.append(program.run(torch_atb.ElewiseParam(elewise_type=add), x, z))
    return read_torch(folder / "golden"), read_atb(folder / "mine")


def test_twins_that_nothing_tells_apart_are_ambiguous(tmp_path: Path) -> None:
    golden, mine = _renamed(tmp_path)
    found = matched(golden, mine)
    assert wrong_numbers(found) == []
    for module, twin in (("root.b", "root.c"), ("root.c", "root.b")):
        match = find(found, module, "LinearOperation_0_1")
        assert match.confidence < 0.5
        assert match.alternatives == (twin,)


def test_a_member_of_another_width_has_no_twin(tmp_path: Path) -> None:
    golden, mine = _renamed(tmp_path)
    match = find(matched(golden, mine), "root.a", "LinearOperation_0_1")
    assert match.confidence > 0.8
    assert not match.alternatives


def _anonymous(model: nn.Module) -> nn.Module:
    """The same model, whose classes and modules have names that say nothing."""
    for number, (name, child) in enumerate(list(model.named_children())):
        _anonymous(child)
        if isinstance(child, nn.ModuleList):
            setattr(model, name, _Row(list(child)))
        elif "rotary" not in name:
            base = type(child)
            child.__class__ = type(f"Part{'ABCDEFGHIJ'[number]}", (base,), {})
    return model


class _Row(nn.Module):
    """Layers that are no list and have no numbers."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        for layer, name in zip(layers, ("first", "second"), strict=True):
            self.add_module(name, layer)

    def __getitem__(self, which: slice) -> list[nn.Module]:
        return list(self.children())[which]


def test_types_and_numbers_in_names_are_not_needed(tmp_path: Path) -> None:
    family = FAMILIES["qwen2"]
    model = random_weights(family.make())
    mine = capture_atb(family, model, tmp_path / "mine")
    golden = capture_torch(_anonymous(model), tmp_path / "golden")
    found = matched(golden, mine)
    assert not any(
        word in o.type for o in golden.operations for word in ("Norm", "Linear", "Layer")
    )
    assert wrong_numbers(found) == []
    layer = "root.model.layers.second"
    assert {
        (layer, "Prefill_layer_3"),
        (f"{layer}.input_layernorm", "RmsNormOperation_3_0_0"),
        (f"{layer}.self_attn", "Attention_3_0"),
        (f"{layer}.self_attn.q_proj", "LinearOperation_3_0_1"),
        (f"{layer}.self_attn.o_proj", "LinearOperation_3_0_5"),
        (f"{layer}.mlp.down_proj", "LinearOperation_3_2_3"),
        ("root.model.embed_tokens", "GatherOperation_0_0"),
        ("root.model.norm", "RmsNormOperation_4"),
        ("root.lm_head", "LinearOperation_5_0"),
    } <= outputs(found)
    norm = find(found, "root.model.norm", "RmsNormOperation_4")
    assert norm.confidence < 0.7


def test_another_order_of_packing_is_seen_by_the_use_of_the_pieces(tmp_path: Path) -> None:
    """Value, key, query packed into one matrix: names and data flow agree, the order does not."""
    model = random_weights(FAMILIES["qwen2"].make())
    golden = capture_torch(model, tmp_path / "golden")
    prefix = "root.model.layers.0"
    attention = model.get_submodule("model.layers.0.self_attn")
    parts = [attention.get_submodule(f"{name}_proj") for name in "vkq"]
    normed = _output(golden, f"{prefix}.input_layernorm").reshape(14, 64)
    cos, sin = (_output(golden, "root.model.rotary_emb", i).reshape(14, 16) for i in (0, 1))
    lengths = torch.tensor([7, 7], dtype=torch.int32)
    program = AtbProgram(tmp_path / "mine")
    with program.graph("Attention") as out:
        packed = program.run(
            torch_atb.LinearParam(transpose_b=True, has_bias=True),
            normed,
            torch.cat([part.weight for part in parts]),
            torch.cat([part.bias for part in parts]),
        )
        split = torch_atb.SplitParam(split_dim=1, split_num=3, split_sizes=[32, 32, 64])
        v, k, q = program.run(split, packed)
        q, k = program.run(torch_atb.RopeParam(rotary_coeff=2), q, k, cos, sin, lengths)
        kinds = torch_atb.SelfAttentionParam
        core = kinds(head_num=4, kv_head_num=2, calc_type=kinds.CalcType.PA_ENCODER)
        heads = [program.view(tensor, 14, -1, 16) for tensor in (q, k, v)]
        out.append(program.run(core, *heads, lengths))
    wanted = [
        operation
        for operation in golden.operations
        if operation.name.startswith(f"{prefix}.self_attn.") and "o_proj" not in operation.name
    ]
    found = matched(replace(golden, operations=wanted), read_atb(tmp_path / "mine"))
    views = {
        match.golden.record.op.rsplit(".", 1)[1]: str(match.mine.views[-1])
        for match in matches_of(found)
        if match.mine.record.title == "LinearOperation_0_0 outtensor0"
    }
    assert views == {
        "v_proj": "0:32 of axis 1",
        "k_proj": "32:64 of axis 1",
        "q_proj": "64:128 of axis 1",
    }
    assert wrong_numbers(found) == []


def _output(run: Pass, name: str, index: int = 0) -> Tensor:
    operation = next(o for o in run.operations if o.name == name)
    return operation.outputs[index].torch().contiguous()


def test_another_model_is_matched_with_nothing_of_its_layers(qwen: Runs, tmp_path: Path) -> None:
    other = capture(FAMILIES["neox"], tmp_path)
    layers = [
        match
        for match in matches_of(matched(other.torch, qwen.atb))
        if ".self_attn" in match.golden.record.op
        and match.golden.record.role == match.mine.record.role == "out"
        and match.golden.record.op_type == "Linear"
    ]
    assert all(match.golden.record.op.endswith(("dense", "4h_to_h")) for match in layers)


def test_layers_that_only_one_side_has_are_paired_by_number(qwen: Runs) -> None:
    golden = _without(qwen.torch, "layers.1")
    found = matched(golden, qwen.atb)
    ops = {m.mine.record.op for m in matches_of(found) if "layers.0." in m.golden.record.op}
    assert "RmsNormOperation_2_0_0" in ops
    assert not any(op.endswith("_3_0_0") for op in ops)


def test_a_layer_that_may_be_any_is_ambiguous(qwen: Runs) -> None:
    found = matched(_without(qwen.torch, "layers.1"), qwen.atb)
    inner = [m for m in matches_of(found) if "layers.0.mlp" in m.golden.record.op]
    assert inner
    assert all(match.confidence < 0.5 for match in inner)


def test_nans_on_my_side_do_not_move_a_match(tmp_path: Path) -> None:
    """From the first layer on everything is NaN, so no value can be recognised by its numbers."""
    family = FAMILIES["qwen2"]
    model = random_weights(family.make())
    golden = capture_torch(model, tmp_path / "golden")
    right = capture_atb(family, model, tmp_path / "right")
    model.model.layers[0].self_attn.q_proj.weight.data[:] = float("nan")
    for topology in (True, False):
        folder = tmp_path / f"mine{topology}"
        mine = capture_atb(family, model, folder, topology=topology)
        truth = outputs(matched(golden, right))
        found = outputs(matched(golden, mine))
        assert found <= truth
        assert {pair for pair in truth if "Linear" in pair[1]} <= found


def test_descriptions_alone_are_matched_by_structure(qwen: Runs, tmp_path: Path) -> None:
    """Neither side has values: shapes, types, order and names of tensors are left."""
    bare = capture(FAMILIES["qwen2"], tmp_path)
    for path in tmp_path.glob("**/*.bin"):
        _strip(path)
    found = outputs(matched(bare.torch, bare.atb))
    assert {
        ("root.model.layers.1.self_attn.o_proj", "LinearOperation_3_0_5"),
        ("root.model.layers.1.mlp.down_proj", "LinearOperation_3_2_3"),
        ("root.model.layers.0.input_layernorm", "RmsNormOperation_2_0_0"),
        ("root.model.norm", "RmsNormOperation_4"),
    } <= found
    assert found <= outputs(matched(qwen.torch, qwen.atb))


def _strip(path: Path) -> None:
    """Leave the header of a tensor file, as a capture of descriptions writes it."""
    header, _, _ = path.read_bytes().partition(b"$End=1\n")
    lines = [line for line in header.split(b"\n") if line and not line.startswith(b"$Object.data")]
    kept = [
        b"$Object.Count=0"
        if line.startswith(b"$Object.Count")
        else b"$Object.Length=0"
        if line.startswith(b"$Object.Length")
        else line
        for line in lines
    ]
    path.write_bytes(b"\n".join([*kept, b"$End=1", b""]))


def test_a_damaged_file_costs_only_what_depends_on_it(tmp_path: Path) -> None:
    runs = capture(FAMILIES["qwen2"], tmp_path)
    before = outputs(matched(runs.torch, runs.atb))
    (path,) = tmp_path.glob("mine/**/2_Prefill_layer/2_Mlp/1_LinearOperation/after/*.bin")
    path.write_bytes(b"$Version=1.0\n")
    after = outputs(matched(runs.torch, read_atb(tmp_path / "mine")))
    lost = before - after
    assert lost
    assert all("layers.0.mlp" in module for module, _ in lost)


def test_damaged_parameters_cost_no_more_than_what_they_say(tmp_path: Path) -> None:
    runs = capture(FAMILIES["qwen2"], tmp_path)
    before = outputs(matched(runs.torch, runs.atb))
    for path in tmp_path.glob("mine/**/op_param.json"):
        path.write_text("{")
    after = matched(runs.torch, read_atb(tmp_path / "mine"))
    assert wrong_numbers(after) == []
    assert len(outputs(after)) > 0.8 * len(before)


def test_inputs_overwritten_in_place_are_not_compared(tmp_path: Path) -> None:
    runs = capture(FAMILIES["qwen2"], tmp_path, inputs_before=False)
    (path,) = tmp_path.glob("mine/**/2_Prefill_layer/2_Mlp/after/intensor0.bin")
    other = next(tmp_path.glob("mine/**/3_Prefill_layer/2_Mlp/after/intensor0.bin"))
    path.write_bytes(other.read_bytes())
    found = matched(runs.torch, runs.atb)
    (reason,) = (
        item.reason for item in unmatched_of(found) if item.record.title == "Mlp_2_2 intensor0"
    )
    assert "its memory held something else" in reason
    assert wrong_numbers(found) == []


def test_the_bias_added_by_a_later_operation_belongs_to_the_linear(tmp_path: Path) -> None:
    model = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 24)).half().requires_grad_(False)
    x = torch.randn(5, 16, generator=torch.Generator().manual_seed(0)).half()
    with register_hook(model, DumpConfig(str(tmp_path / "golden"))):
        model(x)
    program = AtbProgram(tmp_path / "mine")
    kinds = torch_atb.LayerNormParam
    normal = kinds.NormParam(epsilon=1e-5, begin_norm_axis=1, begin_params_axis=1)
    y = program.run(
        kinds(layer_type=kinds.LayerNormType.LAYER_NORM_NORM, norm_param=normal),
        x,
        model[0].weight.data,
        model[0].bias.data,
    )
    product = program.run(
        torch_atb.LinearParam(transpose_b=True, has_bias=False), y, model[1].weight.data
    )
    add = torch_atb.ElewiseParam.ElewiseType.ELEWISE_ADD
    program.run(torch_atb.ElewiseParam(elewise_type=add), product, model[1].bias.data)
    found = matched(read_torch(tmp_path / "golden"), read_atb(tmp_path / "mine"))
    assert ("root.1", "ElewiseOperation_2") in outputs(found)
    assert ("root.1", "LinearOperation_1") not in outputs(found)
    assert wrong_numbers(found) == []


def test_a_quantised_product_answers_the_linear_but_not_its_input(tmp_path: Path) -> None:
    model = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 24, bias=False)).half()
    model.requires_grad_(False)
    x = torch.randn(5, 16, generator=torch.Generator().manual_seed(0)).half()
    with register_hook(model, DumpConfig(str(tmp_path / "golden"))):
        y = model(x)
    normed, weight = model[0](x).float(), model[1].weight.float()
    steps = [tensor.abs().max() / 127 for tensor in (normed, weight)]
    small = [
        (tensor / step).round().to(torch.int8)
        for tensor, step in zip((normed, weight), steps, strict=True)
    ]
    result = (small[0].float() @ small[1].float().t() * steps[0] * steps[1]).half()
    program = AtbProgram(tmp_path / "mine")
    program.plugin("LayerNormOperation", [x, model[0].weight, model[0].bias], [small[0]])
    bias, scale = torch.zeros(24, dtype=torch.int32), (steps[0] * steps[1]).repeat(24)
    program.plugin("LinearOperation", [small[0], small[1], bias, scale], [result])
    found = matched(read_torch(tmp_path / "golden"), read_atb(tmp_path / "mine"))
    assert torch.allclose(y.float(), result.float(), atol=0.05)
    assert find(found, "root.1", "LinearOperation_1").confidence > 0.9
    assert {item.record.title: item.reason for item in unmatched_of(found)}[
        "LinearOperation_1 intensor0"
    ] == "it is quantised, and the golden dump is not"
