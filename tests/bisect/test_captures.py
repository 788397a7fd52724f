"""What a run is told to write, and how it is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from capture_models import Decoder, capture, ids

from ait_llm.bisect import Budget, Selection
from ait_llm.bisect.merging import merge
from ait_llm.bisect.repeating import first_difference
from ait_llm.bisect.running import exactly
from ait_llm.errors import IncompleteError
from ait_llm.probe import TensorPart
from ait_llm.program.flow import flow
from ait_llm.program.passes import passes_of


def test_a_selection_reads_as_options_of_dump() -> None:
    chosen = Selection(("2_1", "3"), (0, 1, 2, 5), TensorPart.OUTPUTS, before=True)
    options = chosen.options("atb")
    assert options == "-ids 2_1,3 -child False -er 0,2,5,5 -stp 1 -time 2"
    modules = Selection(("root.a", "root.b"), (3,))
    assert modules.options("torch") == "--module-name root.a --module-name root.b -er 3,3"


def test_a_pattern_of_modules_fits_these_and_no_others() -> None:
    pattern = re.compile(exactly(("root.a", "root.a.b")).removeprefix("re:"))
    assert [bool(pattern.search(name)) for name in ("root.a", "root.a.b")] == [True, True]
    others = ("root.a.bc", "root", "rootxa", "root.a.b.c", "my.root.a")
    assert not any(pattern.search(name) for name in others)


def test_a_budget_is_a_size_or_a_share() -> None:
    assert Budget(bytes=7).limit(None) == 7
    assert Budget(share=0.05).limit(None) is None
    assert Budget(share=0.05).limit(1000) == 50
    for wrong in ({}, {"bytes": 1, "share": 0.5}):
        with pytest.raises(ValueError, match="a budget is"):
            Budget(**wrong)


def test_equal_runs_have_no_first_difference(tmp_path: Path) -> None:
    runs = [capture(Decoder(), tmp_path / name, ids(), mode="stats") for name in "ab"]
    assert first_difference(*runs) is None


def test_other_inputs_are_told_as_such(tmp_path: Path) -> None:
    first = capture(Decoder(), tmp_path / "a", ids(), mode="stats")
    second = capture(Decoder(), tmp_path / "b", ids() + 1, mode="stats")
    found = first_difference(first, second)
    assert found is not None
    assert (found.op, found.received) == ("root", True)
    assert "fix them and its seeds" in found.sentence()


def test_a_run_that_executes_less_is_a_difference(tmp_path: Path) -> None:
    first = capture(Decoder(), tmp_path / "a", ids(), mode="stats")
    second = capture(Decoder(2), tmp_path / "b", ids(), mode="stats")
    found = first_difference(first, second)
    assert found is not None
    assert "order of operations differs" in found.detail or "max" in found.detail


def test_nothing_is_merged_without_a_process(tmp_path: Path) -> None:
    capture(Decoder(), tmp_path / "a", ids(), mode="stats")
    (tmp_path / "b" / "ait_dump" / "torch_tensors").mkdir(parents=True)
    with pytest.raises(IncompleteError, match="no process captured anything"):
        merge(tmp_path / "b", tmp_path / "a")


def test_a_value_is_known_again_where_only_some_tensors_have_data(tmp_path: Path) -> None:
    dump = capture(Decoder(), tmp_path / "a", ids(), mode="stats")
    capture(
        Decoder(),
        tmp_path / "b",
        ids(),
        mode="both",
        module_names=[exactly(("root.layers.1.0",))],
    )
    assert merge(tmp_path / "b", tmp_path / "a") is None
    dump.forget()
    (process,) = dump.processes
    (run,) = passes_of(dump, process)
    place = {each.name: op for op, each in enumerate(run.operations)}
    values = flow(run)
    norm, linear = place["root.layers.1.0"], place["root.layers.1.1"]
    assert run.operations[norm].outputs[0].has_data
    assert not run.operations[linear].inputs[0].has_data
    assert values.at(norm, "out", 0) is values.at(linear, "in", 0)
    assert values.at(norm, "in", 0) is values.at(place["root.layers.1"], "in", 0)
