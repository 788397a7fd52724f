"""What a dump of compiled graphs lacks is listed, and ends with 3; what it has all of, with 0."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from compiled_dumps import CompiledRun, request

from ait_llm.cli.main import ait

_CALLS = [(1, 0), (2, 0), (2, 1), (2, 2)]  # prefill, then decode steps of one graph
Pair = tuple[CompiledRun, CompiledRun]


def ge(run: CompiledRun) -> None:
    for call, (number, step) in enumerate(_CALLS):
        run.ge(request(call), number=number, step=step, call=call)
    run.graph(1)
    run.graph(2)


def fx(run: CompiledRun) -> None:
    for call, (number, step) in enumerate(_CALLS):
        run.fx(request(call), number=number, step=step, call=call)


Write = Callable[[CompiledRun], None]


def written(tmp_path: Path, golden: Write, mine: Write) -> Pair:
    sides = CompiledRun(tmp_path / "golden"), CompiledRun(tmp_path / "mine")
    for side, write in zip(sides, (golden, mine), strict=True):
        write(side)
    return sides


def compared(pair: Pair, *words: str) -> tuple[int, list[str], dict[str, object]]:
    """Exit code, problems, and the result of the command."""
    golden, mine = (side.root for side in pair)
    out = str(golden.parent / "out")
    line = ["compare", "-gp", str(golden), "-mp", str(mine), "-o", out, "--json", *words]
    result = CliRunner().invoke(ait, ["llm", *line])
    told = json.loads(result.stdout.splitlines()[-1])
    return result.exit_code, told["problems"], told


def execution(run: CompiledRun, number: int, step: int) -> Path:
    """The folder of one execution."""
    folders = {*run.root.rglob(f"graph_{number}/{step}"), *run.root.rglob(f"{number}/{step}")}
    [found] = [each for each in folders if each.is_dir() and any(each.iterdir())]
    return found


def lose(run: CompiledRun, number: int, step: int, what: str) -> None:
    """Remove the files of an execution that begin with a name."""
    files = list(execution(run, number, step).glob(f"{what}*"))
    assert files
    for file in files:
        file.unlink()


@pytest.mark.parametrize("write", [ge, fx], ids=["ge", "fx"])
def test_identical_runs_end_with_0(tmp_path: Path, write: Write) -> None:
    code, problems, told = compared(written(tmp_path, write, write), "--strict")
    assert (code, problems, told["verdict"]) == (0, [], "PASS")


@pytest.mark.parametrize("writes", [(ge, ge), (fx, fx), (fx, ge)], ids=["ge", "fx", "fx-ge"])
def test_a_whole_graph_that_is_missing_is_3_whatever_is_allowed(
    tmp_path: Path, writes: tuple[Write, Write]
) -> None:
    pair = written(tmp_path, *writes)
    folder = execution(pair[1], 2, 0).parent
    shutil.rmtree(folder if folder.name.startswith("graph_") else folder.parent)
    for words in ((), ("--allow-skip",)):
        code, problems, told = compared(pair, *words)
        assert code == 3
        assert told["verdict"] == "SKIPPED"
        [text] = [each for each in problems if "no counterpart" in each]
        assert text.startswith("graph_2 (tokens 1 to 3, ")


@pytest.mark.parametrize("write", [ge, fx], ids=["ge", "fx"])
def test_a_step_that_is_missing_is_3_and_can_be_allowed(tmp_path: Path, write: Write) -> None:
    pair = written(tmp_path, write, write)
    shutil.rmtree(execution(pair[1], 2, 1))
    code, problems, _ = compared(pair)
    assert code == 3
    assert problems[0].startswith("graph_2 step 1 (token 2, ")
    assert compared(pair, "--allow-skip")[0] == 0


@pytest.mark.parametrize(
    ("write", "file", "name"),
    [
        (ge, "Cast.Cast_2", "Cast_2 (Cast)"),
        (fx, "mul_5", "mul_5 (aten.mul.Tensor)"),
        (fx, "mul_5-aten.mul.Tensor.INPUT.1", "INPUT.1 of mul_5 (aten.mul.Tensor)"),
    ],
    ids=["ge", "fx", "tensor"],
)
def test_an_operation_that_both_sides_lost_in_one_step_is_listed(
    tmp_path: Path, write: Write, file: str, name: str
) -> None:
    pair = written(tmp_path, write, write)
    for side in pair:
        lose(side, 2, 1, file)
    code, problems, _ = compared(pair)
    assert code == 3
    text = f"graph_2 step 1 is without {name}, which its other executions have"
    assert problems == [text, text]


def test_an_operation_lost_by_the_graph_engine_is_missing_against_nodes(tmp_path: Path) -> None:
    pair = written(tmp_path, fx, ge)
    lose(pair[1], 2, 2, "Cast.Cast_2")
    code, problems, _ = compared(pair)
    assert code == 3
    assert problems == ["graph_2 step 2 is without Cast_2 (Cast), which its other executions have"]


def test_a_graph_that_neither_side_has_data_of_is_noted(tmp_path: Path) -> None:
    pair = written(tmp_path, ge, ge)
    for side in pair:
        shutil.rmtree(execution(side, 2, 0).parent.parent)
    code, problems, _ = compared(pair)
    assert code == 0
    assert problems == ["graph_2 was compiled, and neither side has data of it"]
