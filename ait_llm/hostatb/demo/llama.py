"""A Llama decoder that generates tokens: ``python -m ait_llm.hostatb.demo.llama``.

Weights and prompts are random. It is a program like those that users run on an accelerator: it
knows nothing of dumps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import click
import torch
from torch import Tensor

from ait_llm.errors import UsageError
from ait_llm.hostatb.demo.program import Program, fault_options, inject_faults, save_outputs
from ait_llm.hostatb.models.check import agree, tolerance
from ait_llm.hostatb.models.config import ATB_DTYPES, LLAMA_PRESETS, LlamaConfig
from ait_llm.hostatb.models.generate import (
    Generation,
    check_lengths,
    follow,
    generate,
    make_llama,
    random_prompts,
)
from ait_llm.hostatb.models.llama_torch import llama_twin
from ait_llm.hostatb.models.weights import Weights, llama_weights


def prompt_lengths_of(text: str) -> list[int]:
    """The numbers of ``--prompt-lengths``.

    Raises:
        UsageError: something else than numbers.
    """
    try:
        return [int(item) for item in text.split(",")]
    except ValueError:
        raise UsageError(
            f"prompt lengths are numbers separated by commas, such as 7,4; not {text!r}"
        ) from None


def _check(
    config: LlamaConfig, weights: Weights, prompts: list[Tensor], generation: Generation
) -> bool:
    """Compare every step with the twin; True when all pass."""
    golden = follow(llama_twin(config, weights), config, prompts, generation.tokens)
    limit = tolerance(config.dtype, config.num_layers, config.hidden_size)
    passed = True
    for step, (expected, got) in enumerate(zip(golden, generation.logits, strict=True)):
        result = agree(expected, got, limit)
        passed &= result.passed
        click.echo(f"check token {step}: {result}")
    return passed


def shape_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--preset`` and options that replace one of its sizes, named as the fields."""
    for flag, field, what in (
        ("--vocab", "vocab_size", "Vocabulary size"),
        ("--intermediate", "intermediate_size", "Size inside the MLP"),
        ("--kv-heads", "num_kv_heads", "Number of key-value heads"),
        ("--heads", "num_heads", "Number of query heads"),
        ("--layers", "num_layers", "Number of layers"),
        ("--hidden", "hidden_size", "Hidden size"),
    ):
        command = click.option(flag, field, type=int, help=f"{what} instead of the preset's.")(
            command
        )
    presets = click.Choice(list(LLAMA_PRESETS))
    return click.option("--preset", type=presets, default="tiny", help="Shape.")(command)


def shape(preset: str, dtype: torch.dtype, sizes: Mapping[str, int | None]) -> LlamaConfig:
    """The model that the options of :func:`shape_options` describe.

    Raises:
        UsageError: sizes that do not fit together.
    """
    given = {field: size for field, size in sizes.items() if size is not None}
    return replace(LLAMA_PRESETS[preset], dtype=dtype, **given)


def describe(preset: str, config: LlamaConfig, dtype: str) -> str:
    """The line that a program prints about its model."""
    return (
        f"llama {preset}: {config.parameters:,} weights, {config.num_layers} layers of "
        f"{config.hidden_size}, {config.num_heads} heads over {config.num_kv_heads}, {dtype}"
    )


def tell_tokens(prompts: Sequence[Tensor], tokens: Tensor) -> None:
    """Print the new tokens ``[steps, batch]`` of each prompt."""
    for prompt, chosen in zip(prompts, tokens.T.tolist(), strict=True):
        click.echo(f"prompt of {len(prompt)} tokens -> {chosen}")


@click.command(cls=Program, context_settings={"show_default": True})
@shape_options
@click.option(
    "--dtype",
    type=click.Choice(list(ATB_DTYPES)),
    default="float16",
    help="Element type; the attention of the acceleration library takes these two.",
)
@click.option("--tokens", default=3, help="Tokens to generate per prompt; the first by prefill.")
@click.option("--prompt-lengths", default="7,4", help="Length of each random prompt.")
@click.option("--block-size", default=16, help="Tokens per block of the key-value cache.")
@click.option("--seed", default=0, help="Seed of weights and prompts.")
@fault_options
@click.option(
    "--save-outputs", "output", type=click.Path(path_type=Path), help="Save logits, tokens."
)
@click.option("--check", is_flag=True, help="Compare with PyTorch; exit with 1 on failure.")
@click.pass_context
def main(
    ctx: click.Context,
    /,
    preset: str,
    dtype: str,
    tokens: int,
    prompt_lengths: str,
    block_size: int,
    seed: int,
    wrong: tuple[str, ...],
    output: Path | None,
    check: bool,
    **sizes: int | None,
) -> None:
    """Generate tokens with a Llama decoder on the acceleration library."""
    inject_faults(wrong)
    config = shape(preset, ATB_DTYPES[dtype], sizes)
    prompts = random_prompts(config, prompt_lengths_of(prompt_lengths), seed)
    check_lengths(config, prompts, tokens)
    click.echo(describe(preset, config, dtype))
    weights = llama_weights(config, seed)
    model = make_llama(config, weights, [len(prompt) for prompt in prompts], tokens, block_size)
    start = perf_counter()
    generation = generate(model, prompts, tokens)
    seconds = perf_counter() - start
    tell_tokens(prompts, generation.tokens)
    click.echo(f"{len(prompts)} x {tokens} tokens in {seconds:.2f} s")
    if output is not None:
        save_outputs(output, {"logits": generation.logits, "tokens": generation.tokens})
    if check and not _check(config, weights, prompts, generation):
        ctx.exit(1)


if __name__ == "__main__":
    main()
