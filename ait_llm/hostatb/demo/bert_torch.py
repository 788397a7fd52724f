"""The golden side of the BERT demo: ``python -m ait_llm.hostatb.demo.bert_torch``.

The PyTorch twin embeds the same sentences with the same weights. It knows neither of the
acceleration library nor of dumps.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import click

from ait_llm.hostatb.demo.bert import SENTENCES, choose_model, model_options, tell_similarities
from ait_llm.hostatb.demo.program import TWIN_DTYPES, Program, save_outputs, twin_dtype_options
from ait_llm.hostatb.models.bert_torch import bert_twin, encode_padded, mean_pool


@click.command(cls=Program, context_settings={"show_default": True})
@model_options
@twin_dtype_options
@click.option("--save-outputs", "output", type=click.Path(path_type=Path), help="Save embeddings.")
def main(
    sentences: tuple[str, ...],
    which: str,
    seed: int,
    dtype: str,
    weights_dtype: str,
    output: Path | None,
) -> None:
    """Embed SENTENCES (or an example) with a BERT encoder in PyTorch."""
    name, stored, weights, ids = choose_model(which, TWIN_DTYPES[weights_dtype], seed, sentences)
    config = stored.with_dtype(TWIN_DTYPES[dtype])
    lengths = [len(sequence) for sequence in ids]
    click.echo(f"bert {name}: {config.num_layers} layers of {config.hidden_size}, {dtype}")
    twin = bert_twin(config, {key: tensor.to(config.dtype) for key, tensor in weights.items()})
    start = perf_counter()
    hidden = encode_padded(twin, ids)
    click.echo(f"{len(ids)} sequences, {sum(lengths)} tokens in {perf_counter() - start:.2f} s")
    vectors = mean_pool(hidden, lengths)
    tell_similarities(name, sentences or SENTENCES, vectors)
    if output is not None:
        save_outputs(output, {"embeddings": vectors, "hidden_states": hidden})


if __name__ == "__main__":
    main()
