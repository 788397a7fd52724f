"""The program that ``opcheck.py`` captures: one prefill of a wide Llama decoder on hostatb.

Its layers share the memory of their weights, so that the program itself stays small; in the dump
each layer has its own files.
"""

from __future__ import annotations

import argparse

import torch

from ait_llm.hostatb.models.config import LlamaConfig
from ait_llm.hostatb.models.generate import generate, random_prompts
from ait_llm.hostatb.models.kv_cache import PagedCache, blocks_for
from ait_llm.hostatb.models.llama import LlamaForAtb, pack_weights, rotary_tables
from ait_llm.hostatb.models.weights import Weights

BLOCK = 16


class SharedLayers(LlamaForAtb):
    """The demo model with one layer's weights in all layers."""

    def __init__(self, config: LlamaConfig, weights: Weights, cache: PagedCache) -> None:
        """Take ``weights`` of one layer."""
        self.config = config
        self.cache = cache
        self._tables = rotary_tables(config, config.max_positions)
        packed = pack_weights(with_layers(config, 1), weights)
        for name in [name for name in packed if name.endswith(".0")]:
            for layer in range(1, config.num_layers):
                packed[f"{name.removesuffix('.0')}.{layer}"] = packed[name]
        self.prefill_model = self._build("DecoderModel_Prefill", packed, prefill=True)


def with_layers(config: LlamaConfig, layers: int) -> LlamaConfig:
    """The same shape with another number of layers."""
    return LlamaConfig(
        config.hidden_size,
        layers,
        config.num_heads,
        config.num_kv_heads,
        config.intermediate_size,
        config.vocab_size,
        config.dtype,
    )


def wide_llama(hidden: int, layers: int) -> LlamaConfig:
    """The proportions of Llama 2 7B, with a small vocabulary."""
    heads = max(hidden // 128, 1)
    return LlamaConfig(hidden, layers, heads, heads, hidden * 43 // 16, 1024)


def layer_weights(config: LlamaConfig) -> Weights:
    """Random weights of one layer and of what is around the layers, by Hugging Face name."""
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes = {f"self_attn.{part}_proj.weight": (hidden, hidden) for part in "qkvo"}
    shapes |= {f"mlp.{part}_proj.weight": (inner, hidden) for part in ("gate", "up")}
    shapes |= {"mlp.down_proj.weight": (hidden, inner)}
    shapes = {f"model.layers.0.{name}": shape for name, shape in shapes.items()}
    shapes |= {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    shapes |= {"lm_head.weight": (config.vocab_size, hidden)}
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: (torch.randn(shape, generator=generator) / shape[1] ** 0.5).to(config.dtype)
        for name, shape in shapes.items()
    }
    for name in ("layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm"):
        weights[f"model.{name}.weight"] = torch.ones(hidden, dtype=config.dtype)
    return weights


def main() -> None:
    """Run the prefill."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=128)
    given = parser.parse_args()
    config = wide_llama(given.hidden, given.layers)
    cache = PagedCache(config, blocks_for(given.tokens, BLOCK), BLOCK)
    model = SharedLayers(config, layer_weights(config), cache)
    generate(model, random_prompts(config, [given.tokens], 0), 1)


if __name__ == "__main__":
    main()
