"""Attention masks of two element types."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from memory_runs import ones, operation, run

from ait_llm.match.choose import match_runs
from ait_llm.match.model import Match, MatchOptions
from ait_llm.match.views import describe

LOWEST = float(ml_dtypes.finfo(ml_dtypes.bfloat16).min)
HALF = np.where(np.triu(np.ones((3, 3)), 1), -65504, 0).astype(np.float16)
BRAIN = np.where(np.triu(np.ones((3, 3)), 1), LOWEST, 0).astype(ml_dtypes.bfloat16)


def _views(golden: np.ndarray, mine: np.ndarray, kind: str = "SelfAttentionOperation") -> set[str]:
    x = ones(3, 4)
    rows = [
        run(
            "atb",
            [
                operation("Layer", (0,), [x, mask], [x], is_graph=True),
                operation(kind, (0, 0), [x, mask], [x]),
            ],
        )
        for mask in (golden, mine)
    ]
    return {
        describe(match.mine.views)
        for match in match_runs(rows[0], rows[1], MatchOptions())
        if isinstance(match, Match) and match.mine.record.name == "intensor1"
    }


def test_lowest_values_of_both_types_hide_alike_in_operations_and_graphs() -> None:
    assert _views(HALF, BRAIN) == {"-3.38953e+38 hides"}
    assert _views(BRAIN, HALF) == {"-65504 hides"}


def test_ones_of_bf16_hide_as_the_lowest_value_of_half_does() -> None:
    ones_hide = (BRAIN != 0).astype(ml_dtypes.bfloat16)
    assert _views(HALF, ones_hide) == {"1 hides"}


def test_a_mask_that_hides_other_places_is_compared_as_it_is() -> None:
    assert _views(HALF, BRAIN.T) == {""}


def test_the_lowest_value_elsewhere_is_an_ordinary_number() -> None:
    assert _views(HALF, BRAIN, "LinearOperation") == {""}
