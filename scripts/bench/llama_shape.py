"""A Llama-shaped model in plain torch, for benchmarks that must not depend on transformers."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RmsNorm(nn.Module):
    """Root-mean-square normalisation over the last axis."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, True) + 1e-6)).to(x.dtype)


class Attention(nn.Module):
    """Causal self-attention with separate projections."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nn.Linear(hidden, hidden, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, hidden = x.shape
        q, k, v = (
            proj(x).view(batch, length, self.heads, -1).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, hidden))


class Mlp(nn.Module):
    """SwiGLU feed-forward."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One decoder layer."""

    def __init__(self, hidden: int, heads: int, inner: int) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(hidden)
        self.self_attn = Attention(hidden, heads)
        self.post_attention_layernorm = RmsNorm(hidden)
        self.mlp = Mlp(hidden, inner)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class LlamaShape(nn.Module):
    """Embedding, decoder layers, norm, head.

    Args:
        hidden: width.
        layers: number of decoder layers.
        vocab: size of the vocabulary.
    """

    def __init__(self, hidden: int = 512, layers: int = 8, vocab: int = 4096) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList(
            Layer(hidden, hidden // 64, hidden * 11 // 4) for _ in range(layers)
        )
        self.norm = RmsNorm(hidden)
        self.lm_head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))
