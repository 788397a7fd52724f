"""The graphs of a Llama decoder layer, nested and named as inference engines on ATB do it.

Tokens of all sequences lie packed in ``[tokens, hidden]``. Prefill attends within the new tokens
(``SelfAttentionOperation``, PA_ENCODER), decode attends over the paged cache
(``PagedAttentionOperation``); the rest of a layer is the same.
"""

from __future__ import annotations

import ait_llm.hostatb as torch_atb
from ait_llm.hostatb.models import blocks
from ait_llm.hostatb.models.config import LlamaConfig

# Inputs of a layer: weights, then activations, then what attention needs besides.
LAYER_WEIGHTS = (
    "input_norm_weight",
    "qkv_weight",
    "o_weight",
    "post_attention_norm_weight",
    "gate_up_weight",
    "down_weight",
)
_ATTENTION_WEIGHTS = LAYER_WEIGHTS[:3]
_MLP_WEIGHTS = LAYER_WEIGHTS[3:]
_PREFILL_STATE = ("attention_mask", "k_cache", "v_cache", "slots", "seq_len")
_DECODE_STATE = ("k_cache", "v_cache", "block_tables", "slots", "seq_len")


def attention_state(*, prefill: bool) -> tuple[str, ...]:
    """Names of the inputs that only attention uses, in the order of the layer's inputs."""
    return _PREFILL_STATE if prefill else _DECODE_STATE


def _norm_linear(epsilon: float) -> torch_atb.Operation:
    """RMSNorm and the projection that follows it."""
    return (
        torch_atb.GraphBuilder("NormLinear")
        .set_input_output(["input", "norm_weight", "weight"], ["output"])
        .add_operation(blocks.rms_norm(epsilon), ["input", "norm_weight"], ["normed"])
        .add_operation(blocks.linear(bias=False), ["normed", "weight"], ["output"])
        .build()
    )


def _qkv(config: LlamaConfig) -> torch_atb.Operation:
    """Query, key and value from one packed projection."""
    sizes = [config.hidden_size, config.kv_size, config.kv_size]
    return (
        torch_atb.GraphBuilder("QKVLinearSplitPack")
        .set_input_output(["input", "norm_weight", "weight"], ["query", "key", "value"])
        .add_operation(
            _norm_linear(config.rms_norm_eps), ["input", "norm_weight", "weight"], ["packed"]
        )
        .add_operation(blocks.split(sizes), ["packed"], ["query", "key", "value"])
        .build()
    )


def _rotary() -> torch_atb.Operation:
    """Rotary positions; coefficient 2 pairs the two halves of a head."""
    names = ["query", "key", "cos", "sin", "seq_len"]
    return (
        torch_atb.GraphBuilder("RotaryPositionEmbedding")
        .set_input_output(names, ["query_out", "key_out"])
        .add_operation(
            torch_atb.Operation(torch_atb.RopeParam(rotary_coeff=2)),
            names,
            ["query_out", "key_out"],
        )
        .build()
    )


def _prefill_core(config: LlamaConfig) -> torch_atb.Operation:
    kinds = torch_atb.SelfAttentionParam
    return torch_atb.Operation(
        torch_atb.SelfAttentionParam(
            head_num=config.num_heads,
            kv_head_num=config.num_kv_heads,
            qk_scale=config.head_dim**-0.5,
            calc_type=kinds.CalcType.PA_ENCODER,
            mask_type=kinds.MaskType.MASK_TYPE_NORM,
            is_triu_mask=1,
        )
    )


def _decode_core(config: LlamaConfig) -> torch_atb.Operation:
    return torch_atb.Operation(
        torch_atb.PagedAttentionParam(
            head_num=config.num_heads,
            kv_head_num=config.num_kv_heads,
            qk_scale=config.head_dim**-0.5,
        )
    )


def _self_attention(config: LlamaConfig, *, prefill: bool) -> torch_atb.Operation:
    """Store keys and values in the cache, then attend; ``context`` is ``[tokens, heads, dim]``."""
    builder = torch_atb.GraphBuilder("SelfAttention").set_input_output(
        ["query", "key", "value", *attention_state(prefill=prefill)], ["context"]
    )
    for name in ("query", "key", "value"):
        builder.reshape(name, blocks.to_heads(config.head_dim), f"{name}_heads")
    builder.add_operation(
        torch_atb.Operation(torch_atb.ReshapeAndCacheParam()),
        ["key_heads", "value_heads", "k_cache", "v_cache", "slots"],
        ["k_cache", "v_cache"],
    )
    if prefill:
        inputs = ["query_heads", "key_heads", "value_heads", "attention_mask", "seq_len"]
        builder.add_operation(_prefill_core(config), inputs, ["context"])
    else:
        inputs = ["query_heads", "k_cache", "v_cache", "block_tables", "seq_len"]
        builder.add_operation(_decode_core(config), inputs, ["context"])
    return builder.build()


def _attention(config: LlamaConfig, *, prefill: bool) -> torch_atb.Operation:
    state = attention_state(prefill=prefill)
    return (
        torch_atb.GraphBuilder("Attention")
        .set_input_output([*_ATTENTION_WEIGHTS, "hidden_states", "cos", "sin", *state], ["output"])
        .add_operation(
            _qkv(config),
            ["hidden_states", "input_norm_weight", "qkv_weight"],
            ["query", "key", "value"],
        )
        .add_operation(
            _rotary(), ["query", "key", "cos", "sin", "seq_len"], ["query_turned", "key_turned"]
        )
        .add_operation(
            _self_attention(config, prefill=prefill),
            ["query_turned", "key_turned", "value", *state],
            ["context"],
        )
        .reshape("context", blocks.merge_heads, "context_merged")
        .add_operation(blocks.linear(bias=False), ["context_merged", "o_weight"], ["output"])
        .build()
    )


def _mlp(config: LlamaConfig) -> torch_atb.Operation:
    swiglu = torch_atb.ActivationParam(
        activation_type=torch_atb.ActivationType.ACTIVATION_SWIGLU_FORWARD, dim=-1
    )
    return (
        torch_atb.GraphBuilder("Mlp")
        .set_input_output([*_MLP_WEIGHTS, "hidden_states"], ["output"])
        .add_operation(
            _norm_linear(config.rms_norm_eps),
            ["hidden_states", "post_attention_norm_weight", "gate_up_weight"],
            ["gate_up"],
        )
        .add_operation(torch_atb.Operation(swiglu), ["gate_up"], ["product"])
        .add_operation(blocks.linear(bias=False), ["product", "down_weight"], ["output"])
        .build()
    )


def decoder_layer(config: LlamaConfig, *, prefill: bool) -> torch_atb.Operation:
    """One layer as one top-level graph operation.

    Inputs are :data:`LAYER_WEIGHTS`, ``hidden_states``, ``cos``, ``sin`` and
    :func:`attention_state`; the output has the shape of ``hidden_states``.
    """
    state = attention_state(prefill=prefill)
    return (
        torch_atb.GraphBuilder("Prefill_layer" if prefill else "Decoder_layer")
        .set_input_output([*LAYER_WEIGHTS, "hidden_states", "cos", "sin", *state], ["output"])
        .add_operation(
            _attention(config, prefill=prefill),
            [*_ATTENTION_WEIGHTS, "hidden_states", "cos", "sin", *state],
            ["attention_out"],
        )
        .add_operation(blocks.add(), ["hidden_states", "attention_out"], ["residual"])
        .add_operation(_mlp(config), [*_MLP_WEIGHTS, "residual"], ["mlp_out"])
        .add_operation(blocks.add(), ["residual", "mlp_out"], ["output"])
        .build()
    )


def word_embedding() -> torch_atb.Operation:
    """Rows of the embedding table."""
    return (
        torch_atb.GraphBuilder("WordEmbedding")
        .set_input_output(["weight", "input_ids"], ["hidden_states"])
        .add_operation(blocks.gather(), ["weight", "input_ids"], ["hidden_states"])
        .build()
    )


def positional_embedding() -> torch_atb.Operation:
    """Rows of the cosine and the sine table."""
    return (
        torch_atb.GraphBuilder("PositionalEmbeddingGather")
        .set_input_output(["position_ids", "cos_table", "sin_table"], ["cos", "sin"])
        .add_operation(blocks.gather(), ["cos_table", "position_ids"], ["cos"])
        .add_operation(blocks.gather(), ["sin_table", "position_ids"], ["sin"])
        .build()
    )


def final_norm(config: LlamaConfig) -> torch_atb.Operation:
    """The norm before the output projection; a single operation, no graph."""
    return blocks.rms_norm(config.rms_norm_eps)


def lm_head(*, prefill: bool) -> torch_atb.Operation:
    """Logits; after prefill only those of the last token of each sequence are wanted."""
    inputs = ["hidden_states", "weight"] + (["logits_indices"] if prefill else [])
    builder = torch_atb.GraphBuilder("LmHead").set_input_output(inputs, ["logits"])
    rows = "hidden_states"
    if prefill:
        builder.add_operation(blocks.gather(), ["hidden_states", "logits_indices"], ["last"])
        rows = "last"
    return builder.add_operation(blocks.linear(bias=False), [rows, "weight"], ["logits"]).build()
