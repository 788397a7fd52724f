"""Captures without values: their statistics or descriptions are compared."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from compare_dumps import AtbPair, of
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ait_llm import DumpConfig, compare, open_dump, register_hook
from ait_llm.compare.pair import Settings, compare_match
from ait_llm.compare.statistics import SCALED_ERROR, compare_statistics
from ait_llm.core.comparison import Verdict
from ait_llm.formats import Statistics, measure
from ait_llm.judge.gain import may_be_inherited
from ait_llm.match.model import Match, Source
from ait_llm.metrics import METRIC_NAMES
from ait_llm.report.terminal import terminal_lines

ARRAY = np.random.default_rng(11).normal(size=(8, 16)).astype(np.float16)
TITLE = "LinearOperation_0 outtensor0"


def recorded(array: np.ndarray) -> dict[str, str]:
    """Header lines as a capture with statistics writes them."""
    found = measure(array)
    return {
        "max": str(found.max),
        "min": str(found.min),
        "mean": str(found.mean),
        "l2norm": str(found.l2norm),
    }


@pytest.mark.parametrize("data", [(False, False), (True, False), (False, True)])
def test_statistics_are_compared_where_a_side_has_no_values(
    tmp_path: Path, data: tuple[bool, bool]
) -> None:
    mine = ARRAY.copy()
    mine[2, 3] = 30.0
    pair = AtbPair(tmp_path)
    lines = [
        {} if has_data else recorded(array)
        for has_data, array in zip(data, (ARRAY, mine), strict=True)
    ]
    pair.add("0_LinearOperation", ARRAY, mine, attributes=lines, data=data)
    pair.add(
        "1_LinearOperation", ARRAY, ARRAY, attributes=[recorded(ARRAY)] * 2, data=(False, False)
    )
    report = compare(pair.golden, pair.mine)
    found = of(report, TITLE)
    g, m = ARRAY.astype(np.float64), mine.astype(np.float64)
    assert found.verdict is Verdict.FAIL
    assert found.values["max_stat_absolute_error"] == pytest.approx(30 - g.max())
    assert found.values["max_stat_relative_error"] == pytest.approx((30 - g.max()) / g.max())
    assert found.values["min_stat_absolute_error"] == 0
    assert found.values["mean_stat_absolute_error"] == pytest.approx(abs(m.mean() - g.mean()))
    assert found.values["l2norm_stat_relative_error"] == pytest.approx(
        np.linalg.norm(m) / np.linalg.norm(g) - 1
    )
    assert found.needed[SCALED_ERROR] == found.values[SCALED_ERROR]
    assert found.tolerance[SCALED_ERROR] < found.needed[SCALED_ERROR]
    assert "max differs" in found.reason or "l2norm differs" in found.reason
    assert of(report, "LinearOperation_1 outtensor0").verdict is Verdict.PASS
    assert "max_stat_relative_error" in report.metrics
    assert report.exit_code() == 1


class _Apart(torch.nn.Module):
    """A gated layer, its two projections apart or joined."""

    def __init__(self, *, joined: bool, factor: float = 1.0) -> None:
        super().__init__()
        self.joined = joined
        if joined:
            self.gate_up_proj = torch.nn.Linear(16, 48, bias=False)
        else:
            self.gate_proj = torch.nn.Linear(16, 24, bias=False)
            self.up_proj = torch.nn.Linear(16, 24, bias=False)
        self.down_proj = torch.nn.Linear(24, 16, bias=False)
        drawn = torch.Generator().manual_seed(3)
        gate, up, down = (
            torch.randn(shape, generator=drawn) for shape in ((24, 16), (24, 16), (16, 24))
        )
        weights = [torch.cat([gate, up]), down] if joined else [gate, up, down]
        with torch.no_grad():
            for parameter, weight in zip(self.parameters(), weights, strict=True):
                parameter.copy_(weight)
            self.down_proj.weight *= factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.joined:
            gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        else:
            gate, up = self.gate_proj(x), self.up_proj(x)
        return self.down_proj(torch.nn.functional.silu(gate) * up)


def _measured(folder: Path, model: torch.nn.Module, *, values: bool) -> Path:
    config = DumpConfig(folder, mode="tensor" if values else "stats")
    drawn = torch.Generator().manual_seed(5)
    with torch.no_grad(), register_hook(model.eval(), config):
        model(torch.randn(2, 7, 16, generator=drawn))
    return folder


def test_parts_of_which_there_are_no_statistics_do_not_decide(tmp_path: Path) -> None:
    golden = _measured(tmp_path / "golden", _Apart(joined=False), values=True)
    mine = _measured(tmp_path / "mine", _Apart(joined=True), values=False)
    report = compare(golden, mine)
    assert (report.verdict, report.exit_code()) == (Verdict.PASS, 0)
    assert report.without_parts > 0
    assert (report.missing, report.left_out) == (0, 0)
    assert report.exit_code(strict=True) == 3
    said = " ".join("\n".join(terminal_lines(report)).split())
    assert "in parts, of which there are no statistics (in the reports)" in said


def test_a_fault_behind_parts_without_statistics_fails(tmp_path: Path) -> None:
    golden = _measured(tmp_path / "golden", _Apart(joined=False), values=True)
    mine = _measured(tmp_path / "mine", _Apart(joined=True, factor=1.5), values=False)
    assert compare(golden, mine).verdict is Verdict.FAIL


def test_descriptions_are_compared_and_skipped_with_a_reason(tmp_path: Path) -> None:
    pair = AtbPair(tmp_path)
    pair.add("0_LinearOperation", ARRAY, ARRAY, data=(False, False))
    pair.add("1_LinearOperation", ARRAY, ARRAY, data=(True, False))
    report = compare(pair.golden, pair.mine)
    assert of(report, TITLE).verdict is Verdict.SKIPPED
    assert "both are descriptions without values" in of(report, TITLE).reason
    other = of(report, "LinearOperation_1 outtensor0")
    assert (other.verdict, "mine is a description" in other.reason) == (Verdict.SKIPPED, True)
    assert report.exit_code() == 3


def test_descriptions_that_differ_in_shape_or_kind_of_type_fail(tmp_path: Path) -> None:
    """Matchers refuse such pairs unless the user's own mapping asks for them."""
    pair = AtbPair(tmp_path)
    others = [ARRAY.astype(np.int32), ARRAY[:4], ARRAY.astype(np.float32)]
    found = []
    for number, other in enumerate(others):
        pair.add(f"{number}_LinearOperation", ARRAY, other, data=(False, False))
        sources = []
        for side in (pair.golden, pair.mine):
            operation = [*open_dump(side).operations()][number]
            [tensor] = operation.outputs
            sources.append(Source(operation, tensor, number))
        match = Match(*sources, rule="saved_mapping", confidence=1.0, reason="told so")
        found.append(compare_match(match, Settings(METRIC_NAMES)))
    assert [each.verdict for each in found] == [Verdict.FAIL, Verdict.FAIL, Verdict.SKIPPED]
    assert "types differ: golden float16, mine int32" in found[0].reason
    assert "shapes differ: golden [8, 16], mine [4, 16]" in found[1].reason


FLOATS = arrays.arrays(
    np.float64, st.integers(1, 20), elements=st.floats(-1e6, 1e6, allow_subnormal=False)
)


@given(FLOATS)
def test_equal_statistics_pass(array: np.ndarray) -> None:
    statistics = measure(array)
    result = compare_statistics(statistics, statistics, array.size, 0.0)
    assert result.verdict is Verdict.PASS
    assert set(result.values.values()) == {0.0}


@given(FLOATS, st.floats(1.1, 10))
def test_a_scaled_tensor_fails_whatever_its_size(array: np.ndarray, factor: float) -> None:
    if not array.any():
        return
    result = compare_statistics(measure(array), measure(array * factor), array.size, 0.05)
    assert result.verdict is Verdict.FAIL
    assert result.needed[SCALED_ERROR] >= factor - 1 - 1e-9


def test_a_mean_near_zero_does_not_fail_a_sound_tensor() -> None:
    golden = Statistics(min=-3.0, max=3.0, mean=1e-9, l2norm=10.0, nan=0, inf=0)
    mine = Statistics(min=-3.0, max=3.0, mean=1e-6, l2norm=10.0, nan=0, inf=0)
    result = compare_statistics(golden, mine, 100, 0.001)
    assert result.values["mean_stat_relative_error"] > 900
    assert result.verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("golden", "mine", "words"),
    [
        (Statistics(1, 2, 1.5, 9, 0, 0), Statistics(1, 2, 1.5, 9, 3, 0), "0 NaN elements, mine 3"),
        (Statistics(1, 2, 1.5, 9, 0, 0), Statistics(1, 2, 1.5, 9, 0, 1), "infinite elements"),
        (Statistics(0, 0, 0, 0, 0, 0), Statistics(0, 1, 0.1, 1, 0, 0), "differs by inf"),
        (Statistics(1, 2, 1.5, 9), Statistics(1, math.nan, 1.5, 9), "differs by nan"),
    ],
)
def test_statistics_that_differ_fail_with_a_reason(
    golden: Statistics, mine: Statistics, words: str
) -> None:
    result = compare_statistics(golden, mine, 4, 0.01)
    assert result.verdict is Verdict.FAIL
    assert words in result.reason


@pytest.mark.parametrize(("change", "verdict"), [(0, Verdict.PASS), (1, Verdict.FAIL)])
def test_whole_numbers_may_differ_by_how_sums_were_made_and_by_no_element(
    change: int, verdict: Verdict
) -> None:
    golden = Statistics(31999, 0, 17001.5, 5e6, 0, 0)
    rounded = np.nextafter(np.nextafter(17001.5, 0), 0)
    mine = Statistics(31999, 0, float(rounded) + change / 65536, 5e6, 0, 0)
    assert compare_statistics(golden, mine, 65536, 0.0).verdict is verdict


def test_unknown_statistics_are_not_guessed() -> None:
    some = Statistics(max=2.0)
    result = compare_statistics(some, Statistics(min=1.0), 4, 0.01)
    assert result.verdict is Verdict.SKIPPED
    assert not result.values
    assert result.missing["max_stat_relative_error"] == "mine has no max"
    partial = compare_statistics(some, Statistics(max=2.0, min=1.0), 4, 0.01)
    assert partial.verdict is Verdict.PASS


def test_the_relative_error_of_a_zero_is_not_a_number() -> None:
    zero = Statistics(0.0, 5.0, 1.0, 9.0)
    result = compare_statistics(zero, Statistics(0.5, 5.0, 1.0, 9.0), 9, 0.2)
    assert result.values["min_stat_absolute_error"] == 0.5
    assert result.missing["min_stat_relative_error"] == "golden's min is zero"
    assert result.verdict is Verdict.PASS


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("golden", "mine", "verdict"),
    [
        ((NAN, NAN, NAN, NAN), (NAN, NAN, NAN, NAN), Verdict.PASS),
        ((INF, 1.0, INF, INF), (INF, 1.0, INF, INF), Verdict.PASS),
        ((INF, 1.0, INF, INF), (INF, 1.5, INF, INF), Verdict.FAIL),
        ((2.0, 1.0, 1.5, 2.2), (NAN, NAN, NAN, NAN), Verdict.FAIL),
        ((INF, 1.0, INF, INF), (-INF, 1.0, INF, INF), Verdict.FAIL),
    ],
)
def test_what_is_not_finite_agrees_with_itself_only(
    golden: tuple[float, ...], mine: tuple[float, ...], verdict: Verdict
) -> None:
    sides = [
        Statistics(max=each[0], min=each[1], mean=each[2], l2norm=each[3])
        for each in (golden, mine)
    ]
    result = compare_statistics(*sides, elements=4, limit=1e-3)
    assert result.verdict is verdict
    assert ("nan" in result.reason) is (verdict is Verdict.FAIL and any(map(math.isnan, mine)))


def test_sums_over_whole_numbers_are_held_to_the_rounding_of_sums() -> None:
    ids = measure(np.array([24, 76, 91, 55, 90, 30]))
    assert ids.l2norm is not None
    other = dataclasses.replace(ids, l2norm=ids.l2norm * (1 + 2.0**-52))
    assert compare_statistics(ids, other, 6, 0.0).verdict is Verdict.PASS
    assert ids.max is not None
    larger = dataclasses.replace(ids, max=ids.max + 1)
    assert compare_statistics(ids, larger, 6, 0.0).verdict is Verdict.FAIL


def test_no_error_that_came_in_explains_another_count_of_nan() -> None:
    golden = measure(ARRAY)
    mine = dataclasses.replace(golden, nan=1)
    found = compare_statistics(dataclasses.replace(golden, nan=0), mine, ARRAY.size, 0.1)
    assert found.verdict is Verdict.FAIL
    assert not may_be_inherited(found.needed, found.tolerance, {SCALED_ERROR: 0.05})
