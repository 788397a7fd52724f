"""One decoder written in two ways: every tensor that both programs hold is found, operators too."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path

import pytest
import torch
from matching_truth.program import Program, capture
from matching_truth.scoring import score_captures
from torch import Tensor, nn

WIDTH, HEADS, GROUPS, DIM, INNER, WORDS, TOKENS = 24, 4, 2, 8, 40, 50, 7


@dataclass(frozen=True)
class Way:
    """How a decoder is written.

    Attributes:
        square: of a norm: ``pow`` or ``self``, the product with itself.
        root: ``rsqrt``, or one divided by ``sqrt``.
        joined: queries, keys and values in one projection, and gate and up.
        rotary: ``halves``: -x2 beside x1; ``parts``: both halves are computed apart and joined.
        turned: a head's first dims that are turned.
        repeat: keys are repeated ``before`` they are turned, or ``after``.
        scale: scores are multiplied, or ``divided``.
        heads_last: attention swaps its axes behind the projections that way round.
    """

    square: str = "pow"
    root: str = "rsqrt"
    joined: bool = False
    rotary: str = "halves"
    turned: int = DIM
    repeat: str = "after"
    scale: str = "multiplied"
    heads_last: bool = False


class RMSNorm(nn.Module):
    def __init__(self, way: Way) -> None:
        super().__init__()
        self.way = way
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        squares = x.pow(2) if self.way.square == "pow" else x * x
        mean = squares.mean(-1, keepdim=True) + 1e-5
        root = torch.rsqrt(mean) if self.way.root == "rsqrt" else 1 / torch.sqrt(mean)
        return self.weight * (x * root)


class Attention(nn.Module):
    def __init__(self, way: Way) -> None:
        super().__init__()
        self.way = way
        if way.joined:
            self.qkv_proj = nn.Linear(WIDTH, (HEADS + 2 * GROUPS) * DIM, bias=False)
        else:
            self.q_proj = nn.Linear(WIDTH, HEADS * DIM, bias=False)
            self.k_proj = nn.Linear(WIDTH, GROUPS * DIM, bias=False)
            self.v_proj = nn.Linear(WIDTH, GROUPS * DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * DIM, WIDTH, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        if self.way.joined:
            sizes = [HEADS * DIM, GROUPS * DIM, GROUPS * DIM]
            q, k, v = self.qkv_proj(x).split(sizes, -1)
        else:
            q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        q, k, v = (self._heads(each) for each in (q, k, v))
        if self.way.repeat == "before":
            q, k = self._turned(q, cos, sin), self._turned(self._repeated(k), cos, sin)
        else:
            q, k = self._turned(q, cos, sin), self._repeated(self._turned(k, cos, sin))
        scores = q @ k.transpose(-1, -2)
        scores = scores / sqrt(DIM) if self.way.scale == "divided" else scores * DIM**-0.5
        hidden = torch.triu(torch.ones(TOKENS, TOKENS, dtype=torch.bool), 1)
        chances = scores.masked_fill(hidden, -1e9).softmax(-1)
        mixed = chances @ self._repeated(v)
        return self.o_proj(mixed.transpose(1, 2).reshape(*x.shape[:2], -1))

    def _heads(self, x: Tensor) -> Tensor:
        apart = x.unflatten(-1, (-1, DIM))
        return apart.permute(0, 2, 1, 3) if self.way.heads_last else apart.transpose(1, 2)

    def _repeated(self, x: Tensor) -> Tensor:
        return (
            x[:, :, None]
            .expand(-1, -1, HEADS // GROUPS, -1, -1)
            .reshape(x.shape[0], HEADS, *x.shape[2:])
        )

    def _turned(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        front, rest = x[..., : self.way.turned], x[..., self.way.turned :]
        if self.way.rotary == "halves":
            first, second = front.chunk(2, -1)
            front = front * cos + torch.cat((-second, first), -1) * sin
            return torch.cat((front, rest), -1)
        half = self.way.turned // 2
        swapped = torch.cat((front[..., half:].neg(), front[..., :half]), dim=-1)
        front = swapped * sin + front * cos
        return front if self.way.turned == DIM else torch.cat((front, rest), -1)


class MLP(nn.Module):
    def __init__(self, way: Way) -> None:
        super().__init__()
        self.way = way
        if way.joined:
            self.gate_up_proj = nn.Linear(WIDTH, 2 * INNER, bias=False)
        else:
            self.gate_proj = nn.Linear(WIDTH, INNER, bias=False)
            self.up_proj = nn.Linear(WIDTH, INNER, bias=False)
        self.down_proj = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.way.joined:
            gate, up = self.gate_up_proj(x).chunk(2, -1)
            return self.down_proj(up * nn.functional.silu(gate))
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, way: Way) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(way), RMSNorm(way)
        self.self_attn, self.mlp = Attention(way), MLP(way)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, way: Way) -> None:
        super().__init__()
        self.way = way
        self.embed_tokens = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer(way) for _ in range(2))
        self.norm = RMSNorm(way)
        self.lm_head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        half = self.way.turned // 2
        rates = 0.1 ** torch.arange(half, dtype=self.lm_head.weight.dtype)
        angles = torch.arange(ids.shape[1])[:, None] * rates
        cos, sin = (torch.cat((each, each), -1) for each in (angles.cos(), angles.sin()))
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.lm_head(self.norm(x))


def _decoder(way: Way) -> nn.Module:
    """With the same weights whatever the way."""
    torch.manual_seed(3)
    plain = Decoder(replace(way, joined=False))
    for name, weight in plain.named_parameters():
        nn.init.normal_(weight, 1 if "norm" in name else 0, 0.4)
    if not way.joined:
        return plain
    found = Decoder(way)
    state = plain.state_dict()
    for name in list(found.state_dict()):
        head, _, _ = name.rpartition("_proj.weight")
        stem = head.rpartition(".")[0]
        if head.endswith("qkv"):
            state[name] = torch.cat([state.pop(f"{stem}.{part}_proj.weight") for part in "qkv"])
        elif head.endswith("gate_up"):
            state[name] = torch.cat(
                [state.pop(f"{stem}.{part}_proj.weight") for part in ("gate", "up")]
            )
    found.load_state_dict(state)
    return found


def _program(name: str, way: Way) -> Program:
    ids = torch.arange(TOKENS)[None] * 5 % WORDS
    return Program(name, lambda: _decoder(way), lambda model: model(ids), operators=True)


WAYS = {
    "square": (Way(), Way(square="self")),
    "root": (Way(), Way(root="division")),
    "joined": (Way(), Way(joined=True)),
    "rotary": (Way(), Way(rotary="parts")),
    "part of a head": (Way(turned=4), Way(turned=4, rotary="parts")),
    "repeated earlier": (Way(), Way(repeat="before")),
    "scale": (Way(), Way(scale="divided")),
    "all": (
        Way(turned=4),
        Way("self", "division", True, "parts", 4, "before", "divided", heads_last=True),
    ),
}


@pytest.mark.parametrize("name", WAYS)
def test_all_that_both_programs_hold_is_found(name: str, tmp_path: Path) -> None:
    golden, mine = (
        capture(_program(side, way), tmp_path)
        for side, way in zip(("golden", "mine"), WAYS[name], strict=True)
    )
    found = score_captures(golden, mine)
    assert found.total > 200
    assert found.wrong == 0, "\n".join(found.details)
    assert found.recall >= 0.99, "\n".join(found.details)
