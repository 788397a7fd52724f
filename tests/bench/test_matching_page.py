"""The published results of matching: docs/matching-results.md and what writes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from matching_truth import PAIRS

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "scripts" / "bench"


@pytest.fixture(autouse=True)
def _bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


def test_the_page_is_made_of_the_results_on_record() -> None:
    from matching_page import PAGE, as_page, recorded  # type: ignore[import-not-found]

    assert PAGE.read_text(encoding="utf-8") == as_page(recorded())


def test_a_wrong_pair_or_a_low_recall_is_no_result_as_wanted() -> None:
    from matching_page import as_page

    right = {"right": 99, "wrong": 0, "missed": 1}
    counts = {
        "a/llama/distinct-module": right,
        "b/llama/distinct-op": right | {"wrong": 1},
        "c/llama/left": right | {"missed": 9},
        "e/llama/module": {"right": 95, "wrong": 0, "missed": 5},
    }
    assert counts.keys() <= PAIRS.keys()
    page = as_page(counts)
    assert "2 of 4 pairs are as wanted; 1 wrong pairs in all" in page
    assert "| llama/distinct-module | 100 | 99 | 0 | 1 | 0.990 | met |" in page
    assert "| llama/distinct-op | 100 | 99 | 1 | 1 | 0.990 | **missed** |" in page
    assert "| llama/left | 108 | 99 | 0 | 9 | 0.917 | **missed** |" in page
    assert "| llama/module | 100 | 95 | 0 | 5 | 0.950 | met |" in page
