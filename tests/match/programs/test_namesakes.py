"""Modules of one path: torch against torch by dotted names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from memory_runs import call, ones, run

from ait_llm import DumpConfig, register_hook
from ait_llm.dumps import open_dump
from ait_llm.dumps.model import Operation
from ait_llm.match.choose import match_runs
from ait_llm.match.model import Match, MatchOptions, Unmatched
from ait_llm.match.names import pair_names, without_wrappers
from ait_llm.match.pairing import pair_runs
from ait_llm.match.scenario import find_scenario
from ait_llm.match.views import Part
from ait_llm.program.passes import passes_of

OPTIONS = MatchOptions()


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.norm = torch.nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.norm(self.fc(x))
        return self.norm(hidden), hidden


class Wrapper(torch.nn.Module):
    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.module(x)  # type: ignore[no-any-return]


def _capture(folder: Path, model: torch.nn.Module, batch: int) -> Path:
    torch.manual_seed(0)
    x = torch.randn(1, 4).repeat(batch, 1)
    with torch.no_grad(), register_hook(model, DumpConfig(str(folder))):
        model(x)
    return folder


@pytest.fixture
def dumps(tmp_path: Path) -> tuple[Path, Path]:
    torch.manual_seed(1)
    block = Block()
    return (
        _capture(tmp_path / "golden", block, 1),
        _capture(tmp_path / "mine", Wrapper(block), 3),
    )


class Scaling(torch.nn.Module):
    def __init__(self, embed: torch.nn.Module, factor: int) -> None:
        super().__init__()
        self.embed, self.fc, self.factor = embed, torch.nn.Linear(4, 4), factor

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.fc(self.embed(ids) * self.factor)  # type: ignore[no-any-return]


class VocabParallelEmbedding(torch.nn.Embedding):
    """The share of a rank, added up over all ranks."""


class ScaledWordEmbedding(torch.nn.Embedding):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return 8 * super().forward(ids)


@pytest.mark.parametrize(
    ("kind", "answers"), [(torch.nn.Embedding, True), (ScaledWordEmbedding, False)]
)
def test_an_embedding_of_a_rank_answers_none_that_multiplies_its_rows(
    tmp_path: Path, kind: type[torch.nn.Embedding], answers: bool
) -> None:
    passes = []
    for name, made in (("golden", kind), ("mine", VocabParallelEmbedding)):
        factor = 8 if made is VocabParallelEmbedding and not answers else 1
        model = Scaling(made(6, 4), factor)
        with torch.no_grad(), register_hook(model, DumpConfig(str(tmp_path / name))):
            model(torch.arange(6))
        dump = open_dump(tmp_path / name)
        passes += passes_of(dump, dump.processes[0])
    found = match_runs(passes[0], replace(passes[1], share=(0, 2)), OPTIONS)
    pairs = {
        (each.golden.name, each.mine.name)
        for each in found
        if isinstance(each, Match) and each.mine.operation.name == "root.embed"
    }
    assert (("outtensor0", "outtensor0") in pairs) is answers


class MergedColumnParallelLinear(torch.nn.Linear):
    """Gate and up in one; of vLLM, which says how many columns each has."""

    def __init__(self, width: int) -> None:
        super().__init__(8, 2 * width, bias=False)
        self.output_partition_sizes = [width, width]


class SiluAndMul(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = x.chunk(2, -1)
        return torch.nn.functional.silu(gate) * up


class MLP(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate_up_proj = MergedColumnParallelLinear(width)
        self.act_fn = SiluAndMul()
        self.down_proj = torch.nn.Linear(width, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.act_fn(self.gate_up_proj(x)))  # type: ignore[no-any-return]


class Layers(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.mlp = torch.nn.LayerNorm(8), MLP(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(self.norm(x))  # type: ignore[no-any-return]


def test_a_rank_has_its_share_of_gate_and_of_up_not_a_stretch_of_both(tmp_path: Path) -> None:
    passes = []
    for name, width in (("golden", 12), ("mine", 6)):
        model = Layers(width)
        with torch.no_grad(), register_hook(model, DumpConfig(str(tmp_path / name))):
            model(torch.ones(3, 8))
        dump = open_dump(tmp_path / name)
        passes += passes_of(dump, dump.processes[0])
    found = match_runs(passes[0], replace(passes[1], share=(1, 2)), OPTIONS)
    joined = [
        each
        for each in found
        if isinstance(each, Match)
        and (each.mine.operation.name, each.mine.name)
        in (("root.mlp.gate_up_proj", "outtensor0"), ("root.mlp.act_fn", "intensor0"))
    ]
    columns = {(*each.golden.views, *each.mine.views) for each in joined}
    assert columns == {(Part(1, 6, 12), Part(1, 0, 6)), (Part(1, 18, 24), Part(1, 6, 12))}


def test_a_wrapped_module_answers_the_plain_one_with_equal_values(
    dumps: tuple[Path, Path],
) -> None:
    (pair,) = pair_runs(find_scenario(*dumps)).pairs
    found = match_runs(pair.golden, pair.mine, OPTIONS)
    matches = [each for each in found if isinstance(each, Match)]
    assert {(m.golden.record.op, m.golden.record.call, m.mine.record.op) for m in matches} == {
        ("root", 0, "root.module"),
        ("root.fc", 0, "root.module.fc"),
        ("root.norm", 0, "root.module.norm"),
        ("root.norm", 1, "root.module.norm"),
    }
    for match in matches:
        golden = np.tile(match.golden.tensor.numpy(), (3, 1))
        np.testing.assert_allclose(match.mine.tensor.numpy(), golden, rtol=1e-5, atol=1e-6)
    # the wrapper itself has no counterpart
    alone = {each.record.op for each in found if isinstance(each, Unmatched)}
    assert alone == {"root"}


def test_calls_of_one_module_pair_by_their_number() -> None:
    first = [call("root.n", "Norm", 0, None, {"output": ones(2)}, call=k) for k in range(2)]
    found = match_runs(run("torch", first), run("torch", first[::-1]), OPTIONS)
    assert all(isinstance(m, Match) and m.golden.record.call == m.mine.record.call for m in found)


def test_a_call_that_one_side_did_not_make_is_unmatched() -> None:
    calls = [call("root.n", "Norm", 0, None, {"output": ones(2)}, call=k) for k in range(2)]
    found = match_runs(run("torch", calls), run("torch", calls[:1]), OPTIONS)
    (alone,) = [each for each in found if isinstance(each, Unmatched)]
    assert (alone.side, alone.reason) == ("golden", "call 1 is one of 2, the other side has 1")


def test_arguments_pair_by_their_names_not_their_order() -> None:
    golden = call("root.a", "Attn", 0, {"input_0": ones(2), "input_mask": ones(2, 2)})
    mine = call("root.a", "Attn", 0, {"input_mask": ones(2, 2), "input_0": ones(2)})
    found = match_runs(run("torch", [golden]), run("torch", [mine]), OPTIONS)
    stems = {(m.golden.tensor.stem, m.mine.tensor.stem) for m in found if isinstance(m, Match)}  # type: ignore[attr-defined]
    assert stems == {("input_0", "input_0"), ("input_mask", "input_mask")}


def test_a_value_passed_by_name_on_one_side_pairs_with_less_confidence() -> None:
    golden = call("root.a", "Attn", 0, {"input_0": ones(2, 3)})
    mine = call("root.a", "Attn", 0, {"input_hidden_states": ones(2, 3)})
    (match,) = match_runs(run("torch", [golden]), run("torch", [mine]), OPTIONS)
    assert isinstance(match, Match)
    assert match.confidence == 0.8
    assert "input_0 for input_hidden_states" in match.reason


@pytest.mark.parametrize(
    ("wrapped", "plain"),
    [
        ("root.module.layers.0", "root.layers.0"),
        ("root._orig_mod.layers.0", "root.layers.0"),
        ("module.module.layers.0", "layers.0"),
        ("root.layers.0._fsdp_wrapped_module.fc", "root.layers.0.fc"),
        ("root.layers.0.module", "root.layers.0.module"),
    ],
)
def test_names_without_wrappers(wrapped: str, plain: str) -> None:
    assert without_wrappers(wrapped) == plain


def test_a_hook_on_the_inner_model_leaves_a_prefix_out() -> None:
    golden = {"root": "Causal", "root.model": "Llama", "root.model.layers.0": "Layer"}
    golden |= {"root.model.layers.1": "Layer", "root.lm_head": "Linear"}
    mine = {"root": "Llama", "root.layers.0": "Layer", "root.layers.1": "Layer"}
    pairs = {pair.mine: pair.golden for pair in pair_names(golden, mine)}
    assert pairs["root.layers.0"] == "root.model.layers.0"
    assert pairs["root.layers.1"] == "root.model.layers.1"


def test_a_renamed_root_is_exchanged() -> None:
    golden = {f"root.transformer.h.{i}.mlp": "MLP" for i in range(3)}
    mine = {f"root1.transformer.h.{i}.mlp": "MLP" for i in range(3)}
    pairs = {pair.mine: pair.golden for pair in pair_names(golden, mine)}
    assert pairs == {
        f"root1.transformer.h.{i}.mlp": f"root.transformer.h.{i}.mlp" for i in range(3)
    }


def test_equal_tails_of_several_modules_do_not_pair() -> None:
    golden = {"root.encoder.fc": "Linear", "root.decoder.fc": "Linear"}
    assert pair_names(golden, {"root.other.fc": "Linear"}) == []


def test_modules_of_other_types_are_not_paired_by_an_exchanged_prefix() -> None:
    golden: dict[str, str] = {"root.a.fc": "Linear"}
    assert pair_names(golden, {"root.b.fc": "Dropout"}) == []


def test_outputs_of_other_shapes_are_unmatched() -> None:
    def module(size: int) -> Operation:
        return call("root.fc", "Linear", 0, None, {"output": ones(2, size)})

    found = match_runs(run("torch", [module(3)]), run("torch", [module(5)]), OPTIONS)
    assert [each.reason for each in found if isinstance(each, Unmatched)] == [
        "shapes [2, 3] and [2, 5] differ"
    ] * 2
