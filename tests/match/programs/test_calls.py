"""API captures, of functions, modules or both, against captures of torch modules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from relation_programs import Decoder, Layer, ask, plain
from torch import Tensor
from two_captures import capture_calls, capture_modules, made

from ait_llm import DumpConfig, compare, register_hook
from ait_llm.core.comparison import Report, Verdict
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


class _Residual(Layer):
    """A layer that adds up ``share`` of what it reads."""

    share = 1.0

    def forward(self, x: Tensor, tables: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        x = x * self.share + self.self_attn(self.input_layernorm(x), tables, mask)
        return x * self.share + self.mlp(self.post_attention_layernorm(x))


def _sums(place: Path, layers: list[int], share: float) -> Report:
    """Calls of a decoder against modules of one that adds up another share in some layers.

    Its norms are functions that captures of calls do not list.
    """
    model = plain("separate")
    for number in layers:
        model.layers[number].__class__ = _Residual
        model.layers[number].share = share
    _ask_as_calls(place / "calls", plain("separate"))
    with torch.no_grad(), register_hook(model, DumpConfig(str(place / "modules"))):
        ask(model)
    return compare(place / "calls", place / "modules")


def _ask_as_calls(folder: Path, model: Decoder) -> None:
    debugger = PrecisionDebugger(task="tensor", level="L1", dump_path=str(folder))
    with torch.no_grad():
        debugger.start(model)
        ask(model)
        debugger.stop()
        debugger.step()


_SUMS = {
    "Tensor.__add__.3.forward": "root.layers.0.post_attention_layernorm",
    "Tensor.__add__.4.forward": "root.layers.1.input_layernorm",
    "Tensor.__add__.8.forward": "root.layers.1.post_attention_layernorm",
    "Tensor.__add__.9.forward": "root.norm",
}


def _answers(report: Report) -> dict[str, set[str]]:
    """What answers the results of residual sums."""
    found: dict[str, set[str]] = {}
    for each in report.comparisons:
        if each.golden and each.mine and each.golden.op in _SUMS and each.golden.role == "out":
            found.setdefault(each.golden.op, set()).add(each.mine.op)
    return found


def test_a_residual_sum_answers_what_a_module_adds_up_in_its_code(tmp_path: Path) -> None:
    report = _sums(tmp_path, [], 1.0)
    assert report.exit_code() == 0
    found = _answers(report)
    assert {each: _SUMS[each] in found[each] for each in found} == dict.fromkeys(_SUMS, True)


def test_a_sum_of_another_share_is_named_by_its_layer(tmp_path: Path) -> None:
    report = _sums(tmp_path, [1], 0.5)
    failed = {
        each.golden.op
        for each in report.comparisons
        if each.verdict is Verdict.FAIL and each.golden is not None
    }
    assert "Tensor.__add__.8.forward" in failed
    [origin] = report.origins
    assert "root.layers.1" in (origin.op, *origin.candidates), origin


def test_what_is_no_sum_answers_none(tmp_path: Path) -> None:
    report = _sums(tmp_path, [0, 1], 0.5)
    assert _answers(report) == {}
