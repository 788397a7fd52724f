"""A check that was interrupted, and the rest of it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from operator_dumps import LINEAR, OperatorDump

from ait_llm.core.comparison import Verdict
from ait_llm.errors import FormatError, UsageError
from ait_llm.opcheck.checker import Checker
from ait_llm.opcheck.journal import Journal, as_record, from_record
from ait_llm.opcheck.outcome import Checked, Rerun
from ait_llm.opcheck.pipeline import opcheck

COUNT = 8
X = torch.linspace(1, 2, 64).reshape(4, 16).half()
RIGHT = (X.double() @ X.double().T).half()


@pytest.fixture
def dump(tmp_path: Path) -> OperatorDump:
    made = OperatorDump(tmp_path / "ait_dump")
    for number in range(COUNT):
        made.add(f"{number}_LinearOperation", [X, X], [RIGHT * (1 + number % 2)], LINEAR)
    return made


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the operators that are computed."""
    seen: list[str] = []
    check = Checker.check

    def count(self: Checker, target: Any) -> list[Checked]:
        seen.append(target.op_id)
        return check(self, target)

    monkeypatch.setattr(Checker, "check", count)
    return seen


def interrupted(dump: OperatorDump, journal: Path) -> int:
    stop = threading.Event()
    report = opcheck(
        dump.root,
        jobs=1,
        journal=journal,
        stop=stop,
        on_progress=lambda done, _: stop.set() if done == 2 else None,
    )
    assert report.partial
    assert report.exit_code() in (1, 3)
    return report.operators


def test_the_rest_is_done_and_the_result_is_the_same(
    dump: OperatorDump, tmp_path: Path, checked: list[str]
) -> None:
    whole = opcheck(dump.root)
    checked.clear()
    done = interrupted(dump, tmp_path / "first.jsonl")
    assert 2 <= done < COUNT
    assert len(checked) == done
    checked.clear()
    resumed = opcheck(dump.root, journal=tmp_path / "second.jsonl", resume=tmp_path / "first.jsonl")
    assert len(checked) == COUNT - done
    assert resumed.items == whole.items
    assert not resumed.partial
    checked.clear()
    opcheck(dump.root, resume=tmp_path / "second.jsonl")
    assert checked == []


def test_an_operator_whose_files_changed_is_checked_again(
    dump: OperatorDump, tmp_path: Path, checked: list[str]
) -> None:
    journal = tmp_path / "journal.jsonl"
    opcheck(dump.root, journal=journal)
    checked.clear()
    dump.add("3_LinearOperation", [X, X], [RIGHT], LINEAR)
    report = opcheck(dump.root, resume=journal)
    assert checked == ["3"]
    assert report.items[3].verdict is Verdict.PASS


def test_a_journal_that_was_cut_off_is_used_as_far_as_it_goes(
    dump: OperatorDump, tmp_path: Path, checked: list[str]
) -> None:
    journal = tmp_path / "journal.jsonl"
    opcheck(dump.root, journal=journal, jobs=1)
    journal.write_bytes(journal.read_bytes()[:-10])
    checked.clear()
    opcheck(dump.root, resume=journal)
    assert checked == [str(COUNT - 1)]


def test_a_journal_of_other_options_or_no_journal_is_refused(
    dump: OperatorDump, tmp_path: Path
) -> None:
    journal = tmp_path / "journal.jsonl"
    opcheck(dump.root, journal=journal)
    with pytest.raises(UsageError, match=r"had metrics \[\], this one has \['kl'\]"):
        opcheck(dump.root, metrics=("kl",), resume=journal)
    for text in ("{}\n", "[]\n", "nonsense\n", ""):
        journal.write_text(text)
        with pytest.raises(FormatError):
            opcheck(dump.root, resume=journal)


NUMBERS = st.none() | st.floats(allow_nan=False)


@given(NUMBERS, NUMBERS, st.text() | st.just("nan"), st.sampled_from(Verdict))
def test_a_result_survives_the_journal(
    rate: float | None, value: float | None, text: str, verdict: Verdict
) -> None:
    item = Checked(
        "0_1", "LinearOperation", verdict, "outtensor0", text, rate=rate, golden_value=value
    )
    item = replace(
        item,
        shape=(2, 3),
        first_bad=(0, 1),
        stamp=(12, 34),
        values={"rate": 1.0},
        rerun=Rerun("hostatb", verdict, True, text, rate),
    )
    kept = from_record(json.loads(json.dumps(as_record(item), allow_nan=False)))
    assert kept == item


def test_a_full_disk_ends_a_journal_with_one_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"

    def written(add: Callable[[Journal], object]) -> None:
        with Journal(path, {}) as journal:
            device = os.open("/dev/full", os.O_WRONLY)
            os.dup2(device, journal._file.fileno())
            os.close(device)
            add(journal)

    for add in (lambda journal: journal.add([]), lambda journal: journal._file.write("waits")):
        with pytest.raises(UsageError, match=r"journal\.jsonl: cannot be written \(No space"):
            written(add)
