"""A Llama decoder on hostatb whose key-value cache is memory that nobody wrote: NaN."""

import sys

import torch

from ait_llm.hostatb.models.config import LLAMA_PRESETS
from ait_llm.hostatb.models.generate import generate, make_llama, random_prompts
from ait_llm.hostatb.models.weights import llama_weights

if __name__ == "__main__":
    torch.set_num_threads(1)
    config = LLAMA_PRESETS["tiny"]
    prompts = random_prompts(config, (7, 4), 0)
    model = make_llama(config, llama_weights(config, 0), [7, 4], 2, 16)
    for cache in (*model.cache.keys, *model.cache.values):
        cache.fill_(torch.nan)
    sys.exit(0 if generate(model, prompts, 2).logits is not None else 1)
