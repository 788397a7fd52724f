"""Measuring in blocks gives what measuring at once gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ait_llm import compare, compare_data
from ait_llm.compare.blocks import BLOCK_ELEMENTS
from ait_llm.core.comparison import Verdict
from ait_llm.formats import dtype_of
from ait_llm.judge import judge_pair
from ait_llm.metrics import measure_pair

SHAPE = (3, max(4096, BLOCK_ELEMENTS // 256), 257)


@pytest.fixture(scope="module")
def pair() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    random = np.random.default_rng(17)
    golden = random.normal(size=SHAPE).astype(np.float32)
    mine = golden.astype(np.float16)
    mine[2, 5, 250] += np.float16(30)
    mine[1, 4000, 3] = np.nan
    return golden, mine


@pytest.mark.parametrize("turned", [False, True])
def test_numbers_and_places_are_those_of_one_pass(
    pair: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]], turned: bool
) -> None:
    golden, mine = pair
    stored = np.asfortranarray(golden) if turned else golden
    found = compare_data(stored, mine)
    whole = measure_pair(golden, mine)
    verdict = judge_pair(whole, dtype_of(golden), dtype_of(mine))
    assert set(found.values) == set(whole.values)
    for name, value in whole.values.items():
        assert found.values[name] == pytest.approx(value, rel=1e-9), name
    assert (found.verdict, found.reason) == (verdict.verdict, verdict.reason)
    assert found.worst == (2, 5, 250)
    assert found.first_bad == (1, 4000, 3)
    assert found.my_summary is not None
    assert found.my_summary.nan == 1


def test_float64_beyond_the_range_of_squares_is_measured_in_blocks_too() -> None:
    golden = np.full(BLOCK_ELEMENTS + 5, 1e200)
    found = compare_data(golden, golden * 1.25)
    assert found.values["relative_euclidean_distance"] == pytest.approx(0.25)
    assert found.verdict is Verdict.FAIL


def test_a_torch_file_that_was_replaced_after_listing_is_read_as_it_is_now(tmp_path: Path) -> None:
    sides = [tmp_path / side for side in ("golden", "mine")]
    for side in sides:
        folder = side / "ait_dump" / "torch_tensors" / "cpu_1" / "0" / "root.lin"
        folder.mkdir(parents=True)
        torch.save(torch.ones(4, 6), folder / "output.pth")
        tree = '{"name": "root", "type": "M", "children": []}'
        (folder.parents[1] / "model_tree.json").write_text(tree)
    path = sides[1] / "ait_dump/torch_tensors/cpu_1/0/root.lin/output.pth"
    large = torch.zeros(40, 6)
    large[7:11] = 2.0
    report = compare(*sides, on_matches=lambda _: torch.save(large[7:11], path))
    [found] = report.comparisons
    assert found.values["max_absolute_error"] == 1.0
