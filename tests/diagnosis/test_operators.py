"""Kinds of the faults that the operator checker grades itself with, over families of operators."""

from __future__ import annotations

import zlib
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from ait_llm.diagnosis import Call, Diagnosis, Kind, diagnose
from ait_llm.opcheck.golden import DEVICE, Result, golden_ops
from ait_llm.opcheck.selftest import runner  # registers all cases
from ait_llm.opcheck.selftest.cases import Draw, cases
from ait_llm.opcheck.selftest.faults import Run, faults, variations

F16, BF16 = torch.float16, torch.bfloat16
KINDS = {
    "zeros": Kind.STALE,
    "one wrong element": Kind.ELEMENTS,
    "1 % scale": Kind.SCALE,
    "swapped rows": Kind.SWAPPED_ROWS,
    "swapped heads": Kind.SWAPPED_HEADS,
    "tail not written": Kind.STALE,
    "stale padding": Kind.STALE,
    "NaN in padding": Kind.NOT_FINITE,
    "dropped reduction tail": Kind.TRUNCATED,
    "half-precision accumulation": Kind.HALF_ACCUMULATION,
    "wrong epsilon": Kind.EPSILON,
    "wrong softmax scale": Kind.SOFTMAX_SCALE,
    "off-by-one mask": Kind.MASK,
}
FAMILIES = [
    ("LinearOperation", "", F16),
    ("LinearOperation", "", BF16),
    ("RmsNormOperation", "", F16),
    ("LayerNormOperation", "", BF16),
    ("RopeOperation", "half", F16),
    ("SelfAttentionOperation", "packed, 48 tokens", BF16),
    ("MultiLatentAttentionOperation", "several rows, mask", F16),
    ("ActivationOperation", "", BF16),
]


@cache
def _run(op: str, variant: str, dtype: torch.dtype) -> Run:
    named = [one for one in cases if one.op == op and variant in ("", one.variant)]
    case = next(one for one in named if dtype in one.dtypes)
    built = case.build(Draw(dtype, zlib.crc32(f"{op} {variant} {dtype}".encode())))
    golden = golden_ops.get(op)
    return Run(golden, built, dtype, built.compute(golden, DEVICE))


def _diagnosed(run: Run, result: Result) -> Diagnosis:
    built = run.built
    return diagnose(Call(run.golden, built.inputs, built.params, dict(enumerate(result.outputs))))


FAMILY_PARAMS: list[Any] = [
    pytest.param(*family, id=f"{family[0].removesuffix('Operation')} {family[2]}")
    for family in FAMILIES
]


@pytest.mark.parametrize(("op", "variant", "dtype"), FAMILY_PARAMS)
def test_every_fault_of_an_operator_has_its_kind(op: str, variant: str, dtype: torch.dtype) -> None:
    run = _run(op, variant, dtype)
    found, expected = {}, {}
    for name, kind in KINDS.items():
        result = faults.get(name)(run)
        if result is None or runner._equal(result, run.device):
            continue
        found[name], expected[name] = _diagnosed(run, result).kind, kind
    assert found == expected
    assert len(found) >= 6


@pytest.mark.parametrize(("op", "variant", "dtype"), FAMILY_PARAMS)
def test_legal_ways_to_compute_are_rounding_only(op: str, variant: str, dtype: torch.dtype) -> None:
    run = _run(op, variant, dtype)
    for name in ("as computed", "correctly rounded", "other order"):
        result = variations.get(name)(run)
        assert result is not None
        assert _diagnosed(run, result).kind is Kind.ROUNDING, name


def _changed(run: Run, index: int, tensor: Tensor) -> Result:
    return run.compute(inputs={index: tensor})


def test_rotary_positions_that_are_one_off_are_shifted() -> None:
    run = _run("RopeOperation", "half", BF16)
    inputs = run.built.inputs
    angle = torch.arange(1, 33)[:, None] * 10000.0 ** (-torch.arange(0, 64, 2) / 64)
    angle = torch.cat([angle, angle], 1)
    result = run.compute(inputs={2: angle.cos().to(BF16), 3: angle.sin().to(BF16)})
    assert len(inputs) == 5
    found = _diagnosed(run, result)
    assert found.kind is Kind.SHIFTED
    assert found.parameters["position"] == 1


def test_an_epsilon_that_is_no_power_of_ten_is_fitted() -> None:
    run = _run("RmsNormOperation", "", F16)
    params = dict(run.built.params)
    section = next(key for key, value in params.items() if isinstance(value, dict))
    params[section] = {**params[section], "epsilon": 0.037}
    found = _diagnosed(run, run.compute(params=params))
    assert found.kind is Kind.EPSILON
    assert found.parameters["epsilon"] == pytest.approx(0.037, rel=0.02)


def test_a_block_in_the_middle_of_a_sum_that_is_missing_is_named() -> None:
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(12, 128, generator=draw).half()
    weight = (torch.randn(40, 128, generator=draw) / 11).half()
    cut = x.clone()
    cut[:, 32:48] = 0
    golden, params = golden_ops.get("LinearOperation"), {"transposeB": True, "hasBias": False}
    out = golden.compute([cut, weight], params, DEVICE).outputs[0]
    found = diagnose(Call(golden, [x, weight], params, {0: out}))
    assert found.kind is Kind.TRUNCATED
    assert "terms 32 to 47 of each sum are left out" in found.evidence


@pytest.mark.parametrize("block", [24, 48])
def test_sums_in_16_bits_of_unknown_order_are_told_by_their_size(block: int) -> None:
    draw = torch.Generator().manual_seed(2)
    x = torch.randn(32, 4096, generator=draw).half()
    weight = (torch.randn(48, 4096, generator=draw) / 64).half()
    order = torch.randperm(4096, generator=draw)
    total = torch.zeros(32, 48)
    for start in range(0, 4096, block):
        part = order[start : start + block]
        total = (total + x[:, part].float() @ weight[:, part].float().T).half().float()
    golden, params = golden_ops.get("LinearOperation"), {"transposeB": True, "hasBias": False}
    found = diagnose(Call(golden, [x, weight], params, {0: total.half()}))
    assert found.kind is Kind.HALF_ACCUMULATION
    assert "judged by the size of its rounding errors" in found.evidence


def test_swapped_experts_are_named() -> None:
    found = _experts(3)
    assert found.kind is Kind.SWAPPED_EXPERTS
    assert "experts 0 and 3" in found.evidence


def _experts(other: int) -> Diagnosis:
    case = next(one for one in cases if one.op == "GroupedMatmulWithRoutingOperation")
    run = _run(case.op, case.variant, F16)
    weight = run.built.inputs[1]
    assert weight is not None
    order = list(range(len(weight)))
    order[0], order[other] = order[other], order[0]
    return _diagnosed(run, _changed(run, 1, weight[order]))


def test_attention_with_a_mask_that_nobody_asked_for_is_named() -> None:
    run = _run("SelfAttentionOperation", "packed, 48 tokens", F16)
    query, key, value, lengths = run.built.inputs
    mask = torch.full((48, 48), -10000.0).triu(1).half()
    params = {**run.built.params, "maskType": 1}
    masked = replace(run.built, inputs=[query, key, value, mask, lengths], params=params)
    found = _diagnosed(run, masked.compute(run.golden, DEVICE))
    assert found.kind is Kind.MASK
    assert found.parameters["mask"] == "extra"


def test_output_that_holds_an_input_is_stale() -> None:
    run = _run("ActivationOperation", "", F16)
    held = run.built.inputs[0]
    assert held is not None
    assert held.shape == run.device.outputs[0].shape
    found = _diagnosed(run, replace(run.device, outputs=(held.clone(),)))
    assert found.kind is Kind.STALE
    assert "the values of intensor0" in found.evidence


def test_nan_that_the_inputs_make_may_be_in_swapped_rows() -> None:
    golden, params = golden_ops.get("ActivationOperation"), {"activationType": 5}  # a logarithm
    x = torch.randn(16, 32, generator=torch.Generator().manual_seed(3)).half()
    out = golden.compute([x], params, DEVICE).outputs[0]
    assert out.isnan().any()
    swapped = torch.cat([out[1:2], out[:1], out[2:]])
    assert diagnose(Call(golden, [x], params, {0: swapped})).kind is Kind.SWAPPED_ROWS


def test_one_wrong_truth_value_is_an_isolated_element() -> None:
    golden = golden_ops.get("ElewiseOperation")
    case = next(one for one in cases if one.op == golden.name and one.variant == "less")
    run = _run(case.op, case.variant, F16)
    result = faults.get("one wrong element")(run)
    assert result is not None
    assert _diagnosed(run, result).kind is Kind.ELEMENTS
