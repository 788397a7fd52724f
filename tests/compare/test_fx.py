"""FX dumps compared with each other: graphs, executions, and where an error started."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from ait_llm.compare.pipeline import compare
from ait_llm.core.comparison import Report, Verdict
from tests.support.fx_dumps import TIME, unpack_sample, write_node


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_sample(tmp_path_factory.mktemp("fx"))


def scale(files: list[Path], like: Path, factor: float) -> int:
    """Multiply an array wherever it lies: where it was computed, and where it is read.

    Returns:
        How many files were changed.
    """
    values = np.load(like)
    changed = 0
    for file in files:
        found = np.load(file)
        if found.dtype == values.dtype and np.array_equal(found.ravel(), values.ravel()):
            np.save(file, (found * factor).astype(found.dtype))
            changed += 1
    return changed


def test_the_recorded_dump_agrees_with_itself(recorded: Path) -> None:
    report = compare(recorded, recorded, jobs=1)
    assert report.compared == report.counts[Verdict.PASS]
    assert not report.missing
    assert len(report.comparisons) == 2956
    assert report.scenario == "fx-fx"


def test_in_a_copy_of_the_recorded_dump_the_perturbed_node_is_named(
    recorded: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(recorded, mine)
    folder = mine / "worldsize1_global_rank0" / "graph_3" / "1"
    (output,) = folder.glob("mm_2-aten.mm.default.OUTPUT.0.*.npy")
    assert scale(sorted(folder.glob("*.npy")), output, 1.08) > 1
    report = compare(recorded, mine, jobs=1)
    assert report.verdict is Verdict.FAIL
    (origin,) = report.origins
    assert (origin.op, origin.op_id.partition("_")[0], origin.step) == ("mm_2", "3", 3)  # token 3
    assert origin.certain
    assert origin.golden_op == "mm_2"


def write_run(root: Path, graphs: dict[int, int], *, wrong: tuple[int, str] | None = None) -> None:
    """Graphs of two nodes of equal names: ``exp`` of a vector, then its ``neg``.

    Args:
        root: where the tree goes.
        graphs: how often each graph ran.
        wrong: graph and node whose result is too large.
    """
    for number, (graph, steps) in enumerate(graphs.items()):
        for step in range(steps):
            time = TIME + 1000 * number + 10 * step
            folder = root / "worldsize1_global_rank0" / f"graph_{graph}" / str(step)
            value = np.linspace(0.1, 1, 64, dtype=np.float32) + number + 10 * step
            for place, (node, function) in enumerate((("exp", np.exp), ("neg", np.negative))):
                result = function(value)
                if wrong == (graph, node):
                    result = result * np.float32(1.05)
                write_node(
                    folder, node, f"aten.{node}.default", {"0": value}, {"0": result}, time + place
                )
                value = result


def origins(report: Report) -> list[tuple[str, str, int]]:
    return [(each.op, each.op_id, each.step) for each in report.origins]


@pytest.mark.parametrize("graph", [1, 2])
@pytest.mark.parametrize(("node", "op_id"), [("exp", "0"), ("neg", "1")])
def test_nodes_of_equal_names_are_told_apart_by_their_graph(
    tmp_path: Path, graph: int, node: str, op_id: str
) -> None:
    write_run(tmp_path / "golden", {1: 1, 2: 1})
    write_run(tmp_path / "mine", {1: 1, 2: 1}, wrong=(graph, node))
    report = compare(tmp_path / "golden", tmp_path / "mine", jobs=1)
    assert origins(report) == [(node, f"{graph}_{op_id}", graph - 1)]


def test_executions_are_paired_by_their_number(tmp_path: Path) -> None:
    write_run(tmp_path / "golden", {1: 1, 2: 3})
    write_run(tmp_path / "mine", {1: 1, 2: 3})
    shutil.rmtree(tmp_path / "mine" / "worldsize1_global_rank0" / "graph_2" / "0")
    report = compare(tmp_path / "golden", tmp_path / "mine", jobs=1)
    assert {item.verdict for item in report.comparisons} == {Verdict.PASS}
    (problem,) = report.problems
    assert problem.side == "golden"
    assert report.exit_code() == 3  # one execution of golden was not looked at


def test_graphs_with_other_numbers_are_paired_in_their_order(tmp_path: Path) -> None:
    write_run(tmp_path / "golden", {1: 1, 2: 1})
    write_run(tmp_path / "mine", {9: 1, 10: 1})
    assert compare(tmp_path / "golden", tmp_path / "mine", jobs=1).verdict is Verdict.PASS


def test_two_executions_that_were_named_belong_together(tmp_path: Path) -> None:
    write_run(tmp_path / "run", {1: 1, 2: 2})
    tree = tmp_path / "run" / "worldsize1_global_rank0"
    report = compare(tree / "graph_2" / "0", tree / "graph_2" / "1", jobs=1)
    assert report.verdict is Verdict.FAIL
    assert len(report.comparisons) == 4


def test_old_and_new_trees_go_together(tmp_path: Path) -> None:
    """One compares what an old torchair wrote, counting from 1, with what a new one did."""
    write_run(tmp_path / "new", {1: 2})
    tree = tmp_path / "new" / "worldsize1_global_rank0" / "graph_1"
    for step in (0, 1):
        old = tmp_path / "old" / "data_dump" / str(step + 1) / "gm_20240102030405000000_dump"
        shutil.copytree(tree / str(step), old)
    assert compare(tmp_path / "new", tmp_path / "old", jobs=1).verdict is Verdict.PASS


def test_a_capture_of_graphs_without_nodes_is_incomplete_and_no_fault(
    recorded: Path, tmp_path: Path
) -> None:
    """As where Inductor could not be watched."""
    dump = tmp_path / "ait_dump"
    (dump / "fx_tensors").mkdir(parents=True)
    ledger = dump / "ledger" / "fx_7.jsonl"
    ledger.parent.mkdir()
    known = {"schema": 1, "producer": "fx", "version": "0.1.0", "device": "rank0", "pid": 7}
    header = {"kind": "header", **known, "host": "h", "time": TIME, "options": {"rank": 0}}
    counts = ("operations", "saved", "described", "empty", "failed", "dropped", "tensors", "files")
    seal = {"kind": "seal", "time": TIME, "end": "exit", **dict.fromkeys((*counts, "bytes"), 0)}
    ledger.write_text("".join(json.dumps(each) + "\n" for each in (header, seal)))
    assert compare(recorded, dump, jobs=1).exit_code() == 3
    assert compare(dump, recorded, jobs=1).exit_code() == 3
