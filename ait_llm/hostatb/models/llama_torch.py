"""The PyTorch twin of the Llama demo, with the module names of Hugging Face Transformers.

Nothing here knows of the acceleration library: the twin is the golden side of a comparison. It
works on a padded batch ``[batch, seq]`` and a dense cache, where the other side works on packed
tokens and a paged cache.

Formulas: RMSNorm as in Zhang and Sennrich (2019), rotary positions as in Su et al. (2021) with the
two halves of a head as pairs, SwiGLU as in Shazeer (2020).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ait_llm.hostatb.models.config import LlamaConfig
from ait_llm.hostatb.models.weights import Weights, unset_embedding


class DenseCache:
    """Keys and values of all positions: per layer two tensors ``[batch, seq, kv_heads, dim]``."""

    def __init__(self, config: LlamaConfig, batch: int, capacity: int) -> None:
        shape = (batch, capacity, config.num_kv_heads, config.head_dim)
        self._keys = [torch.zeros(shape, dtype=config.dtype) for _ in range(config.num_layers)]
        self._values = [torch.zeros(shape, dtype=config.dtype) for _ in range(config.num_layers)]

    def update(
        self, layer: int, key: Tensor, value: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Store ``key`` and ``value`` ``[batch, seq, kv_heads, dim]`` at ``positions``.

        Returns the whole cache of the layer. Padding may be stored too: a later token of the same
        position replaces it, and causal masking hides it until then.
        """
        rows = torch.arange(key.shape[0]).unsqueeze(1)
        self._keys[layer][rows, positions] = key
        self._values[layer][rows, positions] = value
        return self._keys[layer], self._values[layer]


class LlamaRMSNorm(nn.Module):
    """``x / sqrt(mean(x^2) + eps) * weight``, computed in float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, hidden_states: Tensor) -> Tensor:
        x = hidden_states.float()
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        return (x * self.weight.float()).to(hidden_states.dtype)


class LlamaRotaryEmbedding(nn.Module):
    """Cosine and sine of ``position / theta^(2i/dim)``, both halves of a head alike."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.dtype = config.dtype
        # No weight: computed, not loaded, whatever device the weights to come are given.
        places = torch.arange(0, config.head_dim, 2, dtype=torch.float32, device="cpu")
        exponents = places / config.head_dim
        self.inv_freq = config.rope_theta**-exponents

    def forward(self, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        angles = position_ids.unsqueeze(-1).float() * self.inv_freq
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(self.dtype), angles.sin().to(self.dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn ``x`` ``[batch, seq, heads, dim]`` by the angles ``[batch, seq, dim]``."""
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    cos, sin = cos.float().unsqueeze(2), sin.float().unsqueeze(2)
    return (x.float() * cos + turned * sin).to(x.dtype)


class LlamaAttention(nn.Module):
    """Causal grouped-query attention over the cache."""

    def __init__(self, config: LlamaConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.num_heads = config.num_heads
        self.num_kv_heads = config.num_kv_heads
        self.head_dim = config.head_dim
        hidden = config.hidden_size
        self.q_proj = nn.Linear(hidden, hidden, bias=False)
        self.k_proj = nn.Linear(hidden, config.kv_size, bias=False)
        self.v_proj = nn.Linear(hidden, config.kv_size, bias=False)
        self.o_proj = nn.Linear(hidden, hidden, bias=False)

    def forward(
        self,
        hidden_states: Tensor,
        position_ids: Tensor,
        cos: Tensor,
        sin: Tensor,
        cache: DenseCache,
    ) -> Tensor:
        batch, seq, _ = hidden_states.shape
        query = self.q_proj(hidden_states).view(batch, seq, self.num_heads, self.head_dim)
        key = self.k_proj(hidden_states).view(batch, seq, self.num_kv_heads, self.head_dim)
        value = self.v_proj(hidden_states).view(batch, seq, self.num_kv_heads, self.head_dim)
        query, key = _rotate(query, cos, sin), _rotate(key, cos, sin)
        keys, values = cache.update(self.layer, key, value, position_ids)

        group = self.num_heads // self.num_kv_heads
        keys = keys.float().repeat_interleave(group, dim=2)
        values = values.float().repeat_interleave(group, dim=2)
        scores = torch.einsum("bqhd,bkhd->bhqk", query.float(), keys) * self.head_dim**-0.5
        visible = torch.arange(keys.shape[1]) <= position_ids.unsqueeze(-1)
        scores = scores.masked_fill(~visible.unsqueeze(1), float("-inf"))
        context = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), values)
        out: Tensor = self.o_proj(context.to(hidden_states.dtype).reshape(batch, seq, -1))
        return out


class LlamaMLP(nn.Module):
    """``down(silu(gate(x)) * up(x))``."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        hidden, size = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(hidden, size, bias=False)
        self.up_proj = nn.Linear(hidden, size, bias=False)
        self.down_proj = nn.Linear(size, hidden, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        product = self.act_fn(self.gate_proj(x).float()) * self.up_proj(x).float()
        out: Tensor = self.down_proj(product.to(x.dtype))
        return out


class LlamaDecoderLayer(nn.Module):
    """Attention and MLP, each on the normalised input and added to it."""

    def __init__(self, config: LlamaConfig, layer: int) -> None:
        super().__init__()
        self.self_attn = LlamaAttention(config, layer)
        self.mlp = LlamaMLP(config)
        self.input_layernorm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(
        self,
        hidden_states: Tensor,
        position_ids: Tensor,
        cos: Tensor,
        sin: Tensor,
        cache: DenseCache,
    ) -> Tensor:
        normed = self.input_layernorm(hidden_states)
        hidden_states = hidden_states + self.self_attn(normed, position_ids, cos, sin, cache)
        mlp_out: Tensor = self.mlp(self.post_attention_layernorm(hidden_states))
        return hidden_states + mlp_out


class LlamaModel(nn.Module):
    """Embedding, decoder layers and final norm."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.embed_tokens = unset_embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            LlamaDecoderLayer(config, layer) for layer in range(config.num_layers)
        )
        self.norm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rotary_emb = LlamaRotaryEmbedding(config)

    def forward(self, input_ids: Tensor, position_ids: Tensor, cache: DenseCache) -> Tensor:
        hidden_states = self.embed_tokens(input_ids)
        cos, sin = self.rotary_emb(position_ids)
        for layer in self.layers:
            hidden_states = layer(hidden_states, position_ids, cos, sin, cache)
        normed: Tensor = self.norm(hidden_states)
        return normed


class LlamaForCausalLM(nn.Module):
    """The decoder with its output projection."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.model = LlamaModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(
        self, input_ids: Tensor, position_ids: Tensor, cache: DenseCache, last: Tensor
    ) -> Tensor:
        """Logits of one token per sequence.

        Args:
            input_ids: token ids ``[batch, seq]``; shorter sequences are padded at the end.
            position_ids: their positions ``[batch, seq]``.
            cache: keys and values of earlier calls; extended.
            last: index of the last real token of each sequence ``[batch]``.

        Returns:
            logits ``[batch, vocab]``.
        """
        hidden_states = self.model(input_ids, position_ids, cache)
        logits: Tensor = self.lm_head(hidden_states[torch.arange(last.shape[0]), last])
        return logits


def llama_twin(config: LlamaConfig, weights: Weights) -> LlamaForCausalLM:
    """A twin in evaluation mode that shares the memory of ``weights``."""
    with torch.device("meta"):
        twin = LlamaForCausalLM(config)
    twin.load_state_dict(weights, strict=True, assign=True)
    return twin.requires_grad_(False).eval()
