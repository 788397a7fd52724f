"""Tiny checkpoints with random weights, in the form that engines load: ``checkpoints.py FOLDER``.

Head size 64 is the smallest that every attention back end accepts. The widths of queries, keys,
hidden states and the inner layer differ where the family allows it. Weights are drawn larger than
a library would draw them, so that no layer leaves its input almost as it was, and norms are not all
ones.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import transformers

HIDDEN, INNER, LAYERS, WORDS, SPREAD = 128, 192, 2, 256, 0.12
SHARED = {
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "vocab_size": WORDS,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
    "tie_word_embeddings": False,
}
# Class of the model, what differs from the shared sizes, and a seed with which greedy tokens are
# the same in bfloat16 and float32, by a margin.
FAMILIES = {
    "llama": ("Llama", {"num_key_value_heads": 2}, 520),
    "qwen3": ("Qwen3", {}, 494),
    "mixtral": (
        "Mixtral",
        {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 96},
        771,
    ),
    "gemma2": (
        "Gemma2",
        {
            "query_pre_attn_scalar": 64,
            "sliding_window": 32,
            "tie_word_embeddings": True,
            "attn_logit_softcapping": None,  # vLLM's kernel for CPUs is off by 0.2 % with it
        },
        569,
    ),
}


def make(family: str) -> transformers.PreTrainedModel:
    """A model of a family in float32, with weights that bfloat16 can hold."""
    name, sizes, seed = FAMILIES[family]
    config = getattr(transformers, f"{name}Config")(**SHARED | sizes)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = torch.randn(parameter.shape, generator=generator) * SPREAD
            is_norm = parameter.ndim == 1
            base = parameter.detach() if is_norm else 0
            parameter.copy_((base + drawn).bfloat16().float())
    return model


def main() -> None:
    for family in FAMILIES:
        folder = Path(sys.argv[1]) / family
        make(family).to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    main()
