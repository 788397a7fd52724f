"""API captures, of functions, modules or both, against captures of torch modules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from two_captures import capture_calls, capture_modules, made

from ait_llm import compare
from ait_llm.core import Verdict
from ait_llm.dump.api import PrecisionDebugger
from ait_llm.match.model import Match, MatchOptions
from ait_llm.match.pairing import pair_runs
from ait_llm.match.programs import match_programs
from ait_llm.match.scenario import find_scenario
from tests.match.programs.checking import matches_of, wrong_numbers

_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_UNITS = {
    *(f"root.model.layers.{n}.self_attn.{each}" for n in (0, 1) for each in _PROJECTIONS[:4]),
    *(f"root.model.layers.{n}.mlp.{each}" for n in (0, 1) for each in _PROJECTIONS[4:]),
    *(f"root.model.layers.{n}.input_layernorm" for n in (0, 1)),
    *(f"root.model.layers.{n}.post_attention_layernorm" for n in (0, 1)),
    *("root.model.embed_tokens", "root.model.norm", "root.lm_head"),
    *(f"root.model.layers.{n}" for n in (0, 1)),
}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """A debugger of its own for each test."""
    PrecisionDebugger._reset()
    yield
    PrecisionDebugger._reset()


def _matches(golden: Path, mine: Path) -> list[Match]:
    pairing = pair_runs(find_scenario(golden, mine))
    assert not pairing.problems
    [pair] = pairing.pairs
    return matches_of(match_programs(pair.golden, pair.mine, MatchOptions()))


def _results(found: list[Match]) -> dict[str, set[str]]:
    """Golden module to my calls, of results."""
    named: dict[str, set[str]] = {}
    for each in found:
        if each.golden.record.role == each.mine.record.role == "out":
            named.setdefault(each.golden.record.op, set()).add(each.mine.record.op)
    return named


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_every_unit_is_found_at_its_call(tmp_path: Path, level: str) -> None:
    capture_modules(tmp_path / "modules", made("llama"))
    capture_calls(tmp_path / "calls", made("llama"), level=level)
    found = _matches(tmp_path / "modules", tmp_path / "calls")
    assert wrong_numbers(found, limit=1e-4) == []
    named = _results(found)
    assert set(named) >= _UNITS
    for module, calls in named.items():  # a module of the same name is the module
        own = {call for call in calls if call.startswith("Module.")}
        path = module.removeprefix("root.")
        if level != "L1" and module in _UNITS:
            assert any(call.startswith(f"Module.{path}.") for call in own), module


def test_projections_that_are_joined_and_layer_norms(tmp_path: Path) -> None:
    capture_modules(tmp_path / "modules", made("gpt2"))
    capture_calls(tmp_path / "calls", made("gpt2"), level="L1")
    found = _matches(tmp_path / "calls", tmp_path / "modules")
    assert wrong_numbers(found, limit=1e-4) == []
    modules = {each.mine.record.op for each in found if each.mine.record.role == "out"}
    names = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj", "ln_1", "ln_2")
    assert modules >= {f"root.transformer.h.{n}.{name}" for n in (0, 1) for name in names}


def test_a_wrong_weight_fails_first_at_its_module(tmp_path: Path) -> None:
    capture_modules(tmp_path / "modules", made("llama"))
    model = made("llama")
    with torch.no_grad():
        model.get_submodule("model.layers.0.mlp.down_proj").weight.mul_(1.08)
    capture_calls(tmp_path / "calls", model, level="L1")
    report = compare(tmp_path / "modules", tmp_path / "calls")
    first = next(each for each in report.comparisons if each.verdict is Verdict.FAIL)
    assert first.golden is not None
    assert first.golden.op == "root.model.layers.0.mlp.down_proj"
    assert first.record.op.startswith("Functional.linear.")
    [origin] = report.origins
    assert first.record.op in (origin.op, *origin.candidates)
