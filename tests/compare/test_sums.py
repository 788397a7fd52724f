"""A tensor of golden that is the sum of two of mine: two residual streams."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from memory_runs import ArraySource, array_tensor, memory_operation

from ait_llm.compare.pair import Settings, compare_match
from ait_llm.core import Verdict
from ait_llm.dumps.model import Tensor
from ait_llm.formats import Statistics
from ait_llm.match.model import Match
from ait_llm.match.operators import Placed
from ait_llm.match.views import Plus, Reshape
from ait_llm.metrics import METRIC_NAMES

SETTINGS = Settings(METRIC_NAMES)
DELTA = np.linspace(-4, 4, 24, dtype=np.float16).reshape(2, 3, 4)
RESIDUAL = np.linspace(7, -2, 24, dtype=np.float16).reshape(6, 4)


class Described(ArraySource):
    """Reads a tensor of which only statistics were captured."""

    def has_data(self, tensor: Tensor) -> bool:
        return False

    def recorded_statistics(self, tensor: Tensor) -> Statistics:
        return Statistics(4.0, -4.0, 0.0, 1.0)


def _match(golden: np.ndarray, tmp_path: Path) -> Match:
    file = tmp_path / "values"
    file.touch()
    delta, residual, total = (
        array_tensor("out", place, array, file=str(file))
        for place, array in enumerate((DELTA, RESIDUAL, golden))
    )
    mine = Placed(memory_operation("FusedAddNorm", (0,), (), [delta, residual]), 0)
    other = Placed(memory_operation("Add", (0,), (), [total]), 0)
    residual_record = mine.source(residual).record
    return Match(
        other.source(total),
        mine.source(delta, (Plus(residual_record, residual, (Reshape((2, 3, 4)),)),)),
        "test",
        1.0,
        "the stream is in two parts",
        uses=(("mine", residual_record),),
    )


def test_the_sum_is_measured_as_any_other_tensor(tmp_path: Path) -> None:
    golden = DELTA + RESIDUAL.reshape(2, 3, 4)  # rounded to float16
    found = compare_match(_match(golden, tmp_path), SETTINGS)
    assert (found.verdict, found.my_view) == (
        Verdict.PASS,
        "plus FusedAddNorm_0 outtensor1 (as [2, 3, 4])",
    )
    golden[1, 2, 0] += 1
    found = compare_match(_match(golden, tmp_path), SETTINGS)
    assert (found.verdict, found.worst) == (Verdict.FAIL, (1, 2, 0))


def test_statistics_of_summands_say_nothing_about_the_sum(tmp_path: Path) -> None:
    match = _match(DELTA, tmp_path)
    sides = [
        replace(
            source,
            tensor=replace(source.tensor, source=Described(source.tensor.numpy())),
        )
        for source in (match.golden, match.mine)
    ]
    found = compare_match(replace(match, golden=sides[0], mine=sides[1]), SETTINGS)
    assert found.verdict is Verdict.SKIPPED
    assert "a sum of two tensors answers the other" in found.reason
    assert not found.comparable
