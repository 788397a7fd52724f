"""Two dumps in, the guilty operator out: faults of hostatb against the PyTorch twins.

``scripts/bench/fault_matrix.py --full`` prints the whole table: every fault in every operator.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from fault_kinds import kind_of
from fault_matrix import (
    LAYERS,
    PLACES,
    TARGETS,
    Case,
    dump_demo,
    dump_faulty_berts,
    dump_faulty_llamas,
    dump_golden,
    named,
    short_matrix,
)

from ait_llm.compare import compare
from ait_llm.core.comparison import Report, Verdict
from ait_llm.probe.library import find_packaged

pytestmark = pytest.mark.native

# Sums in 16 bits over 64 to 128 terms change a result by no more than the rounding of its output;
# no tolerance that lets a correct run pass can see them.
WITHIN_ROUNDING = "half_accumulation"
FIRST, MIDDLE, LAST = range(LAYERS)
# A fault that shows in no tensor of its own run: what it leaves in the cache is read a step later.
IN_CACHE = Case("dropped_tail", MIDDLE, "cache")
# One fault in each of its layers by turns, so that all faults and all layers occur.
CASES = [
    Case("wrong_epsilon", LAST, "input norm"),
    Case("wrong_softmax_scale", FIRST, "attention"),
    Case("missing_mask", MIDDLE, "attention"),
    Case("swapped_heads", LAST, "attention"),
    Case("stale_padding", LAST, "attention"),
    Case("dropped_tail", FIRST, "o"),
    Case("dropped_tail", LAST, "split"),
    Case("scale_1pct", FIRST, "rope"),
    Case("scale_1pct", MIDDLE, "swiglu"),
    Case("wrong_element", MIDDLE, "qkv"),
    Case("wrong_element", LAST, "second sum"),
    Case("inf_at_step", FIRST, "gate-up"),
    Case("inf_at_step", LAST, "post norm"),
    IN_CACHE,
]
WRONG_PARAMETER = "rms_norm_eps=0.01"
UNSEEN = [case for case in short_matrix() if case.fault == WITHIN_ROUNDING]


@dataclass(frozen=True)
class Dumps:
    """The golden dump and those of mine by fault."""

    golden: Path
    mine: dict[str, Path]

    def report(self, request: str, *, deep: bool = False) -> Report:
        """Without a mapping file."""
        return compare(self.golden, self.mine[request], deep=deep, jobs=1)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Dumps:
    if find_packaged("libatb_probe_abi1.so", os.environ) is None:
        pytest.skip("needs the compiled libraries")
    folder = tmp_path_factory.mktemp("faults")
    golden = dump_golden(folder / "golden")
    requests = ["", WRONG_PARAMETER, *(case.request for case in (*CASES, *UNSEEN))]
    return Dumps(golden, dump_faulty_llamas(folder / "mine", golden, requests))


@pytest.mark.parametrize("deep", [False, True])
def test_a_run_without_fault_passes_and_blames_nobody(llama: Dumps, deep: bool) -> None:
    report = llama.report("", deep=deep)
    assert report.counts[Verdict.FAIL] == report.counts[Verdict.ERROR] == 0
    assert report.compared > 300
    assert report.origins == ()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_faulty_operator_is_named(llama: Dumps, case: Case) -> None:
    report = llama.report(case.request)
    assert named(report) == case.op_id
    origin = report.origins[0]
    assert origin.certain
    assert report.verdict is Verdict.FAIL
    assert "from its own inputs recomputed" in origin.evidence
    assert origin.kind == kind_of(case.fault, case.place)
    assert origin.kind_evidence
    # hostatb's faults change one operator; what its result spoils later is a consequence.
    steps = {(each.op_id, each.step) for each in report.origins}
    assert {op_id for op_id, _ in steps} == {case.op_id}


@pytest.mark.parametrize("case", UNSEEN, ids=str)
def test_an_error_of_the_size_of_rounding_is_only_seen_by_recomputing_everything(
    llama: Dumps, case: Case
) -> None:
    assert llama.report(case.request).origins == ()
    (origin, *_) = llama.report(case.request, deep=True).origins
    assert origin.op_id == case.op_id
    assert origin.kind == "half-precision accumulation"


def test_the_page_lists_what_is_found() -> None:
    page = Path(__file__).parents[2] / "docs" / "origins.md"
    rows = re.findall(r"^\| `(\w+)` \| .* \| (\d of 3) \| (\d of 3) \|$", page.read_text(), re.M)
    found = {fault: "0 of 3" if fault == WITHIN_ROUNDING else "3 of 3" for fault in TARGETS}
    assert rows == [(fault, near, "3 of 3") for fault, near in found.items()]


def test_nine_of_ten_faults_are_found_without_recomputing_everything() -> None:
    missed = [case for case in short_matrix() if case.fault == WITHIN_ROUNDING]
    assert len(missed) <= len(short_matrix()) / 10


def test_a_wrong_cache_is_found_in_the_step_that_wrote_it(llama: Dumps) -> None:
    (origin,) = llama.report(IN_CACHE.request).origins
    assert origin.step == 0
    assert "which reads it from a cache" in origin.evidence


def test_the_error_of_a_guilty_operation_is_its_own(llama: Dumps) -> None:
    report = llama.report(Case("scale_1pct", MIDDLE, "swiglu").request)
    (origin,) = report.origins
    assert origin.introduced == pytest.approx(0.01, rel=0.05)
    assert origin.inherited is not None
    assert origin.inherited < 0.002
    assert origin.index is not None
    shown = report.comparisons[origin.index]
    assert shown.verdict is Verdict.FAIL
    assert (shown.inherited, shown.introduced) == (origin.inherited, origin.introduced)


def test_an_operation_with_another_parameter_is_named(llama: Dumps) -> None:
    origin = llama.report(WRONG_PARAMETER).origins[0]
    assert origin.op_id == f"2_{PLACES['input norm']}"
    assert origin.certain
    assert origin.evidence.startswith(
        "`epsilon` of `RmsNormOperation_2_0_0_0_0` is 0.01 instead of 1e-05 "
        "(golden has it as `eps` of `root.model.layers.0.input_layernorm`); "
    )
    assert origin.kind == "other definition"  # it has no error of its own


def test_other_tokens_are_told_as_such(llama: Dumps, tmp_path: Path) -> None:
    sizes = ("--layers", str(LAYERS), "--tokens", "1", "--seed", "1")
    other = dump_demo("llama_torch", tmp_path, *sizes)
    origin = compare(other, llama.mine[""], jobs=1).origins[0]
    assert origin.op_id == "0_0"
    assert "inputs differ already" in origin.evidence
    assert "both runs must get the same tokens" in origin.evidence


BERT = {
    "": "",
    "scale_1pct:op=1_0_1": "1_0_1",
    "dropped_tail:op=2_3_2": "2_3_2",
    "swapped_heads:op=2_0_1": "2_0_1",
    "inf_at_step:op=0_3": "0_3",
}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Dumps:
    if find_packaged("libatb_probe_abi1.so", os.environ) is None:
        pytest.skip("needs the compiled libraries")
    folder = tmp_path_factory.mktemp("bert")
    golden = dump_demo("bert_torch", folder / "golden", "--weights", "random")
    return Dumps(golden, dump_faulty_berts(folder / "mine", list(BERT)))


@pytest.mark.parametrize("fault", BERT)
def test_faults_of_bert_are_named(bert: Dumps, fault: str) -> None:
    report = bert.report(fault)
    assert named(report) == BERT[fault]
    assert report.counts[Verdict.ERROR] == 0
    assert bool(report.counts[Verdict.FAIL]) == bool(fault)
