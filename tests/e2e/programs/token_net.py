"""Generates a few tokens with a small Llama of transformers that has drawn weights.

python token_net.py [fault] [bfloat16] [penalty]
"""

from __future__ import annotations

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def main() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 256}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    tokens = {"eos_token_id": None, "bos_token_id": None, "pad_token_id": 0}
    config = LlamaConfig(**sizes, **heads, **tokens, attn_implementation="eager")
    model = LlamaForCausalLM(config).eval()
    if "fault" in sys.argv:
        model.model.layers[1].mlp.down_proj.weight.data *= 4
    if "bfloat16" in sys.argv:
        model.to(torch.bfloat16)
    more = {"repetition_penalty": 1.3} if "penalty" in sys.argv else {}
    ids = torch.tensor([[11, 47, 5, 88, 29]])
    print(model.generate(ids, max_new_tokens=4, do_sample=False, **more).tolist())


main()
