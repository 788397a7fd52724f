"""Tiny models of ``transformers``: small random configurations of every family.

Each family comes in two sizes. In ``distinct`` the widths of queries, keys, hidden states and the
inner layer differ as far as the family allows it; in ``equal`` as many as possible are the same, so
that widths tell nothing.
"""

from __future__ import annotations

import sys
from typing import Any

import transformers
from torch import nn

from matching_truth.program import randomise

WORDS = 96
_DECODER = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": WORDS,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
_EQUAL = {"hidden_size": 64, "intermediate_size": 64, "num_key_value_heads": 4}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
_BERT = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": WORDS,
    "max_position_embeddings": 64,
}
_T5 = {"d_model": 48, "d_kv": 16, "d_ff": 80, "num_layers": 2, "num_heads": 4, "vocab_size": WORDS}
_WHISPER = {
    "d_model": 48,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 80,
    "decoder_ffn_dim": 80,
    "vocab_size": WORDS,
    "num_mel_bins": 16,
    "max_source_positions": 12,
    "max_target_positions": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}

# Family: class of the model without its suffix, what differs from the shared sizes, and what of
# that differs again where widths are equal.
DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {}),
    "gemma2": ("Gemma2", {"query_pre_attn_scalar": 16, "sliding_window": 4}),
    "gemma3": ("Gemma3", {"query_pre_attn_scalar": 16, "sliding_window": 4}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "phi3": ("Phi3", {"original_max_position_embeddings": 64}),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3-moe": ("Qwen3Moe", _EXPERTS),
    "gpt-oss": ("GptOss", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4}),
    "deepseek-v3": (
        "DeepseekV3",
        {
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "n_group": 2,
            "topk_group": 1,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
            "q_lora_rank": 20,
            "kv_lora_rank": 12,
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 8,
            "v_head_dim": 12,
            "num_key_value_heads": 4,
            "num_hidden_layers": 3,
        },
    ),
    "gpt-neox": ("GPTNeoX", {"rotary_pct": 0.5, "num_key_value_heads": 4}),
}
_CLASSES = {"gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM")}


def _sizes(family: str, sizes: str) -> dict[str, Any]:
    shared = _DECODER | (_EQUAL if sizes == "equal" else {})
    found = shared | DECODERS[family][1]
    if family == "deepseek-v3":
        del found["head_dim"]
        if sizes == "equal":
            found |= {"q_lora_rank": 16, "kv_lora_rank": 16, "v_head_dim": 16}
            found |= {"moe_intermediate_size": 64}
    if family == "gpt-neox":
        for name in ("num_key_value_heads", "head_dim"):
            del found[name]
    if sizes == "equal" and "moe_intermediate_size" in found:
        found["moe_intermediate_size"] = found["hidden_size"]
    return found


def _of(config: str, model: str, sizes: dict[str, Any], attention: str) -> nn.Module:
    settings = getattr(transformers, config)(**sizes)
    settings._attn_implementation = attention
    found: nn.Module = getattr(transformers, model)(settings)
    return found


def decoder(family: str, sizes: str = "distinct", attention: str = "eager") -> nn.Module:
    """A causal language model of a family; see :data:`DECODERS`."""
    name = DECODERS[family][0]
    config, model = _CLASSES.get(family, (f"{name}Config", f"{name}ForCausalLM"))
    return randomise(
        _of(config, model, _sizes(family, sizes), attention), 7, norms=sizes == "distinct"
    )


def gpt2(sizes: str = "distinct", attention: str = "eager") -> nn.Module:
    """GPT-2: joined projections in ``Conv1D``, learned positions."""
    widths = {"n_embd": 48, "n_inner": 80} if sizes == "distinct" else {"n_embd": 64, "n_inner": 64}
    shared = {"n_layer": 2, "n_head": 4, "vocab_size": WORDS, "n_positions": 64}
    model = _of("GPT2Config", "GPT2LMHeadModel", shared | widths, attention)
    return randomise(model, 7, norms=sizes == "distinct")


def mamba(sizes: str = "distinct", attention: str = "eager") -> nn.Module:
    """Mamba, which has no attention."""
    widths = {"hidden_size": 48, "state_size": 8} if sizes == "distinct" else {"hidden_size": 64}
    shared = {"num_hidden_layers": 2, "vocab_size": WORDS, "state_size": 16, "time_step_rank": 4}
    model = _of("MambaConfig", "MambaForCausalLM", shared | widths, "eager")
    return randomise(model, 7, norms=sizes == "distinct")


def bert(sizes: str = "distinct", attention: str = "eager") -> nn.Module:
    """An encoder with learned positions and a head for masked words."""
    widths = {} if sizes == "distinct" else {"hidden_size": 64, "intermediate_size": 64}
    model = _of("BertConfig", "BertForMaskedLM", _BERT | widths, attention)
    return randomise(model, 7, norms=sizes == "distinct")


def t5(sizes: str = "distinct", attention: str = "eager") -> nn.Module:
    """Encoder and decoder with relative positions."""
    widths = {} if sizes == "distinct" else {"d_model": 64, "d_ff": 64}
    extra = {"decoder_start_token_id": 0, "pad_token_id": 0}
    model = _of("T5Config", "T5ForConditionalGeneration", _T5 | widths | extra, attention)
    return randomise(model, 7, norms=sizes == "distinct")


def whisper(sizes: str = "distinct", attention: str = "eager") -> nn.Module:
    """Encoder of sound and decoder of text."""
    widths = {} if sizes == "distinct" else {"decoder_ffn_dim": 48, "encoder_ffn_dim": 48}
    model = _of("WhisperConfig", "WhisperForConditionalGeneration", _WHISPER | widths, attention)
    return randomise(model, 7, norms=sizes == "distinct")


def llava(sizes: str = "distinct", attention: str = "eager") -> nn.Module:
    """A vision tower before a Llama."""
    text = transformers.LlamaConfig(**_DECODER | (_EQUAL if sizes == "equal" else {}))
    vision = transformers.CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=56,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=8,
        patch_size=4,
    )
    settings = transformers.LlavaConfig(
        text_config=text, vision_config=vision, image_token_index=WORDS - 1, image_seq_length=4
    )
    settings._attn_implementation = attention
    for each in (settings.text_config, settings.vision_config):
        each._attn_implementation = attention
    model = transformers.LlavaForConditionalGeneration(settings)
    return randomise(model, 7, norms=sizes == "distinct")


OTHERS = ("gpt2", "mamba", "bert", "t5", "whisper", "llava")
FAMILIES = (*DECODERS, *OTHERS)


def make(family: str, sizes: str = "distinct", attention: str = "eager") -> nn.Module:
    """A model of any family."""
    if family in DECODERS:
        return decoder(family, sizes, attention)
    maker = getattr(sys.modules[__name__], family)
    found: nn.Module = maker(sizes, attention)
    return found
