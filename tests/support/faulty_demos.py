"""The demo programs many times with one fault each, every run in a process of its own.

It is started as a program: ``python faulty_demos.py llama TOKENS LAYERS FAULT...``, where TOKENS is
the file with the tokens that all runs take, or ``python faulty_demos.py bert FAULT...``. An empty
FAULT is a run without, ``rms_norm_eps=N`` a run of a model that was built with a wrong parameter.
Starting Python and PyTorch takes longer than a run of a tiny model, so the runs are forked from one
process, a few at a time. It prints the process id and the fault of each.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from safetensors.torch import load_file

import ait_llm.hostatb as torch_atb
from ait_llm.hostatb.demo.bert import choose_model
from ait_llm.hostatb.models.bert import BertForAtb
from ait_llm.hostatb.models.config import LLAMA_PRESETS
from ait_llm.hostatb.models.generate import generate, make_llama, random_prompts
from ait_llm.hostatb.models.weights import llama_weights

AT_ONCE = 2


def llama(path: str, layers: str) -> Callable[[str], object]:
    """A run of the Llama demo with its default prompts."""
    tokens = load_file(path)["tokens"]
    config = replace(LLAMA_PRESETS["tiny"], num_layers=int(layers))
    weights, prompts = llama_weights(config, 0), random_prompts(config, (7, 4), 0)

    def run(fault: str) -> None:
        name, equals, value = fault.partition("=")
        own = config
        if name == "rms_norm_eps" and equals:
            own = replace(config, rms_norm_eps=float(value))
        else:
            torch_atb.inject(fault)
        model = make_llama(own, weights, [7, 4], len(tokens), 16)
        generate(model, prompts, len(tokens), tokens)

    return run


def bert() -> Callable[[str], object]:
    """A run of the BERT demo with random weights."""
    _, config, weights, ids = choose_model("random", torch.float16, 0, ())

    def run(fault: str) -> None:
        torch_atb.inject(fault)
        BertForAtb(config, weights).encode(ids)

    return run


def main(model: str, arguments: Sequence[str]) -> int:
    """Run all; the number of runs that failed."""
    torch.set_num_threads(1)
    run = llama(*arguments[:2]) if model == "llama" else bert()
    faults = arguments[2:] if model == "llama" else arguments
    running = failed = 0
    for fault in faults:
        if running == AT_ONCE:
            failed += bool(os.wait()[1])
            running -= 1
        pid = os.fork()
        if pid:
            print(pid, fault, flush=True)  # noqa: T201  # the program's output
        else:
            run(fault)
            os._exit(0)
        running += 1
    return failed + sum(bool(os.wait()[1]) for _ in range(running))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
