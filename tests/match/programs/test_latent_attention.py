"""Attention with latent keys and values: projections joined, apart, or split as engines do it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook
from ait_llm.match.model import Match
from ait_llm.match.views import apply
from tests.match.programs.checking import matched, matches_of, wrong_numbers
from tests.match.programs.families import read_torch

HIDDEN, HEADS, NOPE, ROPE, VALUE, Q_RANK, KV_RANK, LAYERS = 32, 4, 8, 4, 6, 20, 12, 2


class Latent(nn.Module):
    """DeepSeek's attention without positions.

    Args:
        is_fused: ``q_a`` and ``kv_a`` are one projection, in this order or the other.
        is_split: ``kv_b`` is one projection for keys and one for values.
    """

    def __init__(self, is_fused: bool, is_split: bool, kv_first: bool) -> None:
        super().__init__()
        self.is_fused, self.is_split, self.kv_first = is_fused, is_split, kv_first
        if is_fused:
            self.fused_qkv_a_proj = nn.Linear(HIDDEN, Q_RANK + KV_RANK + ROPE, bias=False)
        else:
            self.q_a_proj = nn.Linear(HIDDEN, Q_RANK, bias=False)
            self.kv_a_proj_with_mqa = nn.Linear(HIDDEN, KV_RANK + ROPE, bias=False)
        self.q_a_layernorm, self.kv_a_layernorm = nn.RMSNorm(Q_RANK), nn.RMSNorm(KV_RANK)
        self.q_b_proj = nn.Linear(Q_RANK, HEADS * (NOPE + ROPE), bias=False)
        if is_split:
            self.k_b_proj = nn.Linear(KV_RANK, HEADS * NOPE, bias=False)
            self.v_b_proj = nn.Linear(KV_RANK, HEADS * VALUE, bias=False)
        else:
            self.kv_b_proj = nn.Linear(KV_RANK, HEADS * (NOPE + VALUE), bias=False)
        self.o_proj = nn.Linear(HEADS * VALUE, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.is_fused:
            widths = [Q_RANK, KV_RANK + ROPE]
            parts = self.fused_qkv_a_proj(x).split(widths[::-1] if self.kv_first else widths, -1)
            q, kv = parts[::-1] if self.kv_first else parts
        else:
            q, kv = self.q_a_proj(x), self.kv_a_proj_with_mqa(x)
        latent, shared = kv.split([KV_RANK, ROPE], -1)
        latent = self.kv_a_layernorm(latent)
        q = self.q_b_proj(self.q_a_layernorm(q)).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        if self.is_split:
            k = self.k_b_proj(latent).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            v = self.v_b_proj(latent).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        else:
            both = self.kv_b_proj(latent).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            k, v = both.split([NOPE, VALUE], -1)
        k = torch.cat([k, shared.unsqueeze(1).expand(-1, HEADS, -1, -1)], -1)
        context = (q @ k.transpose(-1, -2) / 3.5).softmax(-1) @ v
        result: Tensor = self.o_proj(context.transpose(1, 2).flatten(-2))
        return result


class Layer(nn.Module):
    def __init__(self, *form: bool) -> None:
        super().__init__()
        self.input_layernorm, self.self_attn = nn.RMSNorm(HIDDEN), Latent(*form)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x + self.self_attn(self.input_layernorm(x))
        return result


class Model(nn.Module):
    def __init__(self, is_fused: bool = False, is_split: bool = False, kv_first: bool = False):
        super().__init__()
        form = is_fused, is_split, kv_first
        self.embed_tokens = nn.Embedding(40, HIDDEN)
        self.layers = nn.ModuleList(Layer(*form) for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        result: Tensor = self.norm(x)
        return result


def _other(golden: Model, is_fused: bool, is_split: bool, kv_first: bool) -> Model:
    weights = dict(golden.state_dict())
    for layer in range(LAYERS):
        at = f"layers.{layer}.self_attn"
        if is_fused:
            parts = [weights.pop(f"{at}.{n}.weight") for n in ("q_a_proj", "kv_a_proj_with_mqa")]
            weights[f"{at}.fused_qkv_a_proj.weight"] = torch.cat(parts[::-1] if kv_first else parts)
        if is_split:
            both = weights.pop(f"{at}.kv_b_proj.weight").unflatten(0, (HEADS, NOPE + VALUE))
            weights[f"{at}.k_b_proj.weight"] = both[:, :NOPE].flatten(0, 1)
            weights[f"{at}.v_b_proj.weight"] = both[:, NOPE:].flatten(0, 1)
    model = Model(is_fused, is_split, kv_first).requires_grad_(False)
    model.load_state_dict(weights)
    return model


def _covered(matches: list[Match], side: str, part: str) -> set[int]:
    """Columns of the result of a projection of layer 1 that are compared."""
    columns: set[int] = set()
    for match in matches:
        source = match.golden if side == "golden" else match.mine
        if source.record.role == "out" and source.record.op.endswith(f"1.self_attn.{part}"):
            shape = source.tensor.shape
            labels = np.broadcast_to(np.arange(shape[-1]), shape)
            columns |= set(apply(labels, source.views).reshape(-1).tolist())
    return columns


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    ("is_fused", "is_split", "kv_first"),
    [(True, False, False), (True, False, True), (False, True, False), (True, True, True)],
)
def test_every_column_has_its_counterpart(
    tmp_path: Path, is_fused: bool, is_split: bool, kv_first: bool, swapped: bool
) -> None:
    torch.manual_seed(5)
    golden = Model().requires_grad_(False)
    models = [golden, _other(golden, is_fused, is_split, kv_first)]
    names = ["apart", "other"]
    for name, model in zip(names, models, strict=True):
        with register_hook(model, DumpConfig(str(tmp_path / name), weights=True)):
            model(torch.tensor([[3, 1, 4, 1, 5]]))
    sides = [read_torch(tmp_path / name) for name in (names[::-1] if swapped else names)]
    found = matched(*sides)
    assert wrong_numbers(found, 1e-4) == []
    matches = matches_of(found)
    apart, other = ("mine", "golden") if swapped else ("golden", "mine")
    for part, width in (
        ("q_a_proj", Q_RANK),
        ("kv_a_proj_with_mqa", KV_RANK + ROPE),
        ("q_b_proj", HEADS * (NOPE + ROPE)),
        ("kv_b_proj", HEADS * (NOPE + VALUE)),
    ):
        assert _covered(matches, apart, part) == set(range(width)), part
    if is_fused and not swapped:  # else what the norms read of it answers
        whole = set(range(Q_RANK + KV_RANK + ROPE))
        assert _covered(matches, other, "fused_qkv_a_proj") == whole
    if is_split:
        assert _covered(matches, other, "k_b_proj") == set(range(HEADS * NOPE))
        assert _covered(matches, other, "v_b_proj") == set(range(HEADS * VALUE))
