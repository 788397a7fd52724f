"""Which formula an attention computes, as golden's own values prove it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ait_llm.formats.elements import Array
from ait_llm.judge.attention import Distance, distance, may_fit
from ait_llm.judge.attention_formula import Given
from ait_llm.judge.attention_parts import Attention, Recipe
from ait_llm.judge.attention_recipes import recipes

MOST_ELEMENTS = 1 << 15  # of keys, and of scores, that are computed
_FEW = 2  # tokens that tell whether a formula may be golden's


def proof(golden: Attention, proved: Sequence[Recipe] = ()) -> tuple[Recipe, Distance] | None:
    """What golden's values prove to be its attention, and how far they are from it.

    Args:
        golden: one that golden captured.
        proved: what others of its values prove, to be tried first.
    """
    for recipe in (*proved, *recipes(golden)):
        whole = golden.given(recipe)
        if whole is None:
            continue
        given = whole.sampled(MOST_ELEMENTS)
        rows = rows_of(given)
        if recipe not in proved and not may_fit(given, recipe.formula, rows[-_FEW:]):
            continue
        found = distance(given, recipe.formula, rows)
        if found is not None and found.is_proved:
            return recipe, found
    return None


def rows_of(given: Given) -> Array:
    """Tokens that are looked at: as many as may be, spread evenly, the last one among them."""
    requests, heads, tokens, _ = given.query.shape
    count = min(tokens, max(1, MOST_ELEMENTS // max(1, requests * heads * given.keys)))
    found: Array = np.unique(np.linspace(tokens - 1, 0, count).round().astype(int))
    return found
