"""Greedy generation with both sides of the Llama demo."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ait_llm.errors import UsageError
from ait_llm.hostatb.models.config import LlamaConfig
from ait_llm.hostatb.models.kv_cache import PagedCache, blocks_for
from ait_llm.hostatb.models.llama import LlamaForAtb, PackedTokens
from ait_llm.hostatb.models.llama_torch import DenseCache, LlamaForCausalLM
from ait_llm.hostatb.models.weights import Weights


@dataclass(frozen=True, slots=True)
class Generation:
    """What was generated.

    Attributes:
        tokens: chosen token ids ``[steps, batch]`` int64.
        logits: what they were chosen from, ``[steps, batch, vocab]`` in the model's dtype.
    """

    tokens: Tensor
    logits: Tensor


def random_prompts(config: LlamaConfig, lengths: Sequence[int], seed: int) -> list[Tensor]:
    """Prompts of random token ids, one per length.

    Raises:
        UsageError: a length that is not positive.
    """
    if not lengths or min(lengths) < 1:
        raise UsageError("prompt lengths must be positive and there must be at least one")
    generator = torch.Generator()
    generator.manual_seed(seed)
    return [torch.randint(config.vocab_size, (n,), generator=generator) for n in lengths]


def check_lengths(config: LlamaConfig, prompts: Sequence[Tensor], steps: int) -> int:
    """Positions that the longest sequence will take.

    Raises:
        UsageError: no step, or more positions than the model has.
    """
    if steps < 1:
        raise UsageError(f"the number of tokens to generate must be positive, not {steps}")
    longest = max(len(prompt) for prompt in prompts) + steps - 1
    if longest > config.max_positions:
        raise UsageError(
            f"prompt and new tokens take {longest} positions and the model has "
            f"{config.max_positions}; use shorter prompts or fewer tokens"
        )
    return longest


def make_llama(
    config: LlamaConfig, weights: Weights, lengths: Sequence[int], steps: int, block_size: int
) -> LlamaForAtb:
    """The ATB side with a cache that just holds sequences of these prompt lengths."""
    total = sum(blocks_for(length + steps - 1, block_size) for length in lengths)
    return LlamaForAtb(config, weights, PagedCache(config, total, block_size))


def _pack(cache: PagedCache, new_tokens: Sequence[Tensor], starts: Sequence[int]) -> PackedTokens:
    """Lay new tokens of all sequences in one row and give each its place in the cache."""
    batch = range(len(new_tokens))
    ends = [start + len(new) for start, new in zip(starts, new_tokens, strict=True)]
    for sequence in batch:
        cache.reserve(sequence, ends[sequence])
    places = [(seq, pos) for seq in batch for pos in range(starts[seq], ends[seq])]
    counts = torch.tensor([len(new) for new in new_tokens])
    return PackedTokens(
        input_ids=torch.cat(list(new_tokens)),
        position_ids=torch.tensor([position for _, position in places]),
        slots=torch.tensor([cache.slot(seq, pos) for seq, pos in places], dtype=torch.int32),
        seq_len=torch.tensor(ends, dtype=torch.int32),
        last=counts.cumsum(0) - 1,
        block_tables=cache.block_tables(batch),
    )


def generate(
    model: LlamaForAtb, prompts: Sequence[Tensor], steps: int, tokens: Tensor | None = None
) -> Generation:
    """Generate ``steps`` tokens per prompt, always the most likely one.

    The first step is a prefill of all prompts together, each later step decodes one token of every
    sequence.

    Args:
        model: the ATB side.
        prompts: token ids of each sequence, 1-D int64.
        steps: tokens per prompt.
        tokens: what another run generated, ``[steps, batch]``; it is taken instead of the most
            likely tokens.

    Raises:
        UsageError: lengths that do not fit the model or its cache.
    """
    check_lengths(model.config, prompts, steps)
    lengths = [len(prompt) for prompt in prompts]
    logits = [model.prefill(_pack(model.cache, prompts, [0] * len(prompts)))]
    chosen = [logits[0].argmax(-1) if tokens is None else tokens[0]]
    for step in range(1, steps):
        starts = [length + step - 1 for length in lengths]
        logits.append(model.decode(_pack(model.cache, chosen[-1].unsqueeze(1).unbind(), starts)))
        chosen.append(logits[-1].argmax(-1) if tokens is None else tokens[step])
    return Generation(torch.stack(chosen), torch.stack(logits))


@torch.no_grad()
def _run_twin(
    twin: LlamaForCausalLM,
    config: LlamaConfig,
    prompts: Sequence[Tensor],
    steps: int,
    choose: Callable[[int, Tensor], Tensor],
) -> Generation:
    """Run the twin on a padded batch; ``choose(step, logits)`` gives the tokens ``[batch]``."""
    cache = DenseCache(config, len(prompts), check_lengths(config, prompts, steps))
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    padded = torch.nn.utils.rnn.pad_sequence(list(prompts), batch_first=True)
    positions = torch.arange(padded.shape[1]).expand_as(padded)
    logits = [twin(padded, positions, cache, lengths - 1)]
    tokens = [choose(0, logits[0])]
    last = torch.zeros(len(prompts), dtype=torch.int64)
    for step in range(1, steps):
        now = (lengths + step - 1).unsqueeze(1)
        logits.append(twin(tokens[-1].unsqueeze(1), now, cache, last))
        tokens.append(choose(step, logits[-1]))
    return Generation(torch.stack(tokens), torch.stack(logits))


def generate_with_twin(
    twin: LlamaForCausalLM, config: LlamaConfig, prompts: Sequence[Tensor], steps: int
) -> Generation:
    """As :func:`generate`, computed by the twin.

    Raises:
        UsageError: more positions than the model has.
    """
    return _run_twin(twin, config, prompts, steps, lambda _, logits: logits.argmax(-1))


def follow(
    twin: LlamaForCausalLM, config: LlamaConfig, prompts: Sequence[Tensor], tokens: Tensor
) -> Tensor:
    """The twin's logits ``[steps, batch, vocab]`` while it is given the tokens of another run.

    Following the other run keeps the two comparable: one rounding difference between two likely
    tokens would send them different ways for good.

    Args:
        twin: the golden model.
        config: its shape.
        prompts: the prompts of the run.
        tokens: what the run generated, ``[steps, batch]``.
    """
    steps = tokens.shape[0]
    return _run_twin(twin, config, prompts, steps, lambda step, _: tokens[step]).logits
