"""The golden side of the Llama demo: ``python -m ait_llm.hostatb.demo.llama_torch``.

The PyTorch twin generates from the same weights and prompts. It is a program like those that users
run as a reference: it knows neither of the acceleration library nor of dumps.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import perf_counter

import click
import torch
from torch import Tensor

from ait_llm.errors import UsageError
from ait_llm.formats.safetensors_file import read_safetensors
from ait_llm.hostatb.demo.llama import (
    describe,
    prompt_lengths_of,
    shape,
    shape_options,
    tell_tokens,
)
from ait_llm.hostatb.demo.program import TWIN_DTYPES, Program, save_outputs, twin_dtype_options
from ait_llm.hostatb.models.config import LlamaConfig
from ait_llm.hostatb.models.generate import (
    Generation,
    check_lengths,
    follow,
    generate_with_twin,
    random_prompts,
)
from ait_llm.hostatb.models.llama_torch import llama_twin
from ait_llm.hostatb.models.weights import llama_weights


def _tokens_of(path: Path, config: LlamaConfig, batch: int, steps: int | None) -> Tensor:
    """Tokens ``[steps, batch]`` of another run, the first ``steps`` of them.

    Raises:
        FormatError: not a safetensors file, or without tokens.
        UsageError: the tokens of another batch or vocabulary, or fewer than wanted.
    """
    tokens = torch.from_numpy(read_safetensors(path, "tokens").array)
    if tokens.dim() != 2 or tokens.dtype is not torch.int64 or tokens.shape[1] != batch:
        raise UsageError(
            f"{path}: tokens are {tokens.dtype} {list(tokens.shape)} instead of int64 "
            f"[steps, {batch}]; follow a run with the same --prompt-lengths"
        )
    wanted = len(tokens) if steps is None else steps
    if not 1 <= wanted <= len(tokens):
        raise UsageError(f"{path}: holds {len(tokens)} tokens per prompt, not {wanted}")
    if bool(((tokens < 0) | (tokens >= config.vocab_size)).any()):
        raise UsageError(f"{path}: has tokens outside the vocabulary of {config.vocab_size}")
    return tokens[:wanted]


@click.command(cls=Program, context_settings={"show_default": True})
@shape_options
@twin_dtype_options
@click.option("--tokens", type=int, help="Tokens to generate per prompt.  [default: 3]")
@click.option("--prompt-lengths", default="7,4", help="Length of each random prompt.")
@click.option("--seed", default=0, help="Seed of weights and prompts.")
@click.option(
    "--follow",
    "followed",
    type=click.Path(path_type=Path),
    help="Take the tokens that another run saved with --save-outputs instead of one's own; all of "
    "them without --tokens.",
)
@click.option(
    "--save-outputs", "output", type=click.Path(path_type=Path), help="Save logits, tokens."
)
def main(
    preset: str,
    dtype: str,
    weights_dtype: str,
    tokens: int | None,
    prompt_lengths: str,
    seed: int,
    followed: Path | None,
    output: Path | None,
    **sizes: int | None,
) -> None:
    """Generate tokens with a Llama decoder in PyTorch."""
    config = shape(preset, TWIN_DTYPES[dtype], sizes)
    prompts = random_prompts(config, prompt_lengths_of(prompt_lengths), seed)
    given = None
    if followed is not None:
        given = _tokens_of(followed, config, len(prompts), tokens)
    steps = len(given) if given is not None else 3 if tokens is None else tokens
    check_lengths(config, prompts, steps)
    click.echo(describe(preset, config, dtype))
    stored = llama_weights(replace(config, dtype=TWIN_DTYPES[weights_dtype]), seed)
    twin = llama_twin(config, {name: tensor.to(config.dtype) for name, tensor in stored.items()})
    start = perf_counter()
    if given is None:
        generation = generate_with_twin(twin, config, prompts, steps)
    else:
        generation = Generation(given, follow(twin, config, prompts, given))
    seconds = perf_counter() - start
    tell_tokens(prompts, generation.tokens)
    click.echo(f"{len(prompts)} x {steps} tokens in {seconds:.2f} s")
    if output is not None:
        save_outputs(output, {"logits": generation.logits, "tokens": generation.tokens})


if __name__ == "__main__":
    main()
