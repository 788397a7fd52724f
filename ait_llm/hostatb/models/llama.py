"""The Llama demo on ATB: a prefill model and a decode model over the same weights and cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ait_llm.hostatb.models import llama_layers
from ait_llm.hostatb.models.config import LlamaConfig
from ait_llm.hostatb.models.kv_cache import PagedCache
from ait_llm.hostatb.models.model import Model
from ait_llm.hostatb.models.weights import Weights

_INPUTS = ("input_ids", "position_ids", "cos_table", "sin_table")


@dataclass(frozen=True, slots=True)
class PackedTokens:
    """The new tokens of all sequences, one after the other.

    Attributes:
        input_ids, position_ids: ``[tokens]`` int64.
        slots: where their keys and values go in the cache, ``[tokens]`` int32.
        seq_len: new tokens per sequence in prefill, all tokens per sequence in decode;
            ``[batch]`` int32.
        last: index of the last token of each sequence, ``[batch]`` int64.
        block_tables: ``[batch, blocks]`` int32.
    """

    input_ids: Tensor
    position_ids: Tensor
    slots: Tensor
    seq_len: Tensor
    last: Tensor
    block_tables: Tensor


def pack_weights(config: LlamaConfig, weights: Weights) -> Weights:
    """Weights as the layers take them: q, k, v in one matrix, gate and up in another."""
    packed = {"embed_tokens": weights["model.embed_tokens.weight"]}
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}"
        qkv = [weights[f"{prefix}.self_attn.{part}_proj.weight"] for part in "qkv"]
        gate_up = [weights[f"{prefix}.mlp.{part}_proj.weight"] for part in ("gate", "up")]
        tensors = (
            weights[f"{prefix}.input_layernorm.weight"],
            torch.cat(qkv),
            weights[f"{prefix}.self_attn.o_proj.weight"],
            weights[f"{prefix}.post_attention_layernorm.weight"],
            torch.cat(gate_up),
            weights[f"{prefix}.mlp.down_proj.weight"],
        )
        for name, tensor in zip(llama_layers.LAYER_WEIGHTS, tensors, strict=True):
            packed[f"{name}.{layer}"] = tensor
    packed["norm"] = weights["model.norm.weight"]
    packed["lm_head"] = weights["lm_head.weight"]
    return packed


def rotary_tables(config: LlamaConfig, positions: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of ``position / theta^(2i/dim)``, ``[positions, head_dim]`` each."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    angles = torch.outer(torch.arange(positions).float(), config.rope_theta**-exponents)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(config.dtype), angles.sin().to(config.dtype)


def causal_mask(length: int, dtype: torch.dtype) -> Tensor:
    """The mask of prefill, ``[length, length]``.

    The bfloat16 kernel multiplies the mask by -3e38 and wants 1 where a key is hidden; the others
    add it.
    """
    hidden = 1.0 if dtype is torch.bfloat16 else torch.finfo(torch.float16).min
    return torch.full((length, length), hidden, dtype=dtype).triu(diagonal=1)


class LlamaForAtb:
    """Both phases of generation.

    Args:
        config: shape and dtype.
        weights: by Hugging Face name.
        cache: memory of keys and values, shared by both phases.
    """

    def __init__(self, config: LlamaConfig, weights: Weights, cache: PagedCache) -> None:
        self.config = config
        self.cache = cache
        self._tables = rotary_tables(config, config.max_positions)
        packed = pack_weights(config, weights)
        self.prefill_model = self._build("DecoderModel_Prefill", packed, prefill=True)
        self.decode_model = self._build("DecoderModel_Decoder", packed, prefill=False)

    def _build(self, name: str, weights: Weights, *, prefill: bool) -> Model:
        state = llama_layers.attention_state(prefill=prefill)
        shared = tuple(item for item in state if not item.endswith("_cache"))
        extra = ("logits_indices",) if prefill else ()
        inputs = (*_INPUTS, *shared, *extra)
        cache = self.cache
        model = Model(name, inputs, ("logits",), weights, cache.keys, cache.values)
        model.add(llama_layers.word_embedding(), ["embed_tokens", "input_ids"], ["hidden.0"])
        model.add(
            llama_layers.positional_embedding(),
            ["position_ids", "cos_table", "sin_table"],
            ["cos", "sin"],
        )
        for layer in range(self.config.num_layers):
            own = [f"{weight}.{layer}" for weight in llama_layers.LAYER_WEIGHTS]
            caches = [f"{item}.{layer}" if item.endswith("_cache") else item for item in state]
            model.add(
                llama_layers.decoder_layer(self.config, prefill=prefill),
                [*own, f"hidden.{layer}", "cos", "sin", *caches],
                [f"hidden.{layer + 1}"],
            )
        final = f"hidden.{self.config.num_layers}"
        model.add(llama_layers.final_norm(self.config), [final, "norm"], ["normed"])
        model.add(llama_layers.lm_head(prefill=prefill), ["normed", "lm_head", *extra], ["logits"])
        return model

    def _inputs(self, tokens: PackedTokens) -> dict[str, Tensor]:
        return {
            "input_ids": tokens.input_ids,
            "position_ids": tokens.position_ids,
            "cos_table": self._tables[0],
            "sin_table": self._tables[1],
            "slots": tokens.slots,
            "seq_len": tokens.seq_len,
        }

    def prefill(self, tokens: PackedTokens) -> Tensor:
        """Logits ``[batch, vocab]`` after whole prompts."""
        longest = int(tokens.seq_len.max())
        inputs = self._inputs(tokens)
        inputs["attention_mask"] = causal_mask(longest, self.config.dtype)
        inputs["logits_indices"] = tokens.last
        return self.prefill_model.run(inputs)["logits"]

    def decode(self, tokens: PackedTokens) -> Tensor:
        """Logits ``[batch, vocab]`` after one more token of each sequence."""
        inputs = self._inputs(tokens)
        inputs["block_tables"] = tokens.block_tables
        return self.decode_model.run(inputs)["logits"]
