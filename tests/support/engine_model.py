"""A Llama or a Mixtral laid out as vLLM does, with the weights of one of ``transformers``.

Packed tokens, joined projections, two residual streams, norms and rotary embedding in place, keys
and values in a cache by request.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Cache:
    """Keys and values of all requests, and which rows of the present pass are whose."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, int]] = []
        self._kept: dict[tuple[int, str], tuple[Tensor, Tensor]] = {}

    def begin(self, rows: list[tuple[str, int, int]]) -> None:
        """Request, first position and number of tokens, in the order of the rows."""
        self.rows = rows

    def forget(self, request: str) -> None:
        for key in [key for key in self._kept if key[1] == request]:
            del self._kept[key]

    def share(self, source: str, request: str, count: int) -> None:
        """Give a request the first tokens of another one: a prefix cache."""
        for (layer, name), (k, v) in list(self._kept.items()):
            if name == source:
                self._kept[layer, request] = k[:count], v[:count]

    def put(self, layer: int, request: str, first: int, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        old = self._kept.get((layer, request))
        both = (
            (k, v)
            if old is None
            else tuple(
                torch.cat([past[:first], new]) for past, new in zip(old, (k, v), strict=True)
            )
        )
        self._kept[layer, request] = both  # type: ignore[assignment]
        return both


class UnquantizedLinearMethod:
    pass


class VocabParallelEmbedding(nn.Embedding):
    pass


class ParallelLMHead(nn.Embedding):
    pass


class QKVParallelLinear(nn.Linear):
    pass


class MergedColumnParallelLinear(nn.Linear):
    pass


class RowParallelLinear(nn.Linear):
    pass


class ReplicatedLinear(nn.Linear):
    pass


class RMSNorm(nn.Module):
    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone(), requires_grad=False)
        self.variance_epsilon, self.hidden_size = eps, len(weight)

    def _norm(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return wide.to(x.dtype) * self.weight

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Any:
        if residual is None:
            return self._norm(x)
        residual.add_(x)
        x.copy_(self._norm(residual))
        return x, residual


class SiluAndMul(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        gate, up = x.chunk(2, dim=-1)
        return F.silu(gate) * up


class RotaryEmbedding(nn.Module):
    def __init__(self, head_size: int, base: float, most: int) -> None:
        super().__init__()
        self.head_size, self.base, self.is_neox_style = head_size, base, True
        self.rotary_dim, self.max_position_embeddings = head_size, most
        self.dtype, self.use_flashinfer = torch.float32, False
        inverse = 1.0 / base ** (torch.arange(0, head_size, 2).float() / head_size)
        angles = torch.outer(torch.arange(most).float(), inverse)
        table = torch.cat([angles.cos(), angles.sin()], dim=-1)
        self.register_buffer("cos_sin_cache", table, persistent=False)

    def _turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> None:
        heads = x.view(len(x), -1, self.head_size)
        first, second = heads.chunk(2, dim=-1)
        turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
        heads.copy_(turned)

    def forward(self, positions: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = self.cos_sin_cache[positions].to(query.dtype)[:, None].chunk(2, dim=-1)
        self._turn(query, cos, sin)
        self._turn(key, cos, sin)
        return query, key


class AttentionImpl:
    """What a backend knows."""

    def __init__(self, heads: int, kv_heads: int, size: int, scale: float) -> None:
        self.num_heads, self.num_kv_heads, self.head_size = heads, kv_heads, size
        self.scale = scale
        self.alibi_slopes, self.sinks = None, None
        self.sliding_window, self.logits_soft_cap = -1, 0


class Attention(nn.Module):
    def __init__(
        self, heads: int, kv_heads: int, size: int, scale: float, layer: int, cache: Cache
    ) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads, self.head_size = heads, kv_heads, size
        self.head_size_v = size
        self.kv_cache_dtype, self.attn_type = "auto", "decoder"
        self.kv_sharing_target_layer_name, self.query_quant = None, None
        self.has_sink, self.use_mm_prefix, self.use_alibi_sqrt = False, False, False
        self.impl = AttentionImpl(heads, kv_heads, size, scale)
        self._layer = layer
        self.__dict__["_cache"] = cache

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        result = torch.zeros_like(query)
        row = 0
        for request, first, count in self._cache.rows:
            rows = slice(row, row + count)
            row += count
            k, v = (each[rows].view(count, self.num_kv_heads, -1) for each in (key, value))
            k, v = self._cache.put(self._layer, request, first, k, v)
            q = query[rows].view(count, self.num_heads, -1)
            mask = torch.arange(len(k)) <= torch.arange(first, first + count)[:, None]
            found = F.scaled_dot_product_attention(
                *(each.transpose(0, 1)[None] for each in (q, k, v)),
                attn_mask=mask,
                scale=self.impl.scale,
                enable_gqa=True,
            )
            result[rows] = found[0].transpose(0, 1).reshape(count, -1)
        return result


class LlamaAttention(nn.Module):
    def __init__(self, golden: Any, config: Any, layer: int, rotary: nn.Module, cache: Cache):
        super().__init__()
        size = config.head_dim
        self.sizes = [config.num_attention_heads * size, *[config.num_key_value_heads * size] * 2]
        weights = [getattr(golden, f"{name}_proj").weight for name in "qkv"]
        self.qkv_proj = _linear(QKVParallelLinear, torch.cat(weights))
        self.o_proj = _linear(RowParallelLinear, golden.o_proj.weight)
        self.rotary_emb = rotary
        heads = config.num_attention_heads, config.num_key_value_heads
        self.scaling = size**-0.5
        self.attn = Attention(*heads, size, self.scaling, layer, cache)

    def forward(self, positions: Tensor, hidden_states: Tensor) -> Tensor:
        q, k, v = self.qkv_proj(hidden_states).split(self.sizes, dim=-1)
        q, k = self.rotary_emb(positions, q, k)
        return self.o_proj(self.attn(q, k, v))


class LlamaMLP(nn.Module):
    def __init__(self, golden: Any) -> None:
        super().__init__()
        joined = torch.cat([golden.gate_proj.weight, golden.up_proj.weight])
        self.gate_up_proj = _linear(MergedColumnParallelLinear, joined)
        self.down_proj = _linear(RowParallelLinear, golden.down_proj.weight)
        self.act_fn = SiluAndMul()

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.act_fn(self.gate_up_proj(x)))


class FusedMoE(nn.Module):
    """Experts that choose inside; of equal scores they take the last."""

    def __init__(self, golden: Any, top_k: int) -> None:
        super().__init__()
        self.top_k = top_k
        self.__dict__["_experts"] = golden

    def forward(self, hidden_states: Tensor, router_logits: Tensor) -> Tensor:
        shares = torch.softmax(router_logits.float(), dim=-1)
        order = shares.flip(-1).sort(dim=-1, descending=True, stable=True).indices
        chosen = shares.shape[-1] - 1 - order[:, : self.top_k]
        taken = shares.gather(-1, chosen)
        return self._experts(hidden_states, chosen, taken / taken.sum(dim=-1, keepdim=True))


class MixtralMoE(nn.Module):
    def __init__(self, golden: Any) -> None:
        super().__init__()
        self.gate = _linear(ReplicatedLinear, golden.gate.weight)
        self.experts = FusedMoE(golden.experts, golden.top_k)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.experts(hidden_states, self.gate(hidden_states))


class LlamaDecoderLayer(nn.Module):
    def __init__(self, golden: Any, config: Any, layer: int, rotary: nn.Module, cache: Cache):
        super().__init__()
        self.self_attn = LlamaAttention(golden.self_attn, config, layer, rotary, cache)
        experts = hasattr(golden.mlp, "experts")
        self.mlp = None if experts else LlamaMLP(golden.mlp)
        self.block_sparse_moe = MixtralMoE(golden.mlp) if experts else None
        eps = config.rms_norm_eps
        self.input_layernorm = RMSNorm(golden.input_layernorm.weight, eps)
        self.post_attention_layernorm = RMSNorm(golden.post_attention_layernorm.weight, eps)

    def forward(
        self, positions: Tensor, hidden_states: Tensor, residual: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if residual is None:
            residual = hidden_states.clone()
            hidden_states = self.input_layernorm(hidden_states)
        else:
            hidden_states, residual = self.input_layernorm(hidden_states, residual)
        hidden_states = self.self_attn(positions=positions, hidden_states=hidden_states)
        hidden_states, residual = self.post_attention_layernorm(hidden_states, residual)
        return (self.mlp or self.block_sparse_moe)(hidden_states), residual


class LlamaModel(nn.Module):
    def __init__(self, golden: Any, config: Any, cache: Cache) -> None:
        super().__init__()
        base = config.rope_parameters["rope_theta"]
        rotary = RotaryEmbedding(config.head_dim, base, config.max_position_embeddings)
        self.embed_tokens = VocabParallelEmbedding.from_pretrained(golden.embed_tokens.weight)
        self.layers = nn.ModuleList(
            LlamaDecoderLayer(each, config, number, rotary, cache)
            for number, each in enumerate(golden.layers)
        )
        self.norm = RMSNorm(golden.norm.weight, config.rms_norm_eps)

    def forward(self, input_ids: Tensor, positions: Tensor, *rest: Any) -> Tensor:
        hidden_states, residual = self.embed_tokens(input_ids), None
        for layer in self.layers:
            hidden_states, residual = layer(positions, hidden_states, residual)
        return self.norm(hidden_states, residual)[0]


class LogitsProcessor(nn.Module):
    def forward(self, lm_head: nn.Embedding, hidden_states: Tensor) -> Tensor:
        return hidden_states @ lm_head.weight.T


class LlamaForCausalLM(nn.Module):
    def __init__(self, golden: Any) -> None:
        super().__init__()
        self.config = golden.config
        self.__dict__["cache"] = cache = Cache()
        self.model = LlamaModel(golden.model, golden.config, cache)
        self.lm_head = ParallelLMHead.from_pretrained(golden.lm_head.weight)
        self.logits_processor = LogitsProcessor()

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor:
        return self.model(input_ids, positions, intermediate_tensors, inputs_embeds)

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        return self.logits_processor(self.lm_head, hidden_states)


def _linear(kind: type[nn.Linear], weight: Tensor) -> nn.Linear:
    made = kind(weight.shape[1], weight.shape[0], bias=False)
    made.output_size, made.input_size = weight.shape
    made.quant_method, made.has_bias = UnquantizedLinearMethod(), False
    made.tp_size, made.tp_rank = 1, 0
    made.weight = nn.Parameter(weight.detach().clone(), requires_grad=False)
    return made
