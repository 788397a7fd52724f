"""Models that were made otherwise as a whole: trained on, or with a layer less."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from generating import model
from torch import nn
from transformers import LlamaForCausalLM

from ait_llm import DumpConfig, compare, register_hook
from ait_llm.core.comparison import Report

PROMPT = torch.tensor([[27, 25, 14, 77, 21, 20, 11, 89, 24, 51, 62, 7]])
KINDS = pytest.mark.parametrize("operators", [False, True], ids=["modules", "operators"])


class WithDropout(nn.Module):
    def __init__(self, chance: float) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)
        self.dropout = nn.Dropout(chance)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.dropout(torch.relu(self.first(x))))


def compared(
    folder: Path, golden: nn.Module, mine: nn.Module, x: torch.Tensor, *, operators: bool
) -> Report:
    for name, made in (("golden", golden), ("mine", mine)):
        config = DumpConfig(str(folder / name), operators=operators)
        with torch.no_grad(), register_hook(made, config):
            made(x)
    return compare(folder / "golden", folder / "mine", jobs=1)


def seeded(chance: float) -> WithDropout:
    torch.manual_seed(1)
    return WithDropout(chance).eval()


@KINDS
def test_a_program_that_trains_is_told_by_its_mode(operators: bool, tmp_path: Path) -> None:
    x = torch.randn(4, 32)
    report = compared(tmp_path, seeded(0.3), seeded(0.3).train(), x, operators=operators)
    assert report.exit_code() == 1
    (origin,) = report.origins
    assert origin.kind == "other definition"
    assert "`training` of `root.dropout` is True instead of False" in origin.evidence


def test_the_mode_is_that_of_the_call(tmp_path: Path) -> None:
    x = torch.randn(4, 32)
    for name in ("golden", "mine"):
        made = seeded(0.3).train(name == "golden")
        with torch.no_grad(), register_hook(made, DumpConfig(str(tmp_path / name))):
            made.eval()
            made(x)
    report = compare(tmp_path / "golden", tmp_path / "mine", jobs=1)
    assert report.exit_code() == 0
    assert not any("training" in problem.text for problem in report.problems)


@KINDS
def test_dropout_in_attention_is_told_by_the_mode_of_its_module(
    operators: bool, tmp_path: Path
) -> None:
    golden, mine = model(attention_dropout=0.0), model(attention_dropout=0.2).train()
    report = compared(tmp_path, golden, mine, PROMPT, operators=operators)
    assert report.exit_code() == 1
    (origin,) = report.origins
    text = "`training` of `root.model.layers.0.self_attn` is True instead of False"
    assert text in origin.evidence


@KINDS
def test_the_mode_says_nothing_where_nothing_depends_on_it(operators: bool, tmp_path: Path) -> None:
    x = torch.randn(4, 32)
    report = compared(tmp_path, seeded(0.0), seeded(0.0).train(), x, operators=operators)
    assert report.exit_code() == 0
    assert not any("training" in problem.text for problem in report.problems)


def without_a_layer(made: LlamaForCausalLM) -> LlamaForCausalLM:
    del made.model.layers[1]
    for place, layer in enumerate(made.model.layers):
        layer.self_attn.layer_idx = place
    made.config.num_hidden_layers = len(made.model.layers)
    return made


@KINDS
@pytest.mark.parametrize("turned", [False, True], ids=["mine", "golden"])
def test_behind_a_layer_left_out_nobody_is_certainly_guilty(
    turned: bool, operators: bool, tmp_path: Path
) -> None:
    sides = model(num_hidden_layers=3), without_a_layer(model(num_hidden_layers=3))
    golden, mine = sides[::-1] if turned else sides
    report = compared(tmp_path, golden, mine, PROMPT, operators=operators)
    assert report.exit_code() == 1
    assert not any(origin.certain for origin in report.origins)
    assert "`config.num_hidden_layers` of `root` is" in report.origins[0].evidence


class Apart(nn.Module):
    """Queries, keys and values by projections of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(32, 32) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.o(nn.functional.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x)))


class Joined(nn.Module):
    """The same by one projection."""

    def __init__(self, apart: Apart, order: str = "qkv") -> None:
        super().__init__()
        self.c_attn, self.o = nn.Linear(32, 96), apart.o
        parts = [getattr(apart, name) for name in order]
        with torch.no_grad():
            self.c_attn.weight.copy_(torch.cat([part.weight for part in parts]))
            self.c_attn.bias.copy_(torch.cat([part.bias for part in parts]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.c_attn(x).split(32, -1)
        return self.o(nn.functional.scaled_dot_product_attention(*parts))


@KINDS
@pytest.mark.parametrize("turned", [False, True], ids=["mine", "golden"])
def test_the_width_of_a_joined_projection_is_no_other_definition(
    turned: bool, operators: bool, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    apart = Apart()
    for order, code in (("qkv", 0), ("kqv", 1)):
        sides = apart, Joined(apart, order)
        golden, mine = sides[::-1] if turned else sides
        x = torch.randn(2, 7, 32)
        report = compared(tmp_path / order, golden, mine, x, operators=operators)
        assert report.exit_code() == code
        told = [each.text for each in report.problems] + [each.evidence for each in report.origins]
        assert not any("features" in text for text in told)
