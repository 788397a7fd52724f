"""Reading a ``config.json`` of Hugging Face, which anybody may have written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ait_llm.errors import FormatError

_MAX_BYTES = 4 << 20
_MAX_NUMBER = 1 << 31
_LIMITS = {
    "layers": 1024,
    "layer": 1024,
    "experts": 4096,
    "hidden_size": 1 << 18,
    "n_embd": 1 << 18,
    "d_model": 1 << 18,
    "intermediate_size": 1 << 22,
    "vocab_size": 1 << 25,
    "heads": 1 << 14,
    "head": 1 << 14,
    "max_position_embeddings": 1 << 26,
    "n_positions": 1 << 24,
}
"""Largest numbers that are believed, by the end of their name."""


def read_model_config(path: Path) -> dict[str, Any]:
    """The content of a ``config.json``, or of that in a folder.

    Raises:
        FormatError: it cannot be read, is no JSON object, names no model type, or holds numbers
            that no model has.
    """
    if path.is_dir():
        path = path / "config.json"
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise FormatError(path, f"cannot be read ({error.strerror})") from None
    if len(data) > _MAX_BYTES:
        raise FormatError(path, f"is larger than {_MAX_BYTES >> 20} MiB; it is no config.json")
    try:
        config = json.loads(data)
    except (ValueError, RecursionError):
        raise FormatError(path, "is not JSON; --model takes the config.json of a model") from None
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise FormatError(
            path, "names no model_type; --model takes the config.json of a Hugging Face model"
        )
    for name, value in _numbers(config):
        limit = _limit(name)
        if not -_MAX_NUMBER <= value <= limit:
            raise FormatError(path, f"{name} is {value}, and no model has more than {limit}")
    return config


def _limit(name: str) -> int:
    limits = [limit for end, limit in _LIMITS.items() if name == end or name.endswith(f"_{end}")]
    return min(limits, default=_MAX_NUMBER)


def _numbers(config: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, int]]:
    for name, value in config.items():
        if isinstance(value, bool):
            continue
        if isinstance(value, int):
            yield name, value
        elif isinstance(value, dict) and depth < 8:
            yield from _numbers(value, depth + 1)
