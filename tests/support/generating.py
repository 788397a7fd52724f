"""A small Llama that generates, and pairs of runs that choose different tokens at a known step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from ait_llm import DumpConfig, register_hook

PROMPT = torch.tensor([[11, 23, 5, 42]])
NEW = 6
SPARE = 95
"""A token that the model does not choose by itself."""


def model(seed: int = 1, **config: Any) -> LlamaForCausalLM:
    """Two layers with random weights."""
    torch.manual_seed(seed)
    settings = {
        "vocab_size": 96,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    return LlamaForCausalLM(LlamaConfig(**{**settings, **config})).eval()


def generate(made: LlamaForCausalLM, prompt: Tensor = PROMPT, **settings: Any) -> Tensor:
    """The new tokens, ``[requests, tokens]``."""
    mask = (prompt != 0).long()
    options = {"max_new_tokens": NEW, "do_sample": False, "attention_mask": mask, **settings}
    with torch.no_grad():
        return made.generate(prompt, **options)[:, prompt.shape[1] :]


def captured(
    made: LlamaForCausalLM,
    folder: Path,
    *prompts: Tensor,
    follow: Path | None = None,
    **settings: Any,
) -> Path:
    """The folder, with a capture of all steps of a generation for each prompt."""
    config = DumpConfig(str(folder), token_range=range(99), follow=follow)
    with register_hook(made, config):
        for prompt in prompts or (PROMPT,):
            generate(made, prompt, **settings)
    return folder / "ait_dump"


def nearly_tied(step: int, lead: float) -> LlamaForCausalLM:
    """A model whose choice at ``step`` is :data:`SPARE` or the token it would choose without that.

    Args:
        step: of the choice; no earlier one is of the same token.
        lead: of :data:`SPARE` over the other, relative to the logit.
    """
    made = model()
    token = int(generate(made)[0, step])
    with torch.no_grad():
        made.lm_head.weight[SPARE] = made.lm_head.weight[token] * (1 + lead)
    return made
