"""What became worse than in an earlier result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from report_builder import (
    LIMIT,
    comparison,
    decoder_report,
    not_finite,
    problems,
    record,
    report,
    unreadable,
)

from ait_llm.core.comparison import Comparison, Problem, Report, Verdict
from ait_llm.errors import UsageError
from ait_llm.report.baseline import Against
from ait_llm.report.baseline.of_compare import Baseline, exit_code
from ait_llm.report.jsonl import write_jsonl


def item(place: int, error: float = 0.0, **changes: object) -> Comparison:
    """The output of an operation of its own."""
    return comparison(error, mine=record(f"LinearOperation_{place}", pid=42), **changes)


def healthy(count: int = 8) -> list[Comparison]:
    return [item(place) for place in range(100, 100 + count)]


def skipped(place: int, *, comparable: bool = True) -> Comparison:
    mine = record(f"LinearOperation_{place}", pid=42)
    return comparison(
        golden=None, mine=mine, verdict=Verdict.SKIPPED, reason="no partner", comparable=comparable
    )


def with_nan(place: int) -> Comparison:
    return replace(not_finite(), mine=record(f"LinearOperation_{place}", pid=42))


def of(*items: Comparison, **more: object) -> Report:
    return report(*items, *healthy(), **more)


def held(before: Report, now: Report, folder: Path, *, strict: bool = False) -> Against:
    path = folder / "last.jsonl"
    write_jsonl(before, path)
    baseline = Baseline(path)
    baseline.check(now)
    return baseline.hold(now, strict=strict)


def found(against: Against) -> dict[str, int]:
    return {kind: count for kind, count in against.counts.items() if count}


@pytest.mark.parametrize(
    ("before", "now", "kinds", "code"),
    [
        pytest.param(item(0), item(0), {}, 0, id="as before"),
        pytest.param(item(0), item(0, 0.5), {"worse": 1}, 1, id="fails now"),
        pytest.param(item(0, 0.5), item(0, 0.5), {"known": 1}, 0, id="fails as before"),
        pytest.param(item(0, 0.5), item(0, 0.99), {"known": 1}, 0, id="by less than twice as much"),
        pytest.param(item(0, 0.5), item(0, 1.01), {"worse": 1}, 1, id="by more than that"),
        pytest.param(item(0, 0.5), item(0), {"mended": 1}, 0, id="mended"),
        pytest.param(item(0), item(0, LIMIT), {}, 0, id="more, and within the limit"),
        pytest.param(item(0, 0.5), with_nan(0), {"worse": 1}, 1, id="NaN now"),
        pytest.param(with_nan(0), with_nan(0), {"known": 1}, 0, id="NaN as before"),
        pytest.param(item(0), skipped(0), {"lost": 1}, 3, id="not compared any more"),
        pytest.param(item(0, 0.5), skipped(0), {"lost": 1}, 3, id="a failure not compared"),
        pytest.param(skipped(0), skipped(0), {"known": 1}, 0, id="missing as before"),
        pytest.param(skipped(0), item(0), {"mended": 1}, 0, id="compared now"),
        pytest.param(skipped(0), item(0, 0.5), {"worse": 1}, 1, id="compared now, and fails"),
    ],
)
def test_only_what_became_worse_decides(
    before: Comparison, now: Comparison, kinds: dict[str, int], code: int, tmp_path: Path
) -> None:
    against = held(of(before), of(now), tmp_path)
    assert found(against) == kinds
    assert exit_code(of(now), against, allow_skip=False) == code
    assert exit_code(of(now), against, allow_skip=True) == (0 if code == 3 else code)


def test_rows_that_are_there_no_longer_and_new_ones_are_told_apart(tmp_path: Path) -> None:
    against = held(of(item(0), item(1, 0.5)), of(item(2), item(3, 0.5)), tmp_path)
    assert found(against) == {"worse": 1, "lost": 2, "new": 1}
    texts = {change.place: change.text for change in against.changes}
    assert texts["LinearOperation_0 outtensor0 step 0"] == "was compared and is no longer there"
    assert texts["LinearOperation_3 outtensor0 step 0"].endswith("; before: not there")


def test_another_process_id_is_the_same_row_and_two_ranks_are_two(tmp_path: Path) -> None:
    def run(first: int, wrong: int) -> Report:
        return report(
            *(
                comparison(
                    0.5 if rank == wrong else 0.0,
                    mine=record(pid=first + 7 * rank, device=rank, rank=rank),
                )
                for rank in range(4)
            )
        )

    assert found(held(run(10, 1), run(5000, 1), tmp_path)) == {"known": 1}
    assert found(held(run(10, 1), run(5000, 2), tmp_path)) == {"worse": 1, "mended": 1}


def test_what_only_one_program_makes_decides_with_strict_unless_it_is_known(tmp_path: Path) -> None:
    odd = skipped(0, comparable=False)
    assert found(held(of(item(0)), of(odd), tmp_path)) == {}
    assert found(held(of(item(0)), of(odd), tmp_path, strict=True)) == {"lost": 1}
    assert found(held(of(odd), of(odd), tmp_path, strict=True)) == {}


def test_a_problem_of_a_whole_dump_is_known_by_its_words_without_numbers(tmp_path: Path) -> None:
    again = [Problem("mine", "process 77 on device 0: it did not finish its capture")]
    now = of(problems=[*again, Problem("mine", "rank 3 is missing")])
    against = held(of(problems=problems()), now, tmp_path)
    assert list(against.known_missing) == [again[0].text]
    assert list(against.missing) == ["rank 3 is missing"]
    assert exit_code(now, against, allow_skip=False) == 3
    assert held(of(), of(problems=again * 2), tmp_path).missing == (again[0].text,) * 2


def test_a_fault_of_ait_counts_whatever_the_baseline_has(tmp_path: Path) -> None:
    now = of(replace(unreadable(), mine=record("LinearOperation_0", pid=42), fault="Traceback"))
    against = held(now, now, tmp_path)
    assert found(against) == {"known": 1}
    assert exit_code(now, against, allow_skip=True) == 4


def test_an_interrupted_comparison_is_no_success(tmp_path: Path) -> None:
    now = of(partial=True)
    assert exit_code(now, held(of(), now, tmp_path), allow_skip=True) == 3


def test_a_baseline_of_another_program_is_refused(tmp_path: Path) -> None:
    other = report(*(item(place) for place in range(3)))
    with pytest.raises(UsageError, match="is no baseline of this program: 0 of its 3 tensors are"):
        held(other, report(*healthy()), tmp_path)
    wider = [
        replace(each, mine=replace(each.record, shape=(11, 128)))
        for each in report(*healthy()).comparisons
    ]
    with pytest.raises(UsageError, match="0 of its 8 tensors are among the 8 here"):
        held(report(*wider), report(*healthy()), tmp_path)


def test_a_program_that_grew_keeps_its_baseline(tmp_path: Path) -> None:
    before, now = decoder_report(layers=2, fault=None), decoder_report(layers=3, fault=None)
    assert set(found(held(before, now, tmp_path))) <= {"new", "known", "lost"}


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (of(partial=True), of(), "is of a comparison that was interrupted"),
        (of(), of(scenario="torch-torch"), "it compares atb-torch, this one torch-torch"),
        (of(options={"tolerance": 0.5}), of(), "was made with another tolerance"),
    ],
)
def test_a_baseline_of_another_comparison_is_refused(
    before: Report, now: Report, said: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=said):
        held(before, now, tmp_path)
