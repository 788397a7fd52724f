"""Reads a prompt with llama.cpp and chooses tokens: ``generate_llama_cpp.py FILE [-fa] [-ub]``."""

from __future__ import annotations

import sys

from llama_cpp import Llama

PROMPT = [5, 17, 3, 60, 22, 9, 41]
options = {"flash_attn": "-fa" in sys.argv, "n_ubatch": 4 if "-ub" in sys.argv else 512}
model = Llama(sys.argv[1], n_ctx=64, verbose=False, logits_all=True, n_threads=1, **options)
tokens = PROMPT
for _ in range(3):
    model.eval(tokens)
    scores = model.scores[model.n_tokens - 1]
    tokens = [int(scores.argmax())]
print(scores[:8].tolist())
