"""Settings by which tokens are chosen from logits, compared as definitions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ait_llm.decisions.result import Setting
from ait_llm.dumps import open_dump

_SAMPLED, _TEMPERATURE, _PROCESSORS = "do_sample", "temperature", "processors"
_SAMPLING = (
    *(_TEMPERATURE, "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"),
    "seed",
)
"""What counts only where tokens are drawn."""
# What changes nothing, and is as good as not set.
_NEUTRAL: Mapping[str, str | float] = {
    **dict.fromkeys(
        (
            *("num_beams", _TEMPERATURE, "repetition_penalty", "encoder_repetition_penalty"),
            *("length_penalty", "top_p", "typical_p", "guidance_scale"),
        ),
        1.0,
    ),
    **dict.fromkeys(
        (
            *("presence_penalty", "frequency_penalty", "no_repeat_ngram_size", "min_p"),
            *("encoder_no_repeat_ngram_size", "min_length", "min_new_tokens", "min_tokens"),
            *("epsilon_cutoff", "eta_cutoff"),
        ),
        0.0,
    ),
    **dict.fromkeys(("renormalize_logits", "early_stopping"), "False"),
}


def other_settings(golden: Path, mine: Path) -> list[Setting]:
    """Settings that are not the same in both captures, where both tell theirs.

    Raises:
        FormatError: a capture cannot be read.
    """
    return differing(_settings(golden), _settings(mine))


def differing(golden: Mapping[str, str], mine: Mapping[str, str]) -> list[Setting]:
    """The settings that are not the same on two sides; none where a side tells nothing.

    Engines have other names and defaults: one that is not told is what changes nothing, a search
    without randomness is one whatever its settings of sampling are, and processors of logits are
    compared where both sides tell theirs.
    """
    if not golden or not mine:
        return []
    sides = [dict(golden), dict(mine)]
    draws = [_draws(side) for side in sides]
    left_out = () if any(draws) else _SAMPLING
    if not all(_PROCESSORS in side for side in sides):
        left_out = (*left_out, _PROCESSORS)
    for side, drawn in zip(sides, draws, strict=True):
        side[_SAMPLED] = str(drawn)
    found = []
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        values = [_value(name, side.get(name, "")) for side in sides]
        if name not in left_out and values[0] != values[1]:
            found.append(Setting(name, sides[0].get(name, ""), sides[1].get(name, "")))
    return found


def _draws(side: Mapping[str, str]) -> bool:
    """True if tokens are drawn: transformers says so, vLLM by a temperature."""
    if _SAMPLED in side:
        return side[_SAMPLED] == "True"
    return _PROCESSORS not in side and float(side.get(_TEMPERATURE, 0)) != 0


def _value(name: str, text: str) -> str | float:
    """What a setting means; of one that is not told, or changes nothing, the same for all."""
    if not text:
        return _NEUTRAL.get(name, "")
    try:
        return float(text)
    except ValueError:
        return text


def _settings(path: Path) -> Mapping[str, str]:
    """Those of the first generation that a capture tells of."""
    for process in open_dump(path).processes:
        if process.ledger is not None and process.ledger.choosing:
            return process.ledger.choosing[0]
    return {}
