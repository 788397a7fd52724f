"""Settings by which tokens are chosen from logits, compared as definitions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ait_llm.decisions.result import Setting
from ait_llm.dumps import open_dump

_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff")
_SAMPLED = "do_sample"
# What a side that does not tell it has, where that is one value for all.
_USUAL = {
    "num_beams": "1",
    "temperature": "1.0",
    "repetition_penalty": "1.0",
    "presence_penalty": "0.0",
    "frequency_penalty": "0.0",
    "length_penalty": "1.0",
}


def other_settings(golden: Path, mine: Path) -> list[Setting]:
    """Settings that are not the same in both captures, where both tell theirs.

    Raises:
        FormatError: a capture cannot be read.
    """
    sides = [_settings(golden), _settings(mine)]
    if not all(sides):
        return []
    theirs, ours = sides
    names = [*theirs, *(name for name in ours if name not in theirs)]
    if all(side.get(_SAMPLED) == "False" for side in sides):
        names = [name for name in names if name not in _SAMPLING]
    found = []
    for name in names:
        values = [side.get(name, _USUAL.get(name, "")) for side in sides]
        if not _same(*values):
            found.append(Setting(name, *values))
    return found


def _settings(path: Path) -> Mapping[str, str]:
    """Those of the first generation that a capture tells of."""
    for process in open_dump(path).processes:
        if process.ledger is not None and process.ledger.choosing:
            return process.ledger.choosing[0]
    return {}


def _same(one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return float(one) == float(other)
    except ValueError:
        return False
