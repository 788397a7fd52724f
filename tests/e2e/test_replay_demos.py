"""Replay and error ledger of the Llama demo, captured from outside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from fault_matrix import LAYERS, TOKENS, Case, dump_faulty_llamas, named
from safetensors.torch import save_file

from ait_llm.compare import compare
from ait_llm.core.comparison import Verdict
from ait_llm.core.error_ledger import ranked
from ait_llm.dumps import open_dump
from ait_llm.opcheck import opcheck
from ait_llm.probe.library import find_packaged
from ait_llm.replay import replay

pytestmark = pytest.mark.native

SCALED = Case("scale_1pct", 1, "o")
IN_CACHE = Case("dropped_tail", 1, "cache")
# Sums in 16 bits are within every tolerance of a comparison.
WITHIN_TOLERANCE = Case("half_accumulation", 1, "down")
CASES = (SCALED, IN_CACHE, WITHIN_TOLERANCE)


@pytest.fixture(scope="module")
def llamas(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    if find_packaged("libatb_probe_abi1.so", os.environ) is None:
        pytest.skip("needs the compiled libraries")
    folder = tmp_path_factory.mktemp("replay")
    tokens = torch.tensor([[17, 4], [99, 230]][:TOKENS])
    save_file({"tokens": tokens}, folder / "tokens.safetensors")
    requests = ["", *(case.request for case in CASES)]
    return dump_faulty_llamas(folder / "mine", folder / "ait_dump", requests)


@pytest.fixture(scope="module")
def golden(llamas: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What replay makes of each run."""
    folder = tmp_path_factory.mktemp("golden")
    found = {}
    for number, (request, path) in enumerate(llamas.items()):
        outcome = replay(path, folder / str(number))
        assert outcome.complete, outcome
        assert outcome.steps == (0, 1)
        found[request] = outcome.output
    return found


def test_the_replay_of_a_clean_run_agrees_with_it_at_every_operator(
    llamas: dict[str, Path], golden: dict[str, Path]
) -> None:
    report = compare(golden[""], llamas[""], ledger=True, jobs=1)
    assert report.verdict is Verdict.PASS
    assert report.exit_code() == 0
    assert report.compared == len(report.comparisons) > 600
    assert {row.op for row in report.ledger if not row.is_known} == set()
    assert not any(row.is_beyond for row in report.ledger)


def test_the_replay_of_a_clean_run_keeps_the_contract_of_every_operator(
    golden: dict[str, Path],
) -> None:
    checked = opcheck(golden[""], standard="contract", jobs=1)
    assert checked.verdict is Verdict.PASS
    assert checked.operators > 2 * 13 * LAYERS


def test_caches_hold_golden_values_from_one_step_to_the_next(
    llamas: dict[str, Path], golden: dict[str, Path]
) -> None:
    clean = {
        (operation.op_id, operation.step, tensor.index): tensor.numpy()
        for operation in open_dump(golden[""]).operations()
        if operation.type == "ReshapeAndCacheOperation"
        for tensor in operation.outputs
    }
    assert len(clean) == 2 * TOKENS * LAYERS
    faulty = open_dump(golden[IN_CACHE.request]).operations()
    for operation in faulty:
        if operation.type == "ReshapeAndCacheOperation":
            for tensor in operation.outputs:
                key = (operation.op_id, operation.step, tensor.index)
                assert (tensor.numpy() == clean[key]).all(), key


@pytest.mark.parametrize("case", [SCALED, IN_CACHE], ids=str)
def test_the_faulty_operator_is_named_without_any_other_run(
    case: Case, llamas: dict[str, Path], golden: dict[str, Path]
) -> None:
    report = compare(golden[case.request], llamas[case.request], jobs=1)
    assert report.verdict is Verdict.FAIL
    assert named(report) == case.op_id


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_ledger_ranks_the_faulty_operator_first(
    case: Case, llamas: dict[str, Path], golden: dict[str, Path]
) -> None:
    report = compare(golden[case.request], llamas[case.request], ledger=True, jobs=1)
    beyond = [row for row in ranked(report.ledger) if row.is_beyond]
    assert {row.op_id for row in beyond} == {case.op_id}
    assert beyond[0] is ranked(report.ledger)[0]


def test_errors_that_an_operator_only_hands_on_are_inherited(
    llamas: dict[str, Path], golden: dict[str, Path]
) -> None:
    report = compare(golden[SCALED.request], llamas[SCALED.request], ledger=True, jobs=1)
    rows = {row.op_id: row for row in report.ledger if row.step == 0}
    guilty = rows[SCALED.op_id]
    assert guilty.introduced == pytest.approx(0.01, rel=0.05)
    assert guilty.inherited is not None
    assert guilty.inherited < 0.002
    after = rows[f"{int(SCALED.op_id[0])}_2_0_1"]  # a product of what the guilty one made
    assert after.inherited is not None
    assert after.introduced is not None
    assert after.introduced < 1e-3 < after.inherited
    for row in report.ledger:
        assert row.total is not None
        assert row.inherited is not None
        assert row.introduced is not None
        assert row.total <= row.inherited + row.introduced + 1e-12
