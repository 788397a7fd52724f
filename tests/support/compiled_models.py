"""Small models for captures of torch.compile."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, HIDDEN, VOCABULARY = 16, 2, 24, 32


class Norm(nn.Module):
    """RMS norm over the last dim."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, (WIDTH,), self.weight, 1e-6)


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Rotary embedding of halves; x [heads, tokens, size], angles [tokens, size]."""
    first, second = x.chunk(2, -1)
    return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()


class Llama(nn.Module):
    """One decoder layer of a Llama, with embedding and head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.before, self.after, self.last = Norm(), Norm(), Norm()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        tokens = x.shape[0]
        angles = torch.arange(tokens)[:, None] / 100 ** torch.linspace(0, 1, WIDTH // HEADS)
        angles = angles.to(x.dtype)
        heads = self.qkv(self.before(x)).view(tokens, 3, HEADS, -1).permute(1, 2, 0, 3)
        query, keys = rotate(heads[0], angles), rotate(heads[1], angles)
        mixed = functional.scaled_dot_product_attention(query[None], keys[None], heads[2][None])
        x = x + self.out(mixed[0].transpose(0, 1).reshape(tokens, WIDTH))
        y = self.after(x)
        x = x + self.down(functional.silu(self.gate(y)) * self.up(y))
        return self.head(self.last(x))


class ReadLater(nn.Module):
    """A cache that one kernel writes in place, and a later kernel reads."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(6, 8))
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        silu = nn.functional.silu
        self.cache.index_copy_(0, at, silu(x))
        return silu(self.cache @ self.weight) * self.cache


class Cache(nn.Module):
    """Writes into a buffer of its own, and reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("rows", torch.zeros(6, 8))

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        self.rows.index_copy_(0, places, self.linear(x) * 2)
        return functional.silu(self.rows[:4]) @ x.T
