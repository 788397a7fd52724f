"""Random weights that depend only on the seed and the name of the tensor.

Names are those of Hugging Face checkpoints, so that a twin loads them as its state dict. Each
tensor has its own generator: the same name gives the same values whatever else a model holds.
"""

from __future__ import annotations

import zlib

import torch
from torch import Tensor, nn

from ait_llm.hostatb.models.config import BertConfig, LlamaConfig

Weights = dict[str, Tensor]

# As in published checkpoints; small enough that the norm's epsilon matters in the first layer.
_EMBEDDING_STD = 0.02
_NORM_SPREAD = 0.1
_BIAS_STD = 0.1


def unset_embedding(rows: int, columns: int) -> nn.Embedding:
    """An embedding whose weight ``[rows, columns]`` is to be loaded.

    ``nn.Embedding`` draws normal numbers, and on the meta device that loads ``torch._dynamo``,
    which takes as long as loading torch.
    """
    return nn.Embedding(rows, columns, _weight=torch.empty(rows, columns))


class _Draw:
    """Draws tensors of one model."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        self._seed = seed
        self._dtype = dtype

    def normal(self, name: str, shape: tuple[int, ...], std: float, mean: float = 0.0) -> Tensor:
        generator = torch.Generator()
        generator.manual_seed(zlib.crc32(f"{self._seed}/{name}".encode()))
        values = torch.randn(shape, generator=generator, dtype=torch.float32)
        return values.mul_(std).add_(mean).to(self._dtype)

    def embedding(self, weights: Weights, name: str, rows: int, columns: int) -> None:
        key = f"{name}.weight"
        weights[key] = self.normal(key, (rows, columns), _EMBEDDING_STD)

    def linear(self, weights: Weights, name: str, out: int, fan_in: int, *, bias: bool) -> None:
        # Variance 1/fan_in keeps the scale of activations from layer to layer.
        key = f"{name}.weight"
        weights[key] = self.normal(key, (out, fan_in), fan_in**-0.5)
        if bias:
            key = f"{name}.bias"
            weights[key] = self.normal(key, (out,), _BIAS_STD)

    def norm(self, weights: Weights, name: str, size: int, *, bias: bool) -> None:
        key = f"{name}.weight"
        weights[key] = self.normal(key, (size,), _NORM_SPREAD, mean=1.0)
        if bias:
            key = f"{name}.bias"
            weights[key] = self.normal(key, (size,), _BIAS_STD)


def llama_weights(config: LlamaConfig, seed: int) -> Weights:
    """Random weights of a Llama model in ``config.dtype``, by Hugging Face name."""
    draw = _Draw(seed, config.dtype)
    weights: Weights = {}
    hidden = config.hidden_size
    draw.embedding(weights, "model.embed_tokens", config.vocab_size, hidden)
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}"
        draw.norm(weights, f"{prefix}.input_layernorm", hidden, bias=False)
        draw.linear(weights, f"{prefix}.self_attn.q_proj", hidden, hidden, bias=False)
        draw.linear(weights, f"{prefix}.self_attn.k_proj", config.kv_size, hidden, bias=False)
        draw.linear(weights, f"{prefix}.self_attn.v_proj", config.kv_size, hidden, bias=False)
        draw.linear(weights, f"{prefix}.self_attn.o_proj", hidden, hidden, bias=False)
        draw.norm(weights, f"{prefix}.post_attention_layernorm", hidden, bias=False)
        size = config.intermediate_size
        draw.linear(weights, f"{prefix}.mlp.gate_proj", size, hidden, bias=False)
        draw.linear(weights, f"{prefix}.mlp.up_proj", size, hidden, bias=False)
        draw.linear(weights, f"{prefix}.mlp.down_proj", hidden, size, bias=False)
    draw.norm(weights, "model.norm", hidden, bias=False)
    draw.linear(weights, "lm_head", config.vocab_size, hidden, bias=False)
    return weights


def bert_weights(config: BertConfig, seed: int) -> Weights:
    """Random weights of a BERT encoder in ``config.dtype``, by Hugging Face name."""
    draw = _Draw(seed, config.dtype)
    weights: Weights = {}
    hidden = config.hidden_size
    draw.embedding(weights, "embeddings.word_embeddings", config.vocab_size, hidden)
    draw.embedding(weights, "embeddings.position_embeddings", config.max_positions, hidden)
    draw.embedding(weights, "embeddings.token_type_embeddings", config.type_vocab_size, hidden)
    draw.norm(weights, "embeddings.LayerNorm", hidden, bias=True)
    for layer in range(config.num_layers):
        prefix = f"encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            draw.linear(weights, f"{prefix}.attention.self.{part}", hidden, hidden, bias=True)
        draw.linear(weights, f"{prefix}.attention.output.dense", hidden, hidden, bias=True)
        draw.norm(weights, f"{prefix}.attention.output.LayerNorm", hidden, bias=True)
        size = config.intermediate_size
        draw.linear(weights, f"{prefix}.intermediate.dense", size, hidden, bias=True)
        draw.linear(weights, f"{prefix}.output.dense", hidden, size, bias=True)
        draw.norm(weights, f"{prefix}.output.LayerNorm", hidden, bias=True)
    return weights
