"""A decoder of which everything is drawn by its number."""

from __future__ import annotations

import math
from random import Random

import torch
from torch import Tensor, nn
from torch.nn import functional

from healthy_runs.drawn.layers import Attention, Mlp, Norm, Projection, Ways

VOCABULARY = 50
_POSITIONS, _CAP = 32, 20.0


class Block(nn.Module):
    """Norms before, behind, or one residual for both."""

    def __init__(self, sizes: tuple[int, int, int, int], ways: Ways, random: Random) -> None:
        super().__init__()
        width, heads, groups, inner = sizes
        self.attention = Attention(width, heads, groups, ways, random)
        self.mlp = Mlp(width, inner, ways, random)
        self.order = random.choice(["before", "before", "behind", "parallel"])
        own = random.random() < 0.7
        self.first, self.second = (
            Norm(width, ways) if own else nn.LayerNorm(width) for _ in range(2)
        )
        self.scale = random.choice([1.0, 1.0, 0.7])

    def forward(self, x: Tensor) -> Tensor:
        if self.order == "parallel":
            return x + self.attention(self.first(x)) + self.mlp(self.second(x))
        if self.order == "behind":
            x = self.first(x + self.attention(x))
            return self.second(x + self.mlp(x))
        attended = self.attention(self.first(x))
        x = x + (attended if self.scale == 1.0 else attended * self.scale)
        return x + self.mlp(self.second(x))


class Decoder(nn.Module):
    """Scaled or learned positions, one or two kinds of blocks, a tied or capped head.

    Args:
        number: draws the design and the weights.
        ways: how it is written.
    """

    def __init__(self, number: int, ways: Ways) -> None:
        super().__init__()
        random = Random(number)
        torch.manual_seed(number)
        width, heads = random.choice([32, 48, 64]), random.choice([2, 4])
        groups = random.choice([each for each in (1, 2, 4) if each <= heads])
        sizes = width, heads, groups, width * random.choice([2, 3])
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.scale = random.choice([1.0, 1.0, math.sqrt(width)])
        self.positions = nn.Embedding(_POSITIONS, width) if random.random() < 0.3 else None
        kinds = random.random(), random.random()
        alternates = random.random() < 0.2
        self.blocks = nn.ModuleList(
            Block(sizes, ways, Random(kinds[place % 2 if alternates else 0]))
            for place in range(random.choice([1, 2, 3]))
        )
        self.norm = Norm(width, ways)
        is_tied = random.random() < 0.4
        bias = random.random() < 0.2
        self.head = None if is_tied else Projection(width, VOCABULARY, ways, bias=bias)
        self.cap = random.choice([None, None, None, _CAP])

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        if self.scale != 1.0:
            x = x * self.scale
        if self.positions is not None:
            x = x + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        tied = self.embedding.weight
        logits = functional.linear(x, tied) if self.head is None else self.head(x)
        return logits if self.cap is None else torch.tanh(logits / self.cap) * self.cap
