"""Verdicts at and beside the limits of each standard, and those that msprobe gave."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from judged_outputs import OF_MSPROBE, outputs_for_msprobe

from ait_llm.apicheck.judging import Judge
from ait_llm.apicheck.metrics import Metrics
from ait_llm.apicheck.standards import Measured, standards
from ait_llm.judge.api_limits import RATIOS, ApiClass, class_of, limits_of

EXACT = Metrics(
    cosine=1.0,
    max_absolute=1.0,
    hundredth=1.0,
    thousandth=1.0,
    ten_thousandth=1.0,
    unequal=0.0,
    balance=0.0,
    rmse=0.0,
    small_share=0.0,
    max_relative=0.0,
    mean_relative=0.0,
    nonfinite_share=0.0,
    relative_share=0.0,
    absolute_share=0.0,
    max_ulp=0.0,
    mean_ulp=0.0,
    ulp_share=0.0,
)
HALF, SINGLE = "torch.float16", "torch.float32"


def verdict(standard: str, dtype: str = SINGLE, **found: float) -> str:
    metrics = replace(EXACT, **found)
    return standards.get(standard)(Measured(metrics, limits_of(dtype), benchmark=EXACT))[0]


@pytest.mark.parametrize(
    ("dtype", "found", "expected"),
    [
        (SINGLE, {"cosine": 0.99, "max_absolute": 0.0}, "error"),
        (SINGLE, {"cosine": 0.991, "max_absolute": 0.0009, "thousandth": 0.0}, "pass"),
        (SINGLE, {"max_absolute": 0.001, "thousandth": 0.999}, "error"),
        (SINGLE, {"thousandth": 0.9991, "ten_thousandth": 0.9999}, "warning"),
        (SINGLE, {"thousandth": 0.9991, "ten_thousandth": 0.99991}, "pass"),
        (SINGLE, {"hundredth": 0.0}, "pass"),
        (HALF, {"hundredth": 0.99}, "error"),
        (HALF, {"hundredth": 0.991, "thousandth": 0.999}, "warning"),
        (HALF, {"hundredth": 0.991, "thousandth": 0.9991, "ten_thousandth": 0.0}, "pass"),
        ("torch.float64", {"thousandth": 0.99}, "error"),
        (SINGLE, {"strange": 1, "max_absolute": 0.0}, "error"),
        (SINGLE, {"is_one_zero": True, "max_absolute": 0.0}, "error"),
    ],
)
def test_the_default_standard_decides_by_the_first_rule_that_applies(
    dtype: str, found: dict[str, float], expected: str
) -> None:
    assert verdict("default", dtype, **found) == expected


@pytest.mark.parametrize(
    ("standard", "dtype", "found", "expected"),
    [
        ("absolute", SINGLE, {}, "pass"),
        ("absolute", SINGLE, {"relative_share": 1e-6}, "error"),
        ("absolute", SINGLE, {"absolute_share": 1e-6}, "error"),
        ("absolute", SINGLE, {"nonfinite_share": 1e-6}, "error"),
        ("ulp", SINGLE, {"mean_ulp": 63.9, "ulp_share": 1.0}, "pass"),
        ("ulp", SINGLE, {"mean_ulp": 64.0, "ulp_share": 0.049}, "pass"),
        ("ulp", SINGLE, {"mean_ulp": 64.0, "ulp_share": 0.05}, "error"),
        ("ulp", HALF, {"mean_ulp": 1e6, "ulp_share": 0.0009}, "pass"),
        ("ulp", HALF, {"ulp_share": 0.001}, "error"),
        ("ulp", HALF, {"strange": 1}, "error"),
        ("binary", SINGLE, {"unequal": 1e-9}, "error"),
        ("binary", SINGLE, {}, "pass"),
        ("thousandth", SINGLE, {"thousandth": 0.999}, "pass"),
        ("thousandth", SINGLE, {"thousandth": 0.9989}, "error"),
        ("benchmark", SINGLE, {"strange": 1}, "error"),
    ],
)
def test_limits_of_the_other_standards(
    standard: str, dtype: str, found: dict[str, float], expected: str
) -> None:
    assert verdict(standard, dtype, **found) == expected


@pytest.mark.parametrize(
    ("api", "api_class"),
    [("relu", "L0"), ("embedding", "L1"), ("scatter_add_", "L1"), ("matmul", "L2"), ("sum", "L2")],
)
def test_the_benchmark_standard_limits_ratios_by_the_class_of_the_function(
    api: str, api_class: ApiClass
) -> None:
    assert class_of(api) == api_class
    limits = limits_of(HALF)
    for name, limit in RATIOS[api_class].items():
        benchmark = replace(EXACT, **{name: 0.01})
        for factor, expected in ((0.999, "pass"), (1.001, "error")):
            metrics = replace(EXACT, **{name: 0.01 * limit * factor})
            found = standards.get("benchmark")(Measured(metrics, limits, api_class, benchmark))
            assert found[0] == expected, name
    least = replace(EXACT, max_relative=limits.floor * RATIOS[api_class]["max_relative"])
    assert standards.get("benchmark")(Measured(least, limits, api_class, EXACT))[0] == "pass"


def test_default_verdicts_are_those_of_msprobe() -> None:
    judge = Judge("default")
    found: dict[torch.dtype, list[str]] = {dtype: [] for dtype in OF_MSPROBE}
    for dtype, golden, mine in outputs_for_msprobe():
        found[dtype].append(judge.outputs("add", golden, mine)[0].status)
    assert found == OF_MSPROBE


def test_outputs_of_other_shapes_kinds_or_numbers_are_errors() -> None:
    judge = Judge("default")
    two = torch.zeros(2)
    for golden, mine in (
        (two, torch.zeros(3)),
        (two, torch.zeros(2, dtype=torch.int32)),
        (two.bool(), two.int()),
        ((two, two), (two,)),
        (True, False),
        (two, None),
    ):
        assert judge.outputs("f", golden, mine)[0].status == "error"


def test_outputs_in_containers_are_named_by_their_place() -> None:
    output = (torch.zeros(2), [1, {"a": True}])
    found = Judge("default").outputs("f", output, output)
    assert [(each.place, each.status) for each in found] == [
        ("0", "pass"),
        ("1.0", "pass"),
        ("1.1.0", "pass"),
    ]


def test_complex_outputs_are_judged_by_their_parts() -> None:
    golden = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex128)
    judge = Judge("default")
    assert judge.outputs("f", golden, golden.to(torch.complex64))[0].status == "pass"
    assert judge.outputs("f", golden, golden.conj().to(torch.complex64))[0].status == "error"


def test_quantised_outputs_may_be_one_step_off() -> None:
    golden, mine = torch.tensor([1, 2], dtype=torch.int8), torch.tensor([1, 3], dtype=torch.int8)
    judge = Judge("default")
    assert judge.outputs("npu_dynamic_quant", golden, mine)[0].status == "pass"
    assert judge.outputs("npu_dynamic_quant", golden, mine + 1)[0].status == "error"
    assert judge.outputs("add", golden, mine)[0].status == "error"


def test_a_dropout_is_judged_by_the_number_of_its_zeros() -> None:
    judge = Judge("default")
    ones = torch.ones(200)
    some, other, many = ones.clone(), ones.clone(), ones.clone()
    some[:60] = 0
    other[100:165] = 0
    many[:90] = 0
    assert judge.outputs("dropout", some.double(), other, dropped=True)[0].status == "pass"
    assert judge.outputs("dropout", some.double(), many, dropped=True)[0].status == "error"
    few = judge.outputs("dropout", ones[:99].double(), many[:99], dropped=True)
    assert few[0].status == "pass"  # too few to say


def test_infinite_errors_have_infinite_metrics_and_no_exception() -> None:
    golden = torch.tensor([1.0, 2.0], dtype=torch.float64)
    for name in standards:
        if name == "benchmark":
            continue
        (found,) = Judge(name).outputs("f", golden, torch.tensor([1.0, math.nan]))
        assert found.status == "error", name
