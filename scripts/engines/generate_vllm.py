"""Greedy tokens of a checkpoint by vLLM: ``generate_vllm.py FOLDER DTYPE [RANKS]``.

The last line of the output is the tokens as JSON.
"""

from __future__ import annotations

import json
import sys

from prompts import PROMPTS, STEPS
from vllm import LLM, SamplingParams


def main() -> None:
    engine = LLM(
        model=sys.argv[1],
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype=sys.argv[2],
        max_model_len=64,
        max_num_batched_tokens=64,
        max_num_seqs=4,
        tensor_parallel_size=int((*sys.argv[3:], "1")[0]),
    )
    settings = SamplingParams(max_tokens=STEPS, temperature=0, detokenize=False, ignore_eos=True)
    answers = engine.generate([{"prompt_token_ids": each} for each in PROMPTS], settings)
    print(json.dumps([list(each.outputs[0].token_ids) for each in answers]))


if __name__ == "__main__":
    main()
