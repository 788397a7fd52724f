"""Passes of single operators, as an FX graph has them, against modules and ATB operations."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn
from two_captures import capture_modules, capture_nodes, made, modules_of_nodes

from ait_llm import compare
from ait_llm.core import Verdict
from ait_llm.core.comparison import Report
from ait_llm.dump import fx_backend
from ait_llm.dump.fx.session import sessions
from ait_llm.hostatb.models.config import LLAMA_PRESETS
from ait_llm.hostatb.models.generate import follow, generate, make_llama, random_prompts
from ait_llm.hostatb.models.llama_torch import llama_twin
from ait_llm.hostatb.models.weights import llama_weights
from ait_llm.match.model import Match, MatchOptions
from ait_llm.match.pairing import pair_runs
from ait_llm.match.programs import match_programs
from ait_llm.match.scenario import find_scenario
from ait_llm.probe.library import find_packaged
from tests.match.programs.checking import matches_of, wrong_numbers
from tests.match.programs.test_demos import _LENGTHS, _capture_atb

_FAMILIES = ("llama", "qwen3", "gemma2", "gpt2", "gpt_neox", "mixtral")
_UNITS = ("norm", "ln_", "proj", "c_attn", "c_fc", "query_key_value", "dense", "head", "wte")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nodes")


@cache
def _captured(folder: Path, family: str, attention: str = "eager") -> tuple[Path, Path]:
    modules, nodes = folder / f"{family}_modules", folder / f"{family}_{attention}_nodes"
    if not modules.exists():
        capture_modules(modules, made(family))
    logits = capture_nodes(nodes, made(family, attention))
    assert logits.isfinite().all()
    return modules, nodes


def _matches(golden: Path, mine: Path) -> list[Match]:
    pairing = pair_runs(find_scenario(golden, mine))
    assert not pairing.problems
    return [
        match
        for pair in pairing.pairs
        for match in matches_of(match_programs(pair.golden, pair.mine, MatchOptions()))
    ]


def _leaves(model: nn.Module) -> set[str]:
    """Modules of which both sides hold the result."""
    return {
        f"root.{name}"
        for name, module in model.named_modules()
        if not list(module.children()) and any(word in name for word in _UNITS)
    } - {"root.model.layers.0.mlp.experts.act_fn"}


@pytest.mark.parametrize("family", ["gpt2", "gpt_neox", "llama"])
def test_captured_parameters_answer_the_operands_of_nodes(
    folder: Path, family: str, tmp_path: Path
) -> None:
    _, nodes = _captured(folder, family)
    capture_modules(tmp_path / "modules", made(family), weights=True)
    found = compare(tmp_path / "modules", nodes)
    compared = [
        each for each in found.comparisons if each.golden and each.golden.name in ("weight", "bias")
    ]
    assert {each.verdict for each in compared if each.mine} == {Verdict.PASS}


@pytest.mark.parametrize("family", _FAMILIES)
def test_every_projection_norm_and_layer_is_found_and_nothing_else(
    folder: Path, family: str
) -> None:
    modules, nodes = _captured(folder, family)
    found = _matches(modules, nodes)
    assert wrong_numbers(found, limit=1e-4) == []
    owners = modules_of_nodes(nodes)
    results = [each for each in found if each.golden.record.role == each.mine.record.role == "out"]
    named = {each.golden.record.op for each in results}
    model = made(family)
    assert _leaves(model) <= named
    layers = {f"root.{name}" for name, _ in model.named_modules() if name[-2:] in (".0", ".1")}
    assert {name for name in layers if "experts" not in name} <= named
    if family != "gemma2":  # which squeezes its logits behind the last module
        assert "root" in named
    for each in results:
        if each.golden.record.op in _leaves(model):  # the operators that made it lie within it
            owner = owners.get(each.mine.record.op, "root")  # of a few nothing was recorded
            assert owner.startswith((each.golden.record.op, *_around(each.golden.record.op)))


def test_numbers_that_a_graph_saves_beside_tensors_are_no_operands(
    folder: Path, tmp_path: Path
) -> None:
    """A capture of operators has none of them: the cap of the logits is paired as well."""
    _, nodes = _captured(folder, "gemma2")
    capture_modules(tmp_path / "operators", made("gemma2"), operators=True, weights=True)
    found = compare(tmp_path / "operators", nodes, jobs=1)
    assert (found.exit_code(), found.counts[Verdict.FAIL]) == (0, 0)
    compared = {
        each.golden.op for each in found.comparisons if each.golden and each.verdict is Verdict.PASS
    }
    assert {"root.aten.div.Tensor", "root.aten.tanh.default", "root.aten.mul.Tensor"} <= compared


def _around(path: str) -> tuple[str, ...]:
    """Modules around one, which look at its result in another shape or hand it on."""
    parts = path.split(".")
    return tuple(".".join(parts[:count]) for count in range(1, len(parts)))


@pytest.mark.parametrize("family", ["llama", "mixtral"])
def test_another_attention_moves_nothing(folder: Path, family: str) -> None:
    modules, nodes = _captured(folder, family, "sdpa")
    found = _matches(modules, nodes)
    assert wrong_numbers(found, limit=1e-4) == []
    named = {each.golden.record.op for each in found if each.golden.record.role == "out"}
    assert _leaves(made(family)) <= named


def test_sides_may_be_exchanged(folder: Path) -> None:
    modules, nodes = _captured(folder, "gpt_neox")
    report = compare(nodes, modules)
    assert report.counts[Verdict.FAIL] == report.counts[Verdict.ERROR] == 0
    assert report.counts[Verdict.PASS] > 100
    assert not report.origins


@pytest.mark.parametrize(
    ("path", "operator"),
    [
        ("model.layers.1.mlp.up_proj", "mm"),
        ("model.layers.0.self_attn.o_proj", "mm"),
        ("model.layers.1.input_layernorm", "mul"),
    ],
)
def test_a_wrong_weight_is_found_at_its_node(
    folder: Path, tmp_path: Path, path: str, operator: str
) -> None:
    modules, _ = _captured(folder, "llama")
    model = made("llama")
    with torch.no_grad():
        model.get_submodule(path).weight.mul_(1.08)
    capture_nodes(tmp_path / "mine", model)
    report = compare(modules, tmp_path / "mine")
    first = next(each for each in report.comparisons if each.verdict is Verdict.FAIL)
    assert first.golden is not None
    assert first.golden.op == f"root.{path}"
    [origin] = report.origins  # the node, or what nobody computed again on the way to it
    assert first.record.op in (origin.op, *origin.candidates)
    assert first.record.op.rstrip("_0123456789") == operator


@pytest.mark.skipif(
    find_packaged("libatb_probe_abi1.so", os.environ) is None, reason="needs the compiled libraries"
)
def test_operations_of_atb_against_nodes(tmp_path: Path) -> None:
    """Two packed requests of different lengths, prefill and decode, against padded nodes."""
    (tmp_path / "atb").mkdir()
    _capture_atb(tmp_path / "atb", "llama", "-er", "0,1")
    config = LLAMA_PRESETS["tiny"]
    weights = llama_weights(config, 0)
    prompts = random_prompts(config, _LENGTHS, 0)
    generation = generate(make_llama(config, weights, _LENGTHS, 3, 16), prompts, 3)
    twin = llama_twin(config, weights)
    torch._dynamo.reset()
    twin.forward = torch.compile(twin.forward, backend=fx_backend.capture(tmp_path / "fx"))  # type: ignore[method-assign]
    follow(twin, config, prompts, generation.tokens)
    torch._dynamo.reset()
    sessions._open.pop(tmp_path / "fx").close("exit")
    pairing = pair_runs(find_scenario(tmp_path / "fx", tmp_path / "atb"))
    assert not pairing.problems
    assert len(pairing.pairs) == 3
    for pair in pairing.pairs:
        found = matches_of(match_programs(pair.golden, pair.mine, MatchOptions()))
        assert wrong_numbers(found) == []
        results = {each.mine.record.op for each in found if each.mine.record.role == "out"}
        assert sum(name.startswith("LinearOperation") for name in results) >= 2 * 4 + 1
        assert sum(name.startswith("RmsNormOperation") for name in results) == 2 * 2 + 1
    report = compare(tmp_path / "fx", tmp_path / "atb")
    assert not _failing(report)


def _failing(report: Report) -> list[str]:
    return [each.record.title for each in report.with_verdict(Verdict.FAIL)]
