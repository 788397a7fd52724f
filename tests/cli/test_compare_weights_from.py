"""``ait llm compare --weights-from``: checkpoints for captures without weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import save_file
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook
from ait_llm.cli.main import ait

WIDTHS = (32, 16, 16)
PARTS = ("q_proj", "k_proj", "v_proj")


class Attention(nn.Module):
    """As ``transformers`` has it, or with one projection as engines do."""

    def __init__(self, is_joined: bool) -> None:
        super().__init__()
        if is_joined:
            self.qkv_proj = nn.Linear(32, sum(WIDTHS))
        else:
            for part, width in zip(PARTS, WIDTHS, strict=True):
                setattr(self, part, nn.Linear(32, width))
        self.o_proj = nn.Linear(32, 32)
        self.is_joined = is_joined

    def forward(self, x: Tensor) -> Tensor:
        if self.is_joined:
            parts = self.qkv_proj(x).split(WIDTHS, -1)
        else:
            parts = tuple(getattr(self, part)(x) for part in PARTS)
        q, k, v = (part.unflatten(-1, (-1, 8)).transpose(-2, -3) for part in parts)
        k, v = (part.repeat_interleave(2, -3) for part in (k, v))
        context = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        result: Tensor = self.o_proj(context.transpose(-2, -3).flatten(-2))
        return result


class Layer(nn.Module):
    def __init__(self, is_joined: bool) -> None:
        super().__init__()
        self.input_layernorm = nn.LayerNorm(32)
        self.self_attn = Attention(is_joined)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x + self.self_attn(self.input_layernorm(x))
        return result


class Model(nn.Module):
    """Two layers, embedding and head of one weight."""

    def __init__(self, is_joined: bool = False) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(40, 32)
        self.model.layers = nn.ModuleList(Layer(is_joined) for _ in range(2))
        self.model.norm = nn.LayerNorm(32)
        self.lm_head = nn.Linear(32, 40, bias=False)
        self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x)
        result: Tensor = self.lm_head(self.model.norm(x))
        return result


@pytest.fixture
def sides(tmp_path: Path) -> Path:
    """A folder with two captures without weights, and the checkpoint of both."""
    torch.manual_seed(2)
    golden, mine = Model().requires_grad_(False), Model(is_joined=True).requires_grad_(False)
    weights = dict(golden.state_dict())
    stored = {name: each.clone() for name, each in weights.items() if name != "lm_head.weight"}
    (tmp_path / "checkpoint").mkdir()
    save_file(stored, tmp_path / "checkpoint" / "model.safetensors")
    for layer in range(2):
        at = f"model.layers.{layer}.self_attn"
        for kind in ("weight", "bias"):
            parts = [weights.pop(f"{at}.{part}.{kind}") for part in PARTS]
            weights[f"{at}.qkv_proj.{kind}"] = torch.cat(parts)
    mine.load_state_dict(weights)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    for side, model in (("golden", golden), ("mine", mine)):
        with register_hook(model, DumpConfig(str(tmp_path / side))):
            model(ids)
    return tmp_path


def _compare(folder: Path, *words: str) -> Result:
    given = ["-gp", str(folder / "golden"), "-mp", str(folder / "mine"), "-o", str(folder / "out")]
    return CliRunner().invoke(ait, ["llm", "compare", *given, "--format", "jsonl", *words])


def _weights(folder: Path) -> list[dict[str, Any]]:
    (report,) = (folder / "out").rglob("*.jsonl")
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    return [
        line
        for line in lines
        if line["type"] == "comparison" and (line.get("mine") or {}).get("role") == "weight"
    ]


def test_a_checkpoint_stands_in_for_both_captures(sides: Path) -> None:
    checkpoint = sides / "checkpoint"
    found = _compare(sides, "--weights-from", f"golden={checkpoint}", f"mine={checkpoint}")
    assert found.exit_code == 0, found.output
    rows = _weights(sides)
    assert all(row["verdict"] == "PASS" for row in rows)
    joined = {
        (row["golden"]["op"], row["my_view"])
        for row in rows
        if row["mine"]["op"] == "root.model.layers.1.self_attn.qkv_proj"
        and row["mine"]["name"] == "weight"
    }
    at = "root.model.layers.1.self_attn"
    assert joined == {
        (f"{at}.q_proj", "0:32 of axis 0"),
        (f"{at}.k_proj", "32:48 of axis 0"),
        (f"{at}.v_proj", "48:64 of axis 0"),
    }
    assert "root.lm_head" in {row["mine"]["op"] for row in rows}


def test_a_checkpoint_that_one_side_was_not_run_with_is_told(sides: Path) -> None:
    other = Model().requires_grad_(False).state_dict()
    other = {f"wrapped.{name}": each.clone() for name, each in other.items()}
    save_file(other, sides / "other.safetensors")
    words = f"golden={sides / 'checkpoint'}", f"mine={sides / 'other.safetensors'}"
    assert _compare(sides, "--weights-from", *words).exit_code == 1
    assert {row["verdict"] for row in _weights(sides)} >= {"FAIL"}


def test_what_is_no_checkpoint_of_the_model_is_refused(sides: Path) -> None:
    save_file({"a.weight": torch.ones(2)}, sides / "a.safetensors")
    found = _compare(sides, "--weights-from", f"mine={sides / 'a.safetensors'}")
    assert "holds no weight that is called like a module of my dump" in found.output
    found = _compare(sides, "--weights-from", "both=x")
    assert found.exit_code == 2
    assert "write golden=PATH or mine=PATH" in found.output
    found = _compare(sides, "--weights-from", f"mine={sides / 'nothing'}")
    assert found.exit_code == 2
