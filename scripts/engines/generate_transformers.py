"""Greedy tokens of a checkpoint by transformers: ``generate_transformers.py FOLDER DTYPE``.

The prompts are one batch, padded on the left. The last line of the output is the tokens as JSON.
"""

from __future__ import annotations

import json
import sys

import torch
from prompts import PROMPTS, STEPS
from transformers import AutoModelForCausalLM


def main() -> None:
    folder, dtype = sys.argv[1], getattr(torch, sys.argv[2])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    longest = max(map(len, PROMPTS))
    padded = [[0] * (longest - len(each)) + each for each in PROMPTS]
    mask = [[0] * (longest - len(each)) + [1] * len(each) for each in PROMPTS]
    with torch.no_grad():
        found = model.generate(
            torch.tensor(padded),
            attention_mask=torch.tensor(mask),
            max_new_tokens=STEPS,
            do_sample=False,
        )
    print(json.dumps(found[:, longest:].tolist()))


if __name__ == "__main__":
    main()
