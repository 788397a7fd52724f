"""The Llama demo many times with one fault each, every run in a process of its own.

It is started as a program: ``python faulty_llamas.py GOLDEN LAYERS FAULT...``, where
GOLDEN is the file with the tokens that all runs take and an empty FAULT is a run without. Starting
Python and PyTorch takes longer than a run of the tiny model, so the runs are forked from one
process, a few at a time. Each prints its process id and its fault.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace

import torch
from safetensors.torch import load_file

import ait_llm.hostatb as torch_atb
from ait_llm.hostatb.models.config import LLAMA_PRESETS
from ait_llm.hostatb.models.generate import generate, make_llama, random_prompts
from ait_llm.hostatb.models.weights import llama_weights

AT_ONCE = 2


def main(golden: str, layers: str, faults: Sequence[str]) -> int:
    """Run all; the number of runs that failed."""
    torch.set_num_threads(1)
    tokens = load_file(golden)["tokens"]
    config = replace(LLAMA_PRESETS["tiny"], num_layers=int(layers))
    weights = llama_weights(config, 0)
    prompts = random_prompts(config, (7, 4), 0)
    running = failed = 0
    for fault in faults:
        if running == AT_ONCE:
            failed += bool(os.wait()[1])
            running -= 1
        if os.fork() == 0:
            print(os.getpid(), fault, flush=True)  # noqa: T201  # the program's output
            torch_atb.inject(fault)
            model = make_llama(config, weights, [7, 4], len(tokens), 16)
            generate(model, prompts, len(tokens), tokens)
            os._exit(0)
        running += 1
    return failed + sum(bool(os.wait()[1]) for _ in range(running))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
