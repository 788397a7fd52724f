"""A captured graph computed again, against float64 products."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graph_dumps import GraphDump
from operator_dumps import OperatorDump

from ait_llm.compare import compare
from ait_llm.core.comparison import Verdict
from ait_llm.dumps import open_dump
from ait_llm.errors import FormatError, UsageError
from ait_llm.opcheck import opcheck
from ait_llm.replay import Outcome, replay

Array = np.ndarray[Any, np.dtype[Any]]


def _outputs(golden: Path) -> dict[str, Array]:
    """Outputs of all operations by id."""
    return {
        str(operation.op_id): operation.outputs[0].numpy()
        for operation in open_dump(golden).operations()
        if operation.outputs
    }


def _replayed(graph: GraphDump, folder: Path, **options: Any) -> tuple[Outcome, dict[str, Array]]:
    outcome = replay(graph.root, folder / "golden", **options)
    return outcome, _outputs(outcome.output)


def _agree(got: dict[str, Array], expected: dict[str, Array]) -> None:
    assert set(got) == set(expected)
    for op, value in expected.items():
        np.testing.assert_allclose(got[op], value, rtol=3e-7, atol=3e-7)


def test_every_tensor_is_what_a_right_run_makes_although_mine_is_wrong(tmp_path: Path) -> None:
    graph = GraphDump(tmp_path / "ait_dump", scale=(1.01, 1.0))
    graph.write()
    outcome, got = _replayed(graph, tmp_path)
    _agree(got, graph.golden())
    assert outcome.complete
    assert (outcome.operators, outcome.computed) == (4, 4)
    assert outcome.exit_code() == 0


@pytest.mark.parametrize("phase", ["before", "after"])
def test_inputs_are_found_in_whichever_state_was_captured(tmp_path: Path, phase: str) -> None:
    graph = GraphDump(tmp_path / "ait_dump")
    graph.write(phase=phase)
    _agree(_replayed(graph, tmp_path)[1], graph.golden())


def test_members_that_were_not_captured_are_computed_from_the_topology(tmp_path: Path) -> None:
    graph = GraphDump(tmp_path / "ait_dump", scale=(1.0, 1.01))
    graph.write(members=False)
    outcome, got = _replayed(graph, tmp_path)
    _agree(got, graph.golden())
    assert outcome.complete


def test_without_a_topology_equal_numbers_are_the_data_flow(tmp_path: Path) -> None:
    graph = GraphDump(tmp_path / "ait_dump", scale=(1.01, 1.0))
    graph.write(graphs=False)
    _agree(_replayed(graph, tmp_path)[1], graph.golden())


def test_local_takes_the_dumped_inputs_of_each_operator(tmp_path: Path) -> None:
    graph = GraphDump(tmp_path / "ait_dump", scale=(1.01, 1.0))
    graph.write()
    outcome, got = _replayed(graph, tmp_path, mode="local")
    mine, golden = graph.mine(), graph.golden()
    np.testing.assert_allclose(got["0_0"], golden["0_0"], rtol=3e-7, atol=3e-7)
    for op, (x, weight) in {"1_0": (mine["0_1"], graph.weights[1])}.items():
        expected = x.astype(np.float64) @ weight.astype(np.float64).T
        np.testing.assert_allclose(got[op], expected, rtol=3e-7, atol=3e-7)
    np.testing.assert_array_equal(got["0_1"], mine["0_1"])
    assert outcome.complete


def test_hybrid_is_golden_up_to_an_operation_and_local_after_it(tmp_path: Path) -> None:
    graph = GraphDump(tmp_path / "ait_dump", scale=(1.01, 1.0))
    graph.write()
    outcome, got = _replayed(graph, tmp_path, until="0")
    mine, golden = graph.mine(), graph.golden()
    np.testing.assert_allclose(got["0_1"], golden["0_1"], rtol=3e-7, atol=3e-7)
    expected = mine["0_1"].astype(np.float64) @ graph.weights[1].astype(np.float64).T
    np.testing.assert_allclose(got["1_0"], expected, rtol=3e-7, atol=3e-7)
    assert (outcome.mode, outcome.until) == ("hybrid", "0")


def test_a_weight_that_was_not_captured_is_named_and_the_dumped_output_used(tmp_path: Path) -> None:
    graph = GraphDump(tmp_path / "ait_dump", scale=(1.01, 1.0))
    graph.write()
    for path in graph.tensors().glob("0_Layer/**/intensor1.bin"):
        if "Elewise" not in str(path):
            path.unlink()
    outcome, got = _replayed(graph, tmp_path)
    assert outcome.missing == {"Tiny_weight_0": "LinearOperation_0_0"}
    (skipped,) = outcome.skipped
    assert (skipped.op, skipped.taken) == ("LinearOperation_0_0", True)
    assert skipped.reason == "weight Tiny_weight_0 was not captured"
    assert outcome.exit_code() == 3
    assert outcome.exit_code(allow_skip=True) == 0
    assert "0_0" not in got  # it would be compared with itself
    np.testing.assert_array_equal(got["0_1"], graph.mine()["0_1"])


def test_it_starts_from_the_nearest_captured_tensor(tmp_path: Path) -> None:
    graph = GraphDump(tmp_path / "ait_dump")
    graph.write()
    shutil.rmtree(graph.tensors() / "0_Layer")
    outcome, got = _replayed(graph, tmp_path)
    reader = "LinearOperation_0_0"
    assert outcome.missing == {"Tiny_input_0": reader, "Tiny_weight_0": reader}
    assert [each.taken for each in outcome.skipped] == [False, True]
    assert outcome.computed == 2
    np.testing.assert_allclose(got["1_1"], graph.golden()["1_1"], rtol=1e-6, atol=1e-6)


def test_what_follows_from_a_missing_input_is_told_once(tmp_path: Path) -> None:
    graph = GraphDump(tmp_path / "ait_dump", linear="SecretOperation")
    graph.write(members=False)
    outcome, _ = _replayed(graph, tmp_path)
    reasons = [(reason, len(items)) for reason, items in outcome.reasons()]
    assert reasons == [
        ("there is no golden SecretOperation", 2),
        ("it needs what an operator makes that was not computed", 2),
    ]
    assert [each.taken for each in outcome.skipped] == [False, True, False, True]


def test_an_operator_without_a_golden_one_is_skipped_and_never_passes(tmp_path: Path) -> None:
    graph = GraphDump(tmp_path / "ait_dump", linear="SecretOperation")
    graph.write()
    outcome, got = _replayed(graph, tmp_path)
    assert {each.reason for each in outcome.skipped} == {"there is no golden SecretOperation"}
    assert outcome.exit_code() == 3
    np.testing.assert_allclose(got["0_1"], graph.golden()["0_1"], rtol=1e-6, atol=1e-6)
    report = compare(outcome.output, graph.root)
    verdicts = {
        item.verdict
        for item in report.comparisons
        if item.record.op.startswith("SecretOperation") and item.record.role == "out"
    }
    assert verdicts == {Verdict.SKIPPED}
    assert report.exit_code() == 3


def test_the_golden_dump_is_compared_tensor_by_tensor(tmp_path: Path) -> None:
    graph = GraphDump(tmp_path / "ait_dump")
    graph.write()
    outcome, _ = _replayed(graph, tmp_path)
    report = compare(outcome.output, graph.root)
    assert report.verdict is Verdict.PASS
    assert report.compared == len(report.comparisons) == 6 * 3
    assert {item.rule for item in report.comparisons} == {"programs"}


def test_the_golden_dump_is_within_the_contract_of_each_operator(tmp_path: Path) -> None:
    graph = GraphDump(tmp_path / "ait_dump")
    graph.write()
    outcome, _ = _replayed(graph, tmp_path)
    checked = opcheck(outcome.output, standard="contract")
    assert checked.verdict is Verdict.PASS
    assert checked.operators == 4


def test_the_golden_dump_has_a_sealed_ledger_and_private_files(tmp_path: Path) -> None:
    graph = GraphDump(tmp_path / "ait_dump")
    graph.write()
    outcome, _ = _replayed(graph, tmp_path)
    (process,) = open_dump(outcome.output).processes
    assert process.sealed
    assert process.header["producer"] == "ait_replay"
    assert process.problem is None
    modes = {p.stat().st_mode & 0o777 for p in outcome.output.rglob("*") if p.is_dir()}
    assert modes == {0o750}
    ledger = outcome.output / "ledger" / "0_4242.jsonl"
    assert ledger.stat().st_mode & 0o777 == 0o640


def test_values_are_stored_once(tmp_path: Path) -> None:
    graph = GraphDump(tmp_path / "ait_dump")
    graph.write()
    outcome, _ = _replayed(graph, tmp_path)
    product = graph.mine()["0_0"]
    assert outcome.bytes == 4 * product.nbytes  # two products and two sums
    assert outcome.linked == sum(each.nbytes for each in (graph.x, *graph.weights))


def test_an_output_directory_with_a_dump_is_refused(tmp_path: Path) -> None:
    graph = GraphDump(tmp_path / "ait_dump")
    graph.write()
    _replayed(graph, tmp_path)
    with pytest.raises(UsageError, match="exists already; choose another folder"):
        replay(graph.root, tmp_path / "golden")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"until": "7"}, "no operation of that id"),
        ({"mode": "local", "until": "0"}, "go together"),
        ({"mode": "hybrid"}, "go together"),
        ({"mode": "forward"}, "known: end-to-end, local, hybrid"),
        ({"steps": [5]}, "none of the given steps"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    graph = GraphDump(tmp_path / "ait_dump")
    graph.write()
    with pytest.raises(UsageError, match=message):
        replay(graph.root, tmp_path / "golden", **options)
    assert not (tmp_path / "golden").exists()


def test_a_folder_that_is_no_dump_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError):
        replay(tmp_path, tmp_path / "golden")


RANKS = {"rankSize": 2, "rankRoot": 0, "allReduceType": "sum", "backend": "lccl"}


def _ranks(root: Path, ranks: int) -> list[torch.Tensor]:
    parts = [torch.full((2, 4), float(rank + 1)) for rank in range(ranks)]
    for rank, part in enumerate(parts):
        dump = OperatorDump(root / "ait_dump", process=f"{rank}_{100 + rank}")
        wrong = torch.full((2, 4), 9.0)
        dump.add("0_AllReduceOperation", [part], [wrong], {**RANKS, "rank": rank})
        dump.ledger()
    return parts


def test_a_collective_operator_gets_the_inputs_of_all_ranks(tmp_path: Path) -> None:
    parts = _ranks(tmp_path, 2)
    outcome = replay(tmp_path / "ait_dump", tmp_path / "golden")
    assert outcome.complete
    for operation in open_dump(outcome.output).operations():
        assert torch.equal(operation.outputs[0].torch(), parts[0] + parts[1])


def test_a_collective_operator_of_a_rank_alone_is_skipped(tmp_path: Path) -> None:
    _ranks(tmp_path, 1)
    outcome = replay(tmp_path / "ait_dump", tmp_path / "golden")
    (skipped,) = outcome.skipped
    assert "all 2 ranks, and not all are there" in skipped.reason
    assert outcome.exit_code(allow_skip=True) == 3  # nothing was computed
