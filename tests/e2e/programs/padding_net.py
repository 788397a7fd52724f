"""A small Llama of transformers with drawn weights, whose second attention may ignore padding.

python padding_net.py [fault]
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM


def causal(mask: Tensor) -> Tensor:
    """The part of a mask that hides what comes later, and no padding."""
    queries, keys = mask.shape[-2:]
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    return torch.zeros_like(mask).masked_fill(~seen, torch.finfo(mask.dtype).min)


def main() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 256}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    tokens = {"eos_token_id": None, "bos_token_id": None, "pad_token_id": 0}
    config = LlamaConfig(**sizes, **heads, **tokens, attn_implementation="eager")
    model = LlamaForCausalLM(config).eval()
    if "fault" in sys.argv:
        attention = model.model.layers[1].self_attn
        forward = attention.forward
        attention.forward = lambda hidden_states, attention_mask=None, **rest: forward(
            hidden_states=hidden_states,
            attention_mask=None if attention_mask is None else causal(attention_mask),
            **rest,
        )
    ids = torch.arange(5, 16)[None]
    made = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, do_sample=False
    )
    print(made[0, 11:].tolist())


if __name__ == "__main__":
    main()
