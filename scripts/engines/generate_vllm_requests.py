"""Four requests of different lengths by vLLM: ``generate_vllm_requests.py FOLDER DTYPE [RANKS]``.

Prompts are read in several passes, and the last shares its beginning with the first, which a prefix
cache has. ``AIT_BUG`` names a fault of bugs.py that is put into vLLM before. With ``AIT_COMPILED``
the model is compiled, and log-probabilities are printed before the tokens, to the last bit. The
last line of the output is the tokens as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from bugs import BUGS
from four_requests import PROMPTS, TOKENS
from vllm import LLM, SamplingParams


def _bits(positions: Any) -> list[list[tuple[int, str]]]:
    """Of each position the likeliest tokens with the logarithm of their probability."""
    return [sorted((token, one.logprob.hex()) for token, one in each.items()) for each in positions]


def main() -> None:
    bug = BUGS[os.environ["AIT_BUG"]] if os.environ.get("AIT_BUG") else None
    if bug is not None and bug.patch is not None:
        bug.patch()
    compiled = bool(os.environ.get("AIT_COMPILED"))
    engine = LLM(
        model=sys.argv[1],
        skip_tokenizer_init=True,
        enforce_eager=not compiled,
        dtype=sys.argv[2],
        max_model_len=64,
        max_num_batched_tokens=24,
        max_num_seqs=4,
        block_size=32,
        enable_prefix_caching=True,
        tensor_parallel_size=int((*sys.argv[3:], "1")[0]),
        hf_overrides={} if bug is None else bug.config,
    )
    settings = SamplingParams(
        max_tokens=TOKENS,
        temperature=0,
        detokenize=False,
        ignore_eos=True,
        logprobs=5 if compiled else None,
    )
    answers = engine.generate([{"prompt_token_ids": each} for each in PROMPTS], settings)
    if compiled:
        print(json.dumps([_bits(each.outputs[0].logprobs) for each in answers]))
    print(json.dumps([list(each.outputs[0].token_ids) for each in answers]))


if __name__ == "__main__":
    main()
