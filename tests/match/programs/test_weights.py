"""Weights of ATB operations against parameters that the torch side saved."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import ait_llm.hostatb as torch_atb
from ait_llm import DumpConfig, register_hook
from ait_llm.match.views import Reorder, describe
from tests.match.programs.atb_program import AtbProgram
from tests.match.programs.checking import Found, matched, matches_of, unmatched_of, wrong_numbers
from tests.match.programs.families import FAMILIES, capture, read_atb, read_torch


def _parameters(found: Found, mine: str) -> dict[str, str]:
    """Views of a tensor of mine by the parameter that answers it."""
    return {
        match.golden.record.title: describe(match.mine.views)
        for match in matches_of(found)
        if match.mine.record.title == mine and match.golden.record.role == "weight"
    }


@pytest.mark.parametrize("family", ["qwen2", "neox", "mixtral"])
def test_every_weight_of_a_paired_operation_is_compared(tmp_path: Path, family: str) -> None:
    runs = capture(FAMILIES[family], tmp_path, weights=True)
    found = matched(runs.torch, runs.atb)
    assert wrong_numbers(found) == []
    left = {
        item.record.title
        for item in unmatched_of(found)
        if item.record.op.startswith(("LinearOperation", "RmsNorm", "LayerNorm"))
        and item.record.role == "in"
    }
    assert left == set()


def test_parameters_are_stretches_of_a_packed_weight(tmp_path: Path) -> None:
    runs = capture(FAMILIES["qwen2"], tmp_path, weights=True)
    found = matched(runs.torch, runs.atb)
    attention = "root.model.layers.1.self_attn"
    assert _parameters(found, "LinearOperation_3_0_1 intensor1") == {
        f"{attention}.q_proj weight": "0:64 of axis 0",
        f"{attention}.k_proj weight": "64:96 of axis 0",
        f"{attention}.v_proj weight": "96:128 of axis 0",
    }
    assert _parameters(found, "LinearOperation_3_0_1 intensor2") == {
        f"{attention}.q_proj bias": "0:64 of axis 0",
        f"{attention}.k_proj bias": "64:96 of axis 0",
        f"{attention}.v_proj bias": "96:128 of axis 0",
    }


def test_graphs_around_show_the_same_weights(tmp_path: Path) -> None:
    runs = capture(FAMILIES["qwen2"], tmp_path, weights=True)
    names = _parameters(matched(runs.torch, runs.atb), "LmHead_5 intensor1")
    assert names == {"root.lm_head weight": ""}


def test_a_weight_that_is_stored_the_other_way_round_is_turned(tmp_path: Path) -> None:
    model = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16)).half().requires_grad_(False)
    x = torch.randn(5, 16, generator=torch.Generator().manual_seed(0)).half()
    with register_hook(model, DumpConfig(str(tmp_path / "golden"), weights=True)):
        model(x)
    program = AtbProgram(tmp_path / "mine")
    kinds = torch_atb.LayerNormParam
    normal = kinds.NormParam(epsilon=1e-5, begin_norm_axis=1, begin_params_axis=1)
    norm = kinds(layer_type=kinds.LayerNormType.LAYER_NORM_NORM, norm_param=normal)
    y = program.run(norm, x, model[0].weight.data, model[0].bias.data)
    weight = model[1].weight.data.t().contiguous()
    linear = torch_atb.LinearParam(transpose_b=False, has_bias=True)
    program.run(linear, y, weight, model[1].bias.data)
    found = matched(read_torch(tmp_path / "golden"), read_atb(tmp_path / "mine"))
    (match,) = (
        match for match in matches_of(found) if match.golden.record.title == "root.1 weight"
    )
    assert match.mine.views == (Reorder((1, 0)),)
    assert wrong_numbers(found) == []


def test_without_saved_parameters_the_reason_says_how_to_get_them(tmp_path: Path) -> None:
    runs = capture(FAMILIES["qwen2"], tmp_path)
    reasons = {
        item.reason
        for item in unmatched_of(matched(runs.torch, runs.atb))
        if item.record.title == "LmHead_5 intensor1"
    }
    assert reasons == {
        "it is a weight or a table, and the golden dump has no parameter for it; "
        "dump it with --weights"
    }
