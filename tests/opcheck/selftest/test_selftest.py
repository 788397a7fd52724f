"""``contract`` finds known faults without false alarms, and the page says what it does."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor

from ait_llm.cli import opcheck_selftest
from ait_llm.cli.opcheck import opcheck
from ait_llm.opcheck.golden import DEVICE, golden_ops
from ait_llm.opcheck.selftest import kernels
from ait_llm.opcheck.selftest.cases import NOT_GRADED, Draw, cases, over_ranks
from ait_llm.opcheck.selftest.faults import Run, faults, variations
from ait_llm.opcheck.selftest.runner import Trial, grade, uncovered
from ait_llm.opcheck.selftest.table import (
    Rate,
    as_json,
    class_tables,
    descriptions,
    is_good_enough,
    misses,
    operator_rows,
    rate,
)

PAGE = (Path(__file__).parents[3] / "docs" / "opcheck-standards.md").read_text()
REDUCED = (
    "AllReduceOperation",
    "GatherOperation",
    "GroupedMatmulWithRoutingOperation",
    "LayerNormOperation",
    "LinearOperation",
    "MatmulOperation",
    "ReshapeAndCacheOperation",
    "RmsNormOperation",
    "RopeOperation",
    "SelfAttentionOperation",
    "SoftmaxOperation",
    "SwigluQuantOperation",
    "TopkToppSamplingOperation",
)


@pytest.fixture(scope="module")
def trials() -> list[Trial]:
    return grade(ops=REDUCED, names=["contract"])


def table_of(op: str) -> list[str]:
    """The row of an operator on the page."""
    name = op.removesuffix("Operation")
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {name} ")]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_contract_never_alarms_at_a_legal_way_to_compute(trials: list[Trial]) -> None:
    assert [one for one in misses(trials) if one.kind == "variation"] == []
    assert rate(trials, "variation", "contract").judged > 150


def test_contract_finds_what_the_page_says(trials: list[Trial]) -> None:
    rows = {op.removesuffix("Operation"): table_of(op) for op in REDUCED}
    assert {row[0]: row for row in operator_rows(trials)} == rows
    assert is_good_enough(trials)


def test_every_class_that_the_page_calls_found_is(trials: list[Trial]) -> None:
    missed = {one.name for one in misses(trials) if one.kind == "fault"}
    for name in faults:
        (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {name} ")]
        everything = row.split("|")[3].strip() == "100 %"
        assert not (everything and name in missed)


def test_all_but_the_sums_in_16_bits_of_attention_are_found_in_each_family() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    for family in ("attention", "experts", "float", "moves", "ranks", "sampling"):
        (row,) = [[c.strip() for c in r.strip("|").split("|")] for r in rows if f"| {family} " in r]
        found, judged = map(int, row[1].split("/"))
        assert judged > 40
        assert found / judged >= (0.985 if family == "attention" else 0.99)
        assert row[3] in ("", "half-precision accumulation")


def test_the_page_describes_every_fault_and_variation() -> None:
    for line in descriptions().splitlines():
        assert line in PAGE


def test_grading_twice_gives_the_same() -> None:
    ops = ("GatherOperation", "SwigluQuantOperation")
    assert grade(ops=ops) == grade(ops=ops)
    assert grade(ops=ops, seed=1) != []


def test_a_blind_standard_is_not_good_enough(trials: list[Trial]) -> None:
    faults_only = [one for one in trials if one.kind == "fault" and one.standard]
    blind = [
        Trial(one.op, one.variant, one.dtype, one.kind, one.name, one.standard, False)
        for one in faults_only
    ]
    assert not is_good_enough(blind)
    nervous = [
        Trial("X", "", "float16", "variation", "split-K", "contract", True),
        *faults_only,
    ]
    assert not is_good_enough(nervous)


def test_a_rate_that_is_not_all_is_not_rounded_to_all() -> None:
    assert str(Rate(9999, 10000)) == "99.9 %"
    assert str(Rate(1, 10000)) == "0.1 %"
    assert str(Rate(3, 3)) == "100 %"
    assert str(Rate(0, 3)) == "0 %"
    assert str(Rate(0, 0)) == "-"


def test_json_holds_the_numbers_of_the_tables(trials: list[Trial]) -> None:
    found = json.loads(json.dumps(as_json(trials)))
    own = found["standards"]["contract"]
    assert own["false_alarm_rate"] == 0
    assert own["faults"]["zeros"]["alarmed"] == own["faults"]["zeros"]["judged"] > 20
    of_families = found["families"].values()
    assert sum(one["judged"] for one in of_families) == rate(trials, "fault", "contract").judged
    assert len(of_families) > 3
    assert found["unchanged"] == sum(not one.changed for one in trials)
    assert f"{found['unchanged']} further faults" in class_tables(trials)


@pytest.mark.parametrize("as_text", [True, False])
def test_the_command_needs_no_dump(
    monkeypatch: pytest.MonkeyPatch, trials: list[Trial], as_text: bool
) -> None:
    monkeypatch.setattr("ait_llm.opcheck.selftest.runner.grade", lambda progress: trials)
    found = CliRunner().invoke(opcheck, ["--self-test", *([] if as_text else ["--json"])])
    assert found.exit_code == 0, found.output
    if as_text:
        assert "| 1 % scale" in found.stdout
    else:
        assert json.loads(found.stdout)["good_enough"]


def test_the_command_fails_when_a_standard_is_blind(
    monkeypatch: pytest.MonkeyPatch, trials: list[Trial]
) -> None:
    blind = [one for one in trials if one.kind == "variation"]
    blind += [Trial("X", "", "float16", "fault", "zeros", "contract", False)]
    monkeypatch.setattr("ait_llm.opcheck.selftest.runner.grade", lambda progress: blind)
    assert opcheck_selftest.self_test(as_json=True) == 1


@pytest.mark.parametrize("as_text", [True, False])
def test_the_command_fails_when_a_definition_is_not_the_vendors(
    monkeypatch: pytest.MonkeyPatch, trials: list[Trial], as_text: bool
) -> None:
    monkeypatch.setattr("ait_llm.opcheck.selftest.runner.grade", lambda progress: trials)
    golden = golden_ops.get("CumsumOperation")
    wrong = replace(golden, compute=golden_ops.get("SoftmaxOperation").compute)
    monkeypatch.setitem(golden_ops._entries, "CumsumOperation", wrong)
    found = CliRunner().invoke(opcheck, ["--self-test", *([] if as_text else ["--json"])])
    assert found.exit_code == 1
    if as_text:
        assert "- CumsumOperation, cumsum" in found.stdout
    else:
        said = json.loads(found.stdout)
        assert said["good_enough"]
        assert all(one.startswith("CumsumOperation, ") for one in said["wrong_definitions"])


def test_without_a_dump_the_command_says_what_is_missing() -> None:
    found = CliRunner().invoke(opcheck, [])
    assert found.exit_code == 2
    assert "--input" in found.output


def test_every_operator_has_a_case_or_a_reason_on_the_page() -> None:
    assert uncovered() == []
    known = {golden_ops.get(name).name for name in golden_ops}
    assert set(NOT_GRADED) <= known
    for op, why in NOT_GRADED.items():
        assert f"- {op.removesuffix('Operation')}: {why}" in PAGE


def test_products_of_many_ranks_may_be_summed_in_16_bits() -> None:
    found = grade(ops=["LinearParallelOperation"], names=["contract"])
    exchanged = [one for one in found if one.name == "16-bit exchange"]
    assert len(exchanged) >= 10
    assert not any(one.alarmed for one in exchanged)
    assert all(one.alarmed for one in found if one.name == "missing rank" and one.changed)


# ---- the other kernels, against loops --------------------------------------------------------


def product(given: kernels.Kernels, x: Tensor, weight: Tensor) -> Tensor:
    golden = golden_ops.get("LinearOperation")
    params = {"hasBias": False}
    return given.run(lambda: golden.compute([x, weight], params, DEVICE).outputs[0])


def test_sums_one_by_one_are_those_of_a_loop() -> None:
    x, weight = torch.randn(2, 40), torch.randn(3, 40)
    fused = product(kernels.sequential(fused=True), x, weight)
    plain = product(kernels.sequential(fused=False), x, weight)
    for row in range(2):
        for column in range(3):
            one, other = torch.zeros(()), torch.zeros(())
            for a, b in zip(x[row], weight[column], strict=True):
                one = (one.double() + a.double() * b.double()).float()
                other = other + a * b
            assert fused[row, column] == one
            assert plain[row, column] == other


def test_a_dropped_tail_leaves_out_16_terms() -> None:
    x, weight = torch.randn(2, 80), torch.randn(3, 80)
    expected = x[:, :64] @ weight[:, :64].T
    torch.testing.assert_close(product(kernels.dropped_tail(), x, weight), expected)


def test_a_sum_kept_in_16_bits_stops_growing() -> None:
    x, ones = torch.ones(1, 8192).bfloat16(), torch.ones(1, 8192).bfloat16()
    stuck = product(kernels.half_accumulation(torch.bfloat16), x, ones)
    assert float(stuck) == 4096  # 4096 + 16 is a tie, and 4096 is even


def test_an_exchange_in_16_bits_rounds_after_each_rank() -> None:
    tensors = [torch.tensor([256.0, 0.5]).bfloat16(), *[torch.ones(2).bfloat16() for _ in range(4)]]
    built = over_ranks([([x], {}) for x in tensors], rank=3)
    golden = golden_ops.get("AllReduceOperation")
    given = kernels.half_exchange(torch.bfloat16, 5)
    found = given.run(lambda: built.compute(golden, DEVICE)).outputs[0]
    assert found.tolist() == [256.0, 4.5]  # 256 + 1 is a tie, and 256 is even
    assert built.compute(golden, DEVICE).outputs[0].tolist() == [260.0, 4.5]


def test_a_missing_rank_counts_as_zeros() -> None:
    tensors = [torch.full((2, 2), float(rank + 1)).half() for rank in range(3)]
    built = over_ranks([([x], {}) for x in tensors], rank=2)
    golden = golden_ops.get("AllReduceOperation")
    run = Run(golden, built, torch.float16, built.compute(golden, DEVICE))
    found = faults.get("missing rank")(run)
    assert found is not None
    assert found.outputs[0].tolist() == [
        [4.0, 4.0],
        [4.0, 4.0],
    ]  # 1 + 3: rank 1 is the last other one


@pytest.mark.parametrize(
    "given", [kernels.reordered(), kernels.split_k(), kernels.sequential(fused=False)]
)
@pytest.mark.parametrize("op", ["SelfAttentionOperation", "SoftmaxOperation", "RmsNormOperation"])
def test_legal_kernels_compute_the_same(op: str, given: kernels.Kernels) -> None:
    one = next(one for one in cases if one.op == op)
    built = one.build(Draw(torch.float16, 3))
    golden = golden_ops.get(op)
    plain = golden.compute(built.inputs, built.params, DEVICE).outputs[0]
    other = given.run(lambda: golden.compute(built.inputs, built.params, DEVICE).outputs[0])
    torch.testing.assert_close(other, plain, rtol=2.0**-10, atol=1e-4)


def test_fused_attention_is_taken_apart_with_its_mask() -> None:
    query, key, value = (torch.randn(2, 5, 8) for _ in range(3))
    compute = torch.nn.functional.scaled_dot_product_attention
    added = torch.randn(5, 5).masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(2), -math.inf)
    for own in ({"is_causal": True}, {"attn_mask": added, "scale": 0.3}, {}):
        apart = kernels.reordered().run(lambda own=own: compute(query, key, value, **own))
        torch.testing.assert_close(apart, compute(query, key, value, **own))


def test_every_fault_happens_to_some_operator(trials: list[Trial]) -> None:
    found = {one.name for one in trials if one.kind == "fault" and one.changed}
    assert found == set(faults)
    assert {one.name for one in trials if one.kind == "variation"} == set(variations)
