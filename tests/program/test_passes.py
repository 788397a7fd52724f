"""Passes of programs that report no model, against what the programs themselves wrote down."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from ait_llm.dumps import open_dump
from ait_llm.program.one_pass import Pass
from ait_llm.program.passes import passes_of

pytestmark = pytest.mark.native
PROGRAM = Path(__file__).parents[1] / "e2e" / "programs" / "shared_decoder.py"
ALL = (
    "table",
    "gathered",
    "apart",
    "requests",
    "chunks",
    "speculative",
    "warm",
    "one_graph",
    "pieces",
    "overflow",
    "outside",
    "one_token",
)
UNLIKE = ("table", "apart", "speculative", "one_graph", "pieces", "one_token")
"""Programs of which no two share what tells their passes."""
GRAPHS = ("table", "gathered", "requests", "chunks", "outside", "one_token")
"""Programs whose layers are operations, so that few of them stand for all."""
Execution = tuple[int, int]
Found = tuple[Mapping[Execution, int], Mapping[Execution, int]]
"""Pass of each execution (id, count) as found and as it was."""
Look = Callable[[str], Found]


def _look(folder: Path, programs: Sequence[str], *options: str) -> Look:
    table = folder / "passes.json"
    words = [sys.executable, "-m", "ait_llm", "llm", "dump", "-o", str(folder), *options]
    words += ["--exec", " ".join([sys.executable, str(PROGRAM), str(table), *programs])]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return _looking(folder)


def _looking(folder: Path) -> Look:
    truth = json.loads((folder / "passes.json").read_text())

    def look(program: str) -> Found:
        one = truth[program]
        was = {_execution(text): number for text, number in one["passes"].items()}
        found = {
            (operation.op_id.parts[0], operation.step): run.step
            for run in _passes(folder / "ait_dump" / "tensors" / f"0_{one['pid']}")
            for operation in run.operations
        }
        return found, {each: was[each] for each in found}

    return look


def _execution(text: str) -> Execution:
    top, count = text.split()
    return int(top), int(count)


def _passes(folder: Path) -> list[Pass]:
    dump = open_dump(folder)
    return [run for process in dump.processes for run in passes_of(dump, process)]


def _together(passes: Mapping[Execution, int]) -> list[list[Execution]]:
    """Executions of each pass, whatever its number."""
    members: dict[int, list[Execution]] = {}
    for each, number in sorted(passes.items()):
        members.setdefault(number, []).append(each)
    return sorted(members.values())


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("values")
    _look(folder, ALL, "-er", "all")
    return folder


@pytest.fixture(scope="module")
def with_values(captured: Path) -> Look:
    return _looking(captured)


@pytest.fixture(scope="module")
def without_ledger(captured: Path, tmp_path_factory: pytest.TempPathFactory) -> Look:
    """What a probe leaves that keeps no ledger: nothing tells the order."""
    folder = tmp_path_factory.mktemp("no_ledger")
    shutil.copytree(captured, folder, dirs_exist_ok=True, copy_function=os.link)
    shutil.rmtree(folder / "ait_dump" / "ledger")
    return _looking(folder)


@pytest.fixture(scope="module")
def statistics(tmp_path_factory: pytest.TempPathFactory) -> Look:
    return _look(tmp_path_factory.mktemp("stats"), UNLIKE, "-er", "all", "--type", "stats")


@pytest.fixture(scope="module")
def descriptions(tmp_path_factory: pytest.TempPathFactory) -> Look:
    return _look(tmp_path_factory.mktemp("descriptions"), UNLIKE, "-er", "all", "-sd")


@pytest.fixture(scope="module")
def two_layers(tmp_path_factory: pytest.TempPathFactory) -> Look:
    """A layer of prefill and one of decode; of some programs other operations."""
    folder = tmp_path_factory.mktemp("layers")
    return _look(folder, GRAPHS, "-er", "all", "-ids", "2,8", "-child", "false")


@pytest.fixture(scope="module")
def later_range(tmp_path_factory: pytest.TempPathFactory) -> Look:
    return _look(tmp_path_factory.mktemp("range"), GRAPHS, "-er", "1,2")


@pytest.mark.parametrize("program", ALL)
def test_values_tell_passes_and_their_numbers(program: str, with_values: Look) -> None:
    found, was = with_values(program)
    assert len(found) > 12
    assert found == was


# The requests of one program are the same in part: equal values do not tell which ran first.
@pytest.mark.parametrize("program", [each for each in ALL if each != "requests"])
def test_values_tell_the_order_that_no_ledger_tells(program: str, without_ledger: Look) -> None:
    found, was = without_ledger(program)
    assert _together(found) == _together(was)


@pytest.mark.parametrize("program", UNLIKE)
def test_statistics_tell_them_too(program: str, statistics: Look) -> None:
    found, was = statistics(program)
    assert found == was


@pytest.mark.parametrize("program", UNLIKE)
def test_without_values_they_are_told_by_what_runs_again(program: str, descriptions: Look) -> None:
    found, was = descriptions(program)
    assert found == was


@pytest.mark.parametrize("program", GRAPHS)
def test_what_was_left_out_joins_no_passes(program: str, two_layers: Look) -> None:
    found, was = two_layers(program)
    assert _together(found) == _together(was)


@pytest.mark.parametrize("program", ["table", "gathered", "requests", "chunks", "one_token"])
def test_a_layer_of_each_phase_is_enough_for_their_numbers(program: str, two_layers: Look) -> None:
    found, was = two_layers(program)
    assert found == was


@pytest.mark.parametrize("program", GRAPHS)
def test_a_later_range_of_execution_counts_joins_no_passes(program: str, later_range: Look) -> None:
    found, was = later_range(program)
    assert _together(found) == _together(was)


@pytest.mark.parametrize("program", ["table", "gathered", "chunks", "outside", "one_token"])
def test_shared_operations_tell_the_numbers_of_a_later_range(
    program: str, later_range: Look
) -> None:
    found, was = later_range(program)
    assert found == was
