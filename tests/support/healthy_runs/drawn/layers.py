"""Parts of a decoder, each written in several ways that compute the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor, nn
from torch.nn import functional

_BASE, _EPS, _CAP = 10000.0, 1e-6, 30.0


@dataclass(frozen=True)
class Ways:
    """How parts are written; none changes what they compute.

    Attributes:
        linear: one operator, a product and a sum, einsum, or a convolution.
        attention: the fused operator, scores that are scaled, or queries that are.
        rotary: halves turned at once, or one after the other.
        activation: the operator, or its formula.
        norm: the operator, or its formula with the weight behind or before the cast.
    """

    linear: int
    attention: int
    rotary: int
    activation: int
    norm: int

    @classmethod
    def draw(cls, random: Random) -> Ways:
        """Any of them."""
        return cls(*(random.randrange(count) for count in (4, 3, 2, 2, 3)))


class Norm(nn.Module):
    """Divides by the root mean square."""

    def __init__(self, width: int, ways: Ways) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.__dict__["ways"] = ways

    def forward(self, x: Tensor) -> Tensor:
        if self.ways.norm == 0:
            return functional.rms_norm(x, x.shape[-1:], self.weight, _EPS)
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + _EPS)
        if self.ways.norm == 1:
            return self.weight * wide.to(x.dtype)
        return (self.weight.float() * wide).to(x.dtype)


class Projection(nn.Module):
    """A product with a weight, and perhaps a bias."""

    def __init__(self, inner: int, outer: int, ways: Ways, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outer, inner) / math.sqrt(inner))
        self.bias = nn.Parameter(torch.randn(outer) * 0.1) if bias else None
        self.__dict__["ways"] = ways

    def forward(self, x: Tensor) -> Tensor:
        if self.ways.linear == 0:
            return functional.linear(x, self.weight, self.bias)
        if self.ways.linear == 3:
            kernel = self.weight.unsqueeze(-1)
            return functional.conv1d(x.transpose(1, 2), kernel, self.bias).transpose(1, 2)
        if self.ways.linear == 1:
            made = torch.matmul(x, self.weight.t())
        else:
            made = torch.einsum("...i,oi->...o", x, self.weight)
        return made if self.bias is None else made + self.bias


class Attention(nn.Module):
    """Causal or not, with grouped heads, rotary positions, capped scores, normed queries."""

    def __init__(self, width: int, heads: int, groups: int, ways: Ways, random: Random) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        bias = random.random() < 0.4
        sizes = [self.size * count for count in (heads, groups, groups)]
        self.is_packed = random.random() < 0.4
        if self.is_packed:
            self.qkv = Projection(width, sum(sizes), ways, bias=bias)
        else:
            self.q, self.k, self.v = (Projection(width, size, ways, bias=bias) for size in sizes)
        self.out = Projection(width, width, ways, bias=random.random() < 0.3)
        self.turns = random.random() < 0.6
        self.cap = random.choice([None, None, _CAP])
        self.norm = Norm(self.size, ways) if random.random() < 0.3 else None
        self.is_causal = random.random() < 0.8
        self.__dict__["ways"] = ways

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        counts = self.heads, self.groups, self.groups
        if self.is_packed:
            parts = self.qkv(x).split([self.size * count for count in counts], -1)
        else:
            parts = self.q(x), self.k(x), self.v(x)
        q, k, v = (
            part.view(batch, length, count, self.size).transpose(1, 2)
            for part, count in zip(parts, counts, strict=True)
        )
        q = q if self.norm is None else self.norm(q)
        if self.turns:
            q, k = self._turned(q), self._turned(k)
        times = self.heads // self.groups
        if times > 1:
            k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
        mixed = self._mixed(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1))

    def _turned(self, x: Tensor) -> Tensor:
        half = self.size // 2
        speeds = _BASE ** -(torch.arange(half, dtype=torch.float32) / half)
        angles = torch.outer(torch.arange(x.shape[-2]).float(), speeds)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        if self.ways.rotary == 0:
            turned = torch.cat([-x[..., half:], x[..., :half]], -1)
            return x * torch.cat([cos, cos], -1) + turned * torch.cat([sin, sin], -1)
        left, right = x.chunk(2, -1)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)

    def _mixed(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scales_queries = self.ways.attention == 2
        if self.ways.attention == 0 and self.cap is None:
            return functional.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        if scales_queries:
            scores = (q * self.size**-0.5) @ k.transpose(-1, -2)
        else:
            scores = q @ k.transpose(-1, -2) / math.sqrt(self.size)
        if self.cap is not None:
            scores = torch.tanh(scores / self.cap) * self.cap
        if self.is_causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            lowest = float("-inf") if scales_queries else torch.finfo(scores.dtype).min
            scores = scores.masked_fill(later, lowest)
        if scales_queries:
            return scores.softmax(-1) @ v
        return functional.softmax(scores, -1, dtype=torch.float32).to(q.dtype) @ v


class Mlp(nn.Module):
    """Gated, gated with one packed weight, or plain."""

    def __init__(self, width: int, inner: int, ways: Ways, random: Random) -> None:
        super().__init__()
        self.kind = random.choice(["gated", "packed", "plain"])
        self.activation = random.choice(["silu", "gelu", "tanh", "squared"])
        bias = random.random() < 0.4
        if self.kind == "gated":
            self.gate = Projection(width, inner, ways, bias=bias)
        self.up = Projection(width, inner * (1 + (self.kind == "packed")), ways, bias=bias)
        self.down = Projection(inner, width, ways, bias=bias)
        self.__dict__["ways"] = ways

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "gated":
            return self.down(self._active(self.gate(x)) * self.up(x))
        if self.kind == "packed":
            gate, up = self.up(x).chunk(2, -1)
            return self.down(self._active(gate) * up)
        return self.down(self._active(self.up(x)))

    def _active(self, x: Tensor) -> Tensor:
        is_operator = self.ways.activation == 0
        if self.activation == "silu":
            return functional.silu(x) if is_operator else x * torch.sigmoid(x)
        if self.activation == "squared":
            return functional.relu(x).square() if is_operator else functional.relu(x) ** 2
        if is_operator:
            shape = "tanh" if self.activation == "tanh" else "none"
            return functional.gelu(x, approximate=shape)
        if self.activation == "gelu":
            return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x.pow(3))))
