"""Generates a few tokens with a tiny Llama of random weights, as a script of a user would."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

PROMPT = [[3, 14, 15, 9, 26]]
NEW_TOKENS = 3


def make_model() -> LlamaForCausalLM:
    """The same model in each process."""
    torch.manual_seed(7)
    config = LlamaConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=32,
    )
    return LlamaForCausalLM(config).eval()


def run(model: LlamaForCausalLM) -> list[list[int]]:
    """Prompt and greedy continuation."""
    ids = model.generate(torch.tensor(PROMPT), max_new_tokens=NEW_TOKENS, do_sample=False)
    return ids.tolist()


if __name__ == "__main__":
    print(run(make_model()))
