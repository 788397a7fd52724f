"""The settings by which a program chooses tokens from its logits, as a ledger keeps them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# Of transformers' GenerationConfig and of vLLM's SamplingParams; both have most of them.
_NAMES = (
    *("do_sample", "temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff"),
    *("eta_cutoff", "repetition_penalty", "presence_penalty", "frequency_penalty"),
    *("encoder_repetition_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size"),
    *("bad_words_ids", "bad_words", "logit_bias", "sequence_bias", "allowed_token_ids"),
    *("num_beams", "length_penalty", "early_stopping", "guidance_scale", "renormalize_logits"),
    *("suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id", "forced_eos_token_id"),
    *("exponential_decay_length_penalty", "min_length", "min_new_tokens", "min_tokens", "seed"),
)
_LONGEST = 200


def settings_of(config: object, processors: Iterable[object] | None = None) -> dict[str, str]:
    """What is set, as text; the classes of processors of logits under ``processors``.

    Args:
        config: the settings.
        processors: those of logits; None where the engine does not tell them.
    """
    found: dict[str, str] = {}
    for name in _NAMES:
        value: Any = getattr(config, name, None)
        if value is not None and value != [] and value != {}:
            found[name] = str(value)[:_LONGEST]
    if processors is not None:
        classes = ", ".join(type(each).__name__ for each in processors)
        found["processors"] = classes[:_LONGEST]
    return found
