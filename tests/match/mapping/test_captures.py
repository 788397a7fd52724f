"""Mappings of real captures: ATB against PyTorch, transformers against itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from ait_llm import DumpConfig, register_hook
from tests.match.mapping.checking import check_round_trip, compared, matched
from tests.match.programs.families import FAMILIES, capture, random_weights, sequences

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("family", ["qwen3", "phi3", "glm", "neox", "mixtral"])
def test_atb_against_torch_in_both_directions(family: str, tmp_path: Path) -> None:
    runs = capture(FAMILIES[family], tmp_path)
    for golden, mine in ((runs.torch, runs.atb), (runs.atb, runs.torch)):
        found = matched(golden, mine)
        assert len(found[2]) > 50
        lines = check_round_trip([found], tmp_path / "mapping.txt")
        assert len(lines) < 0.7 * len(found[2])


@pytest.mark.parametrize("operators", [False, True])
def test_transformers_against_itself(operators: bool, tmp_path: Path) -> None:
    model = random_weights(FAMILIES["qwen3"].make())
    folders = tmp_path / "golden", tmp_path / "mine"
    for folder in folders:
        config = DumpConfig(str(folder), token_range=[0, 1], operators=operators)
        with torch.no_grad(), register_hook(model, config):
            model.generate(sequences()[0][None], max_new_tokens=2, do_sample=False, pad_token_id=0)
    found = compared(*folders)
    assert len(found) == 2
    lines = check_round_trip(found, tmp_path / "mapping.txt")
    if operators:
        assert len(lines) < sum(len(matches) for _, _, matches in found) / 4
    else:
        assert len(lines) < 15
        assert all(line.endswith(" -> =") for line in lines)
