"""What each use case makes of units that could not be computed: never a PASS."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from api_dumps import call, tensor, write_dump
from compare_dumps import AtbPair
from odd_dumps import half, write_operation
from operator_dumps import LINEAR, OperatorDump

from ait_llm.compare import compare
from ait_llm.compare.api.run import compare_api_dumps
from ait_llm.compare.api.settings import ApiOptions
from ait_llm.compare.remote import OTHER_FILES
from ait_llm.convert import convert_files
from ait_llm.core import Verdict
from ait_llm.engine import Lost
from ait_llm.engine.model import set_attempt
from ait_llm.errcheck.check import check_dump
from ait_llm.opcheck.pipeline import opcheck

REASON = "node a was lost, and no other node with processors sees it"


class OneByOne:
    """Units in this process, as another one gets them, but for some that are lost.

    Args:
        lost: numbers of the units.
        change: what is done to each unit on its way.
        attempt: which one it is.
    """

    remote = True
    slots = 2

    def __init__(
        self,
        lost: Collection[int] = (),
        change: Callable[[Any], Any] = lambda unit: unit,
        attempt: int = 1,
    ) -> None:
        self._lost, self._change, self._attempt = lost, change, attempt
        self.units = 0

    def look_for(self, roots: Sequence[str]) -> None:
        assert all(Path(root).exists() for root in roots)

    def prepare(self, function: Callable[[None], object], roots: Sequence[str] = ()) -> None:
        pickle.loads(pickle.dumps(function))(None)

    def run(
        self,
        function: Callable[[Any], Any],
        units: Sequence[Any],
        *,
        roots: Sequence[str] = (),
        stop: threading.Event | None = None,
    ) -> Generator[tuple[int, Any], None, None]:
        self.look_for(roots)
        self.units = len(units)
        last_first = list(enumerate(units))[::-1]
        set_attempt(self._attempt)
        try:
            for number, unit in last_first:
                if number in self._lost:
                    yield number, Lost(REASON)
                    continue
                there, arrived = pickle.loads(pickle.dumps((function, self._change(unit))))
                yield number, pickle.loads(pickle.dumps(there(arrived)))
        finally:
            set_attempt(1)


@pytest.fixture
def pair(tmp_path: Path) -> AtbPair:
    made = AtbPair(tmp_path)
    made.add_many(300, (4,))
    return made


def test_compare_skips_the_pairs_of_a_lost_unit(pair: AtbPair) -> None:
    report = compare(pair.golden, pair.mine, engine=OneByOne(lost=[1]))
    skipped = [item for item in report.comparisons if item.verdict is Verdict.SKIPPED]
    assert {item.reason for item in skipped} == {REASON}
    assert [item.record.op_id for item in skipped] == [str(n) for n in range(128, 256)]
    assert report.counts[Verdict.PASS] == 300 - 128
    assert report.exit_code() == 3
    assert not report.partial


def test_compare_does_not_believe_what_is_about_other_tensors(pair: AtbPair) -> None:
    def shifted(unit: Any) -> Any:
        return tuple((number, tuple(place + 1 for place in places)) for number, places in unit)

    report = compare(pair.golden, pair.mine, engine=OneByOne(change=shifted))
    assert report.counts[Verdict.ERROR] == 300
    assert {item.reason for item in report.comparisons} == {OTHER_FILES}


def test_opcheck_skips_the_operators_of_a_lost_unit(tmp_path: Path) -> None:
    made = OperatorDump(tmp_path / "ait_dump")
    x = torch.linspace(1, 2, 64).reshape(4, 16).half()
    right = (x.double() @ x.double().T).half()
    for number in range(6):
        made.add(f"{number}_LinearOperation", [x, x], [right], LINEAR)
    here = opcheck(made.root)
    assert opcheck(made.root, engine=OneByOne()).items == here.items
    report = opcheck(made.root, engine=OneByOne(lost=[2]))
    verdicts = [(item.op_id, item.verdict, item.reason) for item in report.items]
    assert verdicts[2] == ("2", Verdict.SKIPPED, REASON)
    assert [verdict for _, verdict, _ in verdicts].count(Verdict.PASS) == 5
    assert report.exit_code() == 3


def test_opcheck_does_not_believe_what_is_about_another_operator(tmp_path: Path) -> None:
    made = OperatorDump(tmp_path / "ait_dump")
    x = torch.ones(2, 2).half()
    for number in range(2):
        made.add(f"{number}_LinearOperation", [x, x], [x], LINEAR)

    def renamed(unit: Any) -> Any:
        return tuple((1 - number, name) for number, name in unit)

    report = opcheck(made.root, engine=OneByOne(change=renamed))
    assert {item.verdict for item in report.items} == {Verdict.ERROR}


def test_errcheck_says_that_it_did_not_look(tmp_path: Path) -> None:
    for step in range(2):
        odd = half(3, 4, at_1_2=np.nan)
        write_operation(tmp_path, "0_LinearOperation", [half(3, 4)], [odd], step=step)
    assert check_dump(tmp_path, engine=OneByOne()) == check_dump(tmp_path)
    result = check_dump(tmp_path, engine=OneByOne(lost=[0]))
    assert not result.complete
    assert [finding.steps for finding in result.harmful] == [(1,)]
    assert REASON in result.problems[0]


def test_a_lost_rank_of_an_api_dump_is_not_passed(tmp_path: Path) -> None:
    for side in ("golden", "mine"):
        for rank in range(3):
            records = {"Tensor.add.0.forward": call([tensor([1, 2])], [tensor([3, 4])])}
            write_dump(tmp_path / side, records, rank=rank)
    outcome = compare_api_dumps(
        tmp_path / "mine",
        tmp_path / "golden",
        tmp_path / "out",
        "1",
        ApiOptions(),
        formats=["csv"],
        engine=OneByOne(lost=[1]),
    )
    assert [pair.suffix for pair in outcome.pairs] == ["_rank0", "_rank1", "_rank2"]
    lost = outcome.pairs[1]
    assert lost.counts == {Verdict.SKIPPED: 1}
    assert lost.problems == [f"was not compared: {REASON}"]
    assert lost.files == []
    assert outcome.exit_code() == 3


def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    for number in range(6):
        np.save(folder / f"{number}.npy", np.full(3, number, np.float32))
    return folder


def test_convert_names_the_files_of_a_lost_unit(tmp_path: Path) -> None:
    source = sources(tmp_path)
    result = convert_files(source, tmp_path / "out", "bin", engine=OneByOne(lost=[4]))
    assert [path.name for path in result.files] == ["0.bin", "1.bin", "2.bin", "3.bin", "5.bin"]
    assert result.problems == [f"{source / '4.npy'}: was not converted: {REASON}"]


def test_what_a_first_attempt_converted_is_not_in_the_way_of_the_second(tmp_path: Path) -> None:
    source = sources(tmp_path)

    class DiesAfterwards(OneByOne):
        """The first worker dies when it has written everything."""

        def run(self, function: Any, units: Any, **rest: Any) -> Any:
            list(super().run(function, units, **rest))
            self._attempt = 2
            return super().run(function, units, **rest)

    result = convert_files(source, tmp_path / "out", "bin", engine=DiesAfterwards())
    assert (len(result.files), result.problems) == (6, [])


def test_what_was_there_before_is_in_the_way_of_a_second_attempt_too(tmp_path: Path) -> None:
    import os

    source = sources(tmp_path)
    convert_files(source, tmp_path / "out", "bin")
    for path in (tmp_path / "out").iterdir():
        os.utime(path, (1, 1))
    result = convert_files(source, tmp_path / "out", "bin", engine=OneByOne(attempt=2))
    assert result.files == []
    assert len(result.problems) == 6
    assert replace(result, problems=[]).tensors == 0
