"""Comparisons gathered by operation, by layer and by reason."""

from __future__ import annotations

import dataclasses
import math

import pytest
from report_builder import comparison, decoder_report, not_finite, record, report, unreadable

from ait_llm.core.comparison import Comparison, TensorRecord, Verdict
from ait_llm.report.operations import called_operations, not_compared, severity, verdict_of

METRIC = "relative_euclidean_distance"


def module(path: str, op_id: str) -> TensorRecord:
    return record(path, op_id=op_id, op_type="Linear")


def layers(*records: TensorRecord) -> list[str]:
    value = report(*(comparison(mine=each) for each in records))
    return [operation.layer for operation in called_operations(value)]


def test_the_layer_of_a_module_ends_at_its_first_number() -> None:
    assert layers(
        module("root", "0"),
        module("root.model", "0_0"),
        module("root.model.layers.3", "0_0_1_3"),
        module("root.model.layers.3.mlp.experts.7", "0_0_1_3_1_0_7"),
    ) == ["root", "root.model", "root.model.layers.3", "root.model.layers.3"]


def test_the_layer_of_an_operation_is_the_one_at_the_top() -> None:
    assert layers(
        record("Decoder_layer_2", op_id="2", op_type="Decoder_layer"),
        record("LinearOperation_2_0_1", op_id="2_0_1"),
        record("LinearOperation_3_1", op_id="3_1"),
    ) == ["2 Decoder_layer", "2 Decoder_layer", "3"]


def test_a_compiled_graph_stands_for_a_layer() -> None:
    assert layers(record("MulCast_1", op_id="55", graph="graph_1_0")) == ["graph_1_0"]


def test_a_file_is_a_layer_of_its_own() -> None:
    assert layers(record("logits", op_id="", op_type="", role="file")) == ["logits"]


def test_the_tensors_of_one_call_belong_together_and_calls_are_apart() -> None:
    both = [comparison(mine=record(name=name)) for name in ("intensor0", "outtensor0")]
    again = comparison(mine=record(call=1))
    later = comparison(mine=record(step=1))
    golden_only = comparison(golden=record(), mine=None)
    found = called_operations(report(*both, again, later, golden_only))
    assert [operation.indices for operation in found] == [(0, 1), (2,), (3,), (4,)]
    assert [operation.mine for operation in found] == [True, True, True, False]


def of(role: str, verdict: Verdict) -> Comparison:
    return comparison(mine=record(role=role), verdict=verdict)


@pytest.mark.parametrize(
    ("inputs", "outputs", "verdict"),
    [
        ([Verdict.SKIPPED], [Verdict.PASS], Verdict.PASS),
        ([Verdict.FAIL], [Verdict.PASS], Verdict.PASS),
        ([Verdict.PASS], [Verdict.PASS, Verdict.FAIL], Verdict.FAIL),
        ([], [Verdict.SKIPPED, Verdict.PASS], Verdict.PASS),
        ([], [Verdict.ERROR, Verdict.PASS], Verdict.ERROR),
        ([Verdict.PASS], [Verdict.SKIPPED], Verdict.SKIPPED),
        ([Verdict.FAIL, Verdict.PASS], [], Verdict.FAIL),
    ],
)
def test_the_outputs_decide_about_an_operation(
    inputs: list[Verdict], outputs: list[Verdict], verdict: Verdict
) -> None:
    items = [of("in", each) for each in inputs] + [of("out", each) for each in outputs]
    assert verdict_of(items) is verdict


def test_what_is_no_number_is_the_worst_and_what_has_none_the_least() -> None:
    assert severity(comparison(0.5), METRIC) == 0.5
    assert severity(not_finite(), METRIC) == math.inf
    assert severity(comparison(0, verdict=Verdict.FAIL, first_bad=(0,)), METRIC) == math.inf
    assert severity(comparison(0.5, values={METRIC: math.nan}), METRIC) == math.inf
    assert severity(unreadable(), METRIC) < 0


def test_a_metric_that_was_not_asked_for_is_taken_from_the_judge() -> None:
    assert severity(comparison(0.5, values={"cosine_similarity": 0.75}), METRIC) == 0.5


def test_equal_reasons_are_counted_together_with_an_example() -> None:
    value = decoder_report(layers=3)
    (found,) = not_compared(value)
    assert found[:2] == ("no module of the golden side answers this operation", 12)
    assert found[2].record.title == "RopeOperation_2_0_1_0 intensor0"


def test_a_name_within_the_path_of_the_other_side_is_no_reason_of_its_own() -> None:
    golden, mine = (
        dataclasses.replace(record("x.pt", op_id="", op_type="", role="file"), path=f"/{side}/x.pt")
        for side in ("golden", "mine")
    )
    item = Comparison(golden, mine, verdict=Verdict.ERROR, reason="/golden/x.pt: is cut off")
    ((reason, _, _),) = not_compared(report(item))
    assert reason == "the file: is cut off"


def test_the_name_of_an_operation_is_not_taken_out_of_a_longer_one() -> None:
    one = record("root", op_id="0", op_type="Model", role="out")
    reason = "my root has no output 0; its counterpart is at root.model, or at root"
    item = Comparison(None, one, verdict=Verdict.SKIPPED, reason=reason)
    ((reason, _, _),) = not_compared(report(item))
    assert reason == (
        "my operation has no output 0; its counterpart is at root.model, or at the operation"
    )
