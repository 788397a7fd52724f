"""Record a small Llama that transformers runs with continuous batching, and by itself.

    python scripts/engines/record_continuous_batching.py OUTPUT

Two prompts of 12 and 5 tokens, four new tokens each: ``mine`` by ``generate_batch``, which packs
both into one row and keeps their keys in pages, ``golden`` by ``generate``, one after the other.
``OUTPUT`` gets ``continuous-batching.tar.xz``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from packing import pack
from transformers import GenerationConfig, LlamaForCausalLM

from ait_llm import DumpConfig, register_hook

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from generating import generate, model  # noqa: E402

PROMPTS = [[27, 25, 14, 77, 21, 20, 11, 89, 24, 51, 62, 7], [33, 9, 81, 5, 16]]


def one_by_one(made: LlamaForCausalLM) -> None:
    for prompt in PROMPTS:
        generate(made, torch.tensor([prompt]), max_new_tokens=4)


def in_batches(made: LlamaForCausalLM) -> None:
    settings = GenerationConfig(
        max_new_tokens=4,
        do_sample=False,
        eos_token_id=-1,
        pad_token_id=0,
        num_blocks=64,
        max_batch_tokens=64,
    )
    made.generate_batch(inputs=PROMPTS, generation_config=settings, progress_bar=False)


def main(output: Path) -> None:
    runs = {"golden": one_by_one, "mine": in_batches}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, run in runs.items():
            made = model(eos_token_id=None)
            config = DumpConfig(str(folder / name), token_range=range(99))
            with torch.no_grad(), register_hook(made, config):
                run(made)
        pack(folder, list(runs), output / "continuous-batching.tar.xz")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
