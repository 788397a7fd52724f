"""Answers of bounded length that are still JSON."""

from __future__ import annotations

import json
from typing import Any

_TEXT = 400  # characters of a sentence that is cut
_LEAST = 3  # items of a list that stay


def bounded(value: dict[str, Any], most: int) -> str:
    """An object as JSON of at most ``most`` characters.

    Where it is longer, the longest lists lose their ends and long texts are cut; ``shortened`` says
    what is missing, by the path to it, and how many items there were.
    """
    text = json.dumps(value, ensure_ascii=False)
    cut: dict[str, int] = {}
    while len(text) > most:
        place = _longest(value)
        if place is None:
            return _too_long(value, most)
        owner, key, path, length = place
        if isinstance(owner[key], list):
            cut.setdefault(path, length)
            owner[key] = owner[key][: max(_LEAST, length // 2)]
        else:
            cut.setdefault(path, length)
            owner[key] = owner[key][:_TEXT] + "…"
        value["shortened"] = cut
        text = json.dumps(value, ensure_ascii=False)
    return text


def _too_long(value: dict[str, Any], most: int) -> str:
    """The head of an object that cannot be shortened any more."""
    note = f"the answer is longer than {most} characters; the reports have all of it"
    kept: dict[str, Any] = {"shortened": note}
    for name, each in value.items():
        if isinstance(each, int | str | None) and len(str(each)) <= _TEXT and name not in kept:
            longer = {**kept, name: each}
            if len(json.dumps(longer, ensure_ascii=False)) > most:
                break
            kept = longer
    return json.dumps(kept, ensure_ascii=False)


def _longest(value: Any) -> tuple[Any, Any, str, int] | None:
    """Where the longest list or text that can be cut lies: its owner, key, path and length."""
    best: tuple[int, Any, Any, str, int] | None = None
    stack: list[tuple[Any, str]] = [(value, "")]
    while stack:
        owner, path = stack.pop()
        pairs = owner.items() if isinstance(owner, dict) else enumerate(owner)
        for key, each in pairs:
            if key == "shortened":
                continue
            here = f"{path}.{key}".lstrip(".")
            size = 0
            if isinstance(each, list) and len(each) > _LEAST:
                size = len(json.dumps(each, ensure_ascii=False))
            elif isinstance(each, str) and len(each) > _TEXT + 1:
                size = len(each)
            if size and (best is None or size > best[0]):
                best = size, owner, key, here, len(each)
            if isinstance(each, dict | list):
                stack.append((each, here))
    return None if best is None else best[1:]
