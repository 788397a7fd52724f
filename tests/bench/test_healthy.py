"""Healthy pairs: what judges them, and docs/healthy-results.md."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import pytest
from healthy_runs import PAIRS, Alone, Healthy, Outcome, judge
from msprobe_samples import sample

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "scripts" / "bench"


@pytest.fixture(autouse=True)
def _bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


def test_a_program_against_itself_gives_no_alarm_and_its_operators_are_judged_alone(
    tmp_path: Path,
) -> None:
    found = judge(PAIRS["a/bert/distinct-op"], tmp_path)
    assert (found.code, found.is_alarm, found.missing) == (0, False, 0)
    assert found.passed > 300
    assert [each.failed for each in found.alone] == [0, 0]
    assert all(each.checked > 90 for each in found.alone)


@pytest.mark.parametrize("name", ["k/simulated-bfloat16/fx-fused", "l/L1_tensor/copy"])
def test_graphs_and_calls_give_no_alarm(name: str, tmp_path: Path) -> None:
    found = judge(PAIRS[name], tmp_path)
    assert (found.code, found.is_alarm) == (0, False)
    assert found.passed > 30


def _side(name: str, folder: Path) -> Path:
    return sample("L1_tensor") / name


def test_a_pair_that_is_not_healthy_is_an_alarm(tmp_path: Path) -> None:
    pair = Healthy("x", partial(_side, "golden"), partial(_side, "target"), table=True)
    found = judge(pair, tmp_path)
    assert found.is_alarm
    assert found.code == 1
    assert found.accused == ("Functional.linear.2.forward",)


@pytest.mark.parametrize(
    "changes",
    [
        {"code": 1},
        {"failed": 1},
        {"accused": ("root.head",)},
        {"alone": (Alone(9, 0), Alone(9, 1))},
    ],
)
def test_whatever_says_that_something_is_wrong_is_an_alarm(changes: dict[str, object]) -> None:
    said = {"code": 0, "passed": 9, "failed": 0, "missing": 0, "not_comparable": 3}
    assert not Outcome(**said).is_alarm  # type: ignore[arg-type]
    assert not Outcome(**said | {"code": 3, "missing": 2}).is_alarm  # type: ignore[arg-type]
    assert Outcome(**said | changes).is_alarm  # type: ignore[arg-type]


def test_the_page_is_made_of_the_results_on_record_and_counts_alarms() -> None:
    from healthy_page import PAGE, as_page, as_row, recorded  # type: ignore[import-not-found]

    record = recorded()
    assert PAGE.read_text(encoding="utf-8") == as_page(record)
    assert len(record) >= 80
    good = as_row(Outcome(0, 9, 0, 0, 3))
    bad = as_row(Outcome(1, 9, 1, 0, 3, ("root.head",), (Alone(7, 2),)))
    page = as_page({"a/llama/distinct-op": good, "i/llama/float16-op": bad})
    assert "2 pairs, 1 false alarms, 1 with an exit code other than 0." in page
    assert "| llama/distinct-op | 0 | 9 | 0 | 0 | 3 |  |  |" in page
    assert "| llama/float16-op | **1** | 9 | 1 | 0 | 3 | 2 of 7 | `root.head` |" in page


def test_a_pattern_that_no_pair_has_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from healthy import main  # type: ignore[import-not-found]

    monkeypatch.setattr("sys.argv", ["healthy.py", "zz/*"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "no pair is called zz/*" in capsys.readouterr().err
    assert not logging.root.manager.disable  # other tests, in this process, hear their warnings
