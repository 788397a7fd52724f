"""Whole comparisons of small dumps: order, progress, interruption, resumption."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from compare_dumps import AtbPair, of

import ait_llm
from ait_llm import DumpConfig, compare, compare_data, register_hook
from ait_llm.compare import Progress, origin, repeated, work
from ait_llm.core.comparison import Comparison, Report, Verdict
from ait_llm.errors import UsageError
from ait_llm.match.model import Match
from ait_llm.report import JsonlWriter
from ait_llm.report.jsonl import read_jsonl

ONES = np.ones((4, 8), np.float16)


@pytest.fixture
def pair(tmp_path: Path) -> AtbPair:
    pair = AtbPair(tmp_path)
    pair.add_many(12)
    return pair


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Match]:
    """The matches that are really measured."""
    measured: list[Match] = []
    original = repeated.compare_match

    def count(match: Match, settings: Any) -> Comparison:
        measured.append(match)
        return original(match, settings)

    monkeypatch.setattr(repeated, "compare_match", count)
    return measured


def test_tensors_come_in_my_execution_order_golden_ones_alone_last(tmp_path: Path) -> None:
    pair = AtbPair(tmp_path)
    for number in (10, 2, 0):
        pair.add(f"{number}_LinearOperation", ONES, ONES)
        pair.add(f"{number}_LinearOperation", ONES, ONES, name="intensor0")
    pair.add("1_GatherOperation", ONES, None)
    pair.add("3_SoftmaxOperation", None, ONES)
    report = compare(pair.golden, pair.mine)
    assert [item.record.title for item in report.comparisons] == [
        "LinearOperation_0 intensor0",
        "LinearOperation_0 outtensor0",
        "LinearOperation_2 intensor0",
        "LinearOperation_2 outtensor0",
        "SoftmaxOperation_3 outtensor0",
        "LinearOperation_10 intensor0",
        "LinearOperation_10 outtensor0",
        "GatherOperation_1 outtensor0",
    ]
    alone = [item for item in report.comparisons if item.verdict is Verdict.SKIPPED]
    assert [item.golden is None for item in alone] == [True, False]
    assert all(item.reason for item in alone)
    assert report.exit_code() == 3
    assert report.exit_code(allow_skip=True) == 0


def test_the_order_does_not_depend_on_the_number_of_threads(
    pair: AtbPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "_BATCH_PAIRS", 1)
    one, several = (compare(pair.golden, pair.mine, jobs=jobs) for jobs in (1, 5))
    assert one.comparisons == several.comparisons


def test_progress_counts_pairs_and_bytes(pair: AtbPair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "_BATCH_PAIRS", 5)
    seen: list[Progress] = []
    compare(pair.golden, pair.mine, jobs=1, on_progress=seen.append)
    assert [each.pairs for each in seen] == [5, 10, 12]
    assert {(each.total_pairs, each.total_bytes) for each in seen} == {(12, 12 * 2 * 8 * 16 * 2)}
    assert seen[-1].bytes == seen[-1].total_bytes


def test_callbacks_get_each_comparison_with_its_place(pair: AtbPair) -> None:
    started: list[Report] = []
    found: dict[int, Comparison] = {}
    report = compare(
        pair.golden, pair.mine, on_start=started.append, on_comparison=found.__setitem__
    )
    assert [found[place] for place in range(12)] == list(report.comparisons)
    assert [(each.partial, each.comparisons, each.scenario) for each in started] == [
        (True, (), "atb-atb")
    ]


def test_an_error_is_split_into_inherited_and_introduced(tmp_path: Path) -> None:
    pair = AtbPair(tmp_path)
    golden = np.ones((4, 100), np.float32)
    pair.add("0_LinearOperation", golden, golden * np.float32(1.03), name="intensor0")
    pair.add("0_LinearOperation", golden, golden, name="intensor1")
    pair.add("0_LinearOperation", golden, golden * np.float32(1.05))
    report = compare(pair.golden, pair.mine)
    output = of(report, "LinearOperation_0 outtensor0")
    assert output.inherited == pytest.approx(0.03, rel=1e-4)
    assert output.introduced == pytest.approx(0.04, rel=1e-4)
    assert of(report, "LinearOperation_0 intensor0").inherited is None


def test_an_unreadable_plug_in_or_a_bug_costs_one_pair(
    pair: AtbPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = repeated.compare_match.__globals__["_compare"]

    def buggy(match: Match, settings: Any) -> Comparison:
        if match.mine.record.op == "LinearOperation_4":
            raise ZeroDivisionError("a bug")
        found: Comparison = original(match, settings)
        return found

    monkeypatch.setitem(repeated.compare_match.__globals__, "_compare", buggy)
    report = compare(pair.golden, pair.mine)
    assert of(report, "LinearOperation_4 outtensor0").reason == (
        "cannot be compared: a fault of ait: ZeroDivisionError: a bug"
    )
    assert report.counts[Verdict.PASS] == 11
    assert report.exit_code(allow_skip=True) == 4


def test_what_was_measured_is_not_lost_with_the_search_for_origins(
    pair: AtbPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def buggy(*args: Any, **options: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(origin, "find_origins", buggy)
    report = compare(pair.golden, pair.mine, deep=True)  # all are equal: it is not asked otherwise
    assert report.counts[Verdict.PASS] == 12
    [problem] = report.problems
    assert "ZeroDivisionError: a bug" in problem.text
    # An operation that is wrong within the tolerance would have been found by it.
    assert report.exit_code() == 4


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_left_as_it_was(pair: AtbPair, enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    try:
        compare(pair.golden, pair.mine)
        assert gc.isenabled() is enabled
    finally:
        gc.enable()


def test_a_stop_leaves_a_partial_report_of_what_is_finished(
    pair: AtbPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "_BATCH_PAIRS", 1)
    stop = threading.Event()

    def stop_at_five(progress: Progress) -> None:
        if progress.pairs >= 5:
            stop.set()

    report = compare(pair.golden, pair.mine, jobs=1, stop=stop, on_progress=stop_at_five)
    assert report.partial
    assert len(report.comparisons) == 5
    assert report.problems[-1].text == "interrupted before 7 of 12 were compared"
    assert report.exit_code() == 3


def test_a_keyboard_interrupt_leaves_a_partial_report_too(
    pair: AtbPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "_BATCH_PAIRS", 1)

    def interrupt(progress: Progress) -> None:
        if progress.pairs >= 5:
            raise KeyboardInterrupt

    for jobs in (1, 3):
        report = compare(pair.golden, pair.mine, jobs=jobs, on_progress=interrupt)
        assert report.partial
        assert 5 <= len(report.comparisons) < 12


def partial_journal(pair: AtbPair, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report of the first five of twelve pairs."""
    with monkeypatch.context() as patch:
        patch.setattr(work, "_BATCH_PAIRS", 1)
        stop = threading.Event()
        writers: list[JsonlWriter] = []

        def add(place: int, item: Comparison) -> None:
            writers[0].add(place, item)
            if place == 4:
                stop.set()

        compare(
            pair.golden,
            pair.mine,
            jobs=1,
            stop=stop,
            on_start=lambda report: writers.append(JsonlWriter(path, report)),
            on_comparison=add,
        )
        writers[0].close()
    assert len(read_jsonl(path).comparisons) == 5


def test_what_an_earlier_report_has_is_not_measured_again(
    pair: AtbPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "report.jsonl"
    partial_journal(pair, journal, monkeypatch)
    whole = compare(pair.golden, pair.mine)
    measured = counted(monkeypatch)
    seen: list[Progress] = []
    resumed = compare(pair.golden, pair.mine, resume=journal, on_progress=seen.append)
    assert len(measured) == 7
    assert seen[-1].resumed == 5
    assert resumed.comparisons == whole.comparisons
    assert not resumed.partial


@pytest.mark.parametrize("side", ["golden", "mine"])
def test_files_that_changed_since_are_measured_again(
    pair: AtbPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    journal = tmp_path / "report.jsonl"
    partial_journal(pair, journal, monkeypatch)
    path = pair.file(side, "2_LinearOperation")
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1))
    measured = counted(monkeypatch)
    compare(pair.golden, pair.mine, resume=journal)
    assert len(measured) == 8
    assert "LinearOperation_2" in {match.mine.record.op for match in measured}


def test_errors_of_an_earlier_report_are_tried_again(
    pair: AtbPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pair.file("mine", "2_LinearOperation")
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    journal = tmp_path / "report.jsonl"
    partial_journal(pair, journal, monkeypatch)
    path.write_bytes(content)
    report = compare(pair.golden, pair.mine, resume=journal)
    assert report.exit_code() == 0


def test_a_report_with_other_options_is_refused(
    pair: AtbPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "report.jsonl"
    partial_journal(pair, journal, monkeypatch)
    with pytest.raises(UsageError, match=r"other options \(metrics, tolerance\)"):
        compare(
            pair.golden, pair.mine, resume=journal, tolerance=1e-3, metrics=["cosine_similarity"]
        )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_program_with_a_partial_report(
    pair: AtbPair, tmp_path: Path, number: signal.Signals
) -> None:
    program = (
        "import sys, json, time\n"
        "from ait_llm.compare import compare, stop_on_signals, work\n"
        "work._BATCH_PAIRS = 1\n"
        "def slowly(progress):\n"
        "    print(progress.pairs, flush=True)\n"
        "    time.sleep(0.2)\n"
        "with stop_on_signals() as stop:\n"
        "    report = compare(*sys.argv[1:], jobs=2, stop=stop, on_progress=slowly)\n"
        "print(json.dumps([report.partial, len(report.comparisons), report.exit_code()]))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(pair.golden), str(pair.mine)],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        *_, last = process.stdout.read().splitlines()
    partial, count, code = json.loads(last)
    assert (partial, code, process.returncode) == (True, 3, 0)
    assert 0 < count < 12


def test_the_package_is_the_function(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", ONES)
    assert ait_llm.compare(tmp_path / "x.npy", tmp_path / "x.npy").exit_code() == 0
    from ait_llm import compare as again

    assert again(tmp_path / "x.npy", tmp_path / "x.npy").exit_code() == 0


def test_arrays_tensors_and_files_are_compared_alike(tmp_path: Path) -> None:
    import torch

    mine = ONES * np.float16(1.5)
    np.save(tmp_path / "mine.npy", mine)
    results = [
        compare_data(ONES, mine),
        compare_data(torch.from_numpy(ONES), mine.tolist(), tolerance=0.1),
        compare_data(ONES, tmp_path / "mine.npy", metrics=["max_absolute_error"]),
    ]
    for result in results:
        assert result.verdict is Verdict.FAIL
        assert result.values["max_absolute_error"] == 0.5
    assert set(results[2].values) == {"max_absolute_error"}
    assert results[2].record.op == "mine.npy"


def test_weights_of_all_steps_are_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2)).eval()
    sides = tmp_path / "golden", tmp_path / "mine"
    for folder in sides:
        settings = DumpConfig(dump_path=folder, weights=True, token_range=[0, 1, 2])
        with register_hook(model, settings), torch.no_grad():
            for step in range(3):
                model(torch.full((1, 4), float(step)))
    measured = counted(monkeypatch)
    report = compare(*sides)
    rows = [each for each in report.comparisons if each.record.role == "weight"]
    assert [each.record.step for each in rows] == [0] * 4 + [1] * 4 + [2] * 4
    assert all(each.verdict is Verdict.PASS and each.values for each in rows)
    assert sum(bool(each.mine.parameter) for each in measured) == 4


def test_weights_are_read_once_to_pair_the_layers_of_all_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ait_llm.match.programs import weight_rows

    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2)).eval()
    reads: dict[int, int] = {}
    original = weight_rows.some_elements
    for steps in (1, 3):
        sides = [tmp_path / f"{name}{steps}" for name in ("golden", "mine")]
        for folder in sides:
            settings = DumpConfig(dump_path=folder, weights=True, token_range=range(steps))
            with register_hook(model, settings), torch.no_grad():
                for step in range(steps):
                    model(torch.full((1, 4), float(step)))

        def count(*given: Any, steps: int = steps) -> Any:
            reads[steps] = reads.get(steps, 0) + 1
            return original(*given)

        monkeypatch.setattr(weight_rows, "some_elements", count)
        assert compare(*sides).exit_code() == 0
    assert reads[3] == reads[1] > 0
