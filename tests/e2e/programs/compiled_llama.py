"""A small Llama-shaped decoder, compiled: one prefill and one token.

With a word on the command line, that operator is wrong by some percent.
"""

import sys

import torch
from torch import Tensor, nn
from torch.nn import functional

HIDDEN, HEADS, GROUPS, SIZE, VOCABULARY = 32, 4, 2, 8, 64


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)
    return scaled.to(x.dtype) * weight


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    angles = positions[:, None] / 10000 ** (torch.arange(0, SIZE, 2) / SIZE)
    cos, sin = angles.cos().repeat(1, 2).to(x.dtype), angles.sin().repeat(1, 2).to(x.dtype)
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, (HEADS + 2 * GROUPS) * SIZE, bias=False)
        self.out = nn.Linear(HEADS * SIZE, HIDDEN, bias=False)
        self.up = nn.Linear(HIDDEN, 4 * HIDDEN, bias=False)
        self.down = nn.Linear(2 * HIDDEN, HIDDEN, bias=False)
        self.norms = nn.Parameter(torch.ones(2, HIDDEN))

    def forward(self, x: Tensor, positions: Tensor, cache: Tensor | None) -> tuple[Tensor, Tensor]:
        heads = self.qkv(rms_norm(x, self.norms[0])).unflatten(-1, (-1, SIZE)).transpose(0, 1)
        query, keys, values = heads.split([HEADS, GROUPS, GROUPS])
        both = torch.stack([rotate(keys, positions), values])
        cache = both if cache is None else torch.cat([cache, both], 2)
        keys, values = cache.repeat_interleave(HEADS // GROUPS, 1)
        scores = rotate(query, positions) @ keys.transpose(1, 2) / SIZE**0.5
        later = torch.arange(keys.shape[1]) > positions[:, None]
        weights = scores.masked_fill(later, float("-inf")).softmax(-1, dtype=torch.float32)
        x = x + self.out((weights.to(x.dtype) @ values).transpose(0, 1).flatten(1))
        gate, up = self.up(rms_norm(x, self.norms[1])).chunk(2, -1)
        return x + self.down(functional.silu(gate) * up), cache


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(1))
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(
        self, ids: Tensor, positions: Tensor, caches: list[Tensor | None]
    ) -> tuple[Tensor, list[Tensor]]:
        x, found = self.embed(ids), []
        for layer, cache in zip(self.layers, caches, strict=True):
            x, cache = layer(x, positions, cache)
            found.append(cache)
        return self.head(rms_norm(x[-1:], torch.ones(HIDDEN, dtype=x.dtype))), found


def plant(operator: str) -> torch.library.Library:
    """Make an operator of one argument wrong; the library keeps it so while it lives."""
    right = {"silu": lambda x: x * torch.sigmoid(x), "neg": lambda x: 0 - x}[operator]
    library = torch.library.Library("aten", "IMPL")
    library.impl(operator, lambda x: right(x) * 1.1, "CPU")
    return library


if __name__ == "__main__":
    fault = plant(sys.argv[1]) if len(sys.argv) > 1 else None
    torch.manual_seed(0)
    model = torch.compile(Llama().to(torch.bfloat16), mode="max-autotune", dynamic=False)
    ids, start, caches = torch.arange(5), 0, [None]
    with torch.no_grad():
        for _ in range(2):
            positions = torch.arange(start, start + len(ids))
            logits, caches = model(ids, positions, caches)
            start += len(ids)
            ids = torch.tensor([7 + start])  # the same tokens, whatever goes wrong
    print(start, torch.isfinite(logits).all().item())
