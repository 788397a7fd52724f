"""Reads two prompts in one batch with llama.cpp, and a token of each: ``FILE [-u]``.

With ``-u`` the sequences share one cache.
"""

from __future__ import annotations

import sys

import llama_cpp as low

PROMPTS = [[5, 17, 3, 60, 22], [9, 41, 7, 2, 33]]
low.llama_backend_init()
model = low.llama_model_load_from_file(sys.argv[1].encode(), low.llama_model_default_params())
params = low.llama_context_default_params()
params.n_ctx, params.n_seq_max, params.kv_unified = 64, len(PROMPTS), "-u" in sys.argv
params.n_threads = params.n_threads_batch = 1
context = low.llama_init_from_model(model, params)
words = low.llama_vocab_n_tokens(low.llama_model_get_vocab(model))
batch = low.llama_batch_init(32, 0, len(PROMPTS))
rows = [
    (token, place, number)
    for number, prompt in enumerate(PROMPTS)
    for place, token in enumerate(prompt)
]
scores: list[list[float]] = []
for step in range(2):
    batch.n_tokens = len(rows)
    for at, (token, place, number) in enumerate(rows):
        batch.token[at], batch.pos[at], batch.n_seq_id[at] = token, place, 1
        batch.seq_id[at][0], batch.logits[at] = number, 1
    if low.llama_decode(context, batch):
        raise SystemExit("llama_decode failed")
    last = [at for at, row in enumerate(rows) if row[1] == len(PROMPTS[row[2]]) + step - 1]
    scores = [low.llama_get_logits_ith(context, at)[:words] for at in last]
    rows = [
        (each.index(max(each)), len(PROMPTS[number]) + step, number)
        for number, each in enumerate(scores)
    ]
print([each[:4] for each in scores])
