"""How the two tensors of a pair belong together, in the few words that fit between them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ait_llm.core.comparison import Comparison, TensorRecord

SAME = "same"

# Between two views, as `match.views.describe` writes them; not between numbers in brackets.
_BETWEEN = re.compile(r", (?![^\[\]()]*[\])])")
_STRETCH = re.compile(r"(\d+:\d+) of axis (\d+)")
_ROWS = re.compile(r"(\d+) rows of axis \d+")
_AXES = re.compile(r"axes (.*)")


def relation_of(item: Comparison) -> str:
    """``same``, ``columns 0:64 of mine``, ``11 rows of golden``, ``sum in mine``, ``cast``.

    Empty where there is no pair.
    """
    if item.golden is None or item.mine is None:
        return ""
    words = [
        *_words(item.golden, item.golden_view, "golden"),
        *_words(item.mine, item.my_view, "mine"),
    ]
    if not words and item.golden.dtype is not item.mine.dtype:
        words.append("cast")
    if item.relation:
        words.insert(0, item.relation)
    return "; ".join(dict.fromkeys(words)) or SAME


def _words(record: TensorRecord, views: str, side: str) -> Iterator[str]:
    shape = record.shape or ()
    for text in _BETWEEN.split(views):
        if match := _STRETCH.fullmatch(text):
            is_first = match[2] == "0" and len(shape) > 1
            yield f"{'rows' if is_first else 'columns'} {match[1]} of {side}"
        elif match := _ROWS.fullmatch(text):
            yield f"{match[1]} rows of {side}"
        elif _AXES.fullmatch(text):
            yield f"{side} transposed" if len(shape) == 2 else f"axes of {side} reordered"
        elif text.startswith("plus "):
            yield f"sum in {side}"
        elif text and not text.startswith("as ["):  # other dims of the same elements are no news
            yield f"{side} {text}"
