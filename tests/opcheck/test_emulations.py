"""Kernels of the device as its public sources have them are never accused."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from ait_llm.judge.standards import Computation, Judgement, Output, standards
from ait_llm.opcheck.golden import GOLDEN, golden_ops
from ait_llm.opcheck.selftest.emulated_attention import (
    Array,
    causal,
    half_flash,
    online_int8,
    usual_scale,
)
from ait_llm.opcheck.selftest.emulations import emulations, scale_bits

Given = tuple[str, list[Array], dict[str, Any]]


def _half(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Array:
    return (rng.standard_normal(shape) * scale).astype(np.float16)


def _flash(rng: np.random.Generator, tokens: int = 600, *, masked: bool = False) -> Given:
    given = [_half(rng, tokens, 2, 64, scale=2.0), *(_half(rng, tokens, 1, 64) for _ in range(2))]
    params = {"headNum": 2, "kvHeadNum": 1, "qkScale": usual_scale(64), "calcType": 3}
    if masked:
        given.append(causal(tokens))
        params["maskType"] = 1
    return "SelfAttentionOperation", [*given, np.array([tokens], np.int32)], params


def _paged(rng: np.random.Generator) -> Given:
    def int8(*shape: int) -> Array:
        return (rng.standard_normal(shape) * 40).round().clip(-127, 127).astype(np.int8)

    lengths = np.array([1500, 700], np.int32)
    tables = rng.permutation(24).reshape(2, 12).astype(np.int32)
    caches = [int8(24, 128, 2, 64) for _ in range(2)]
    scales = [np.full(4, 1 / 1600, np.float32), np.full(4, 1 / 40, np.float32)]
    params = {"headNum": 4, "kvHeadNum": 2, "qkScale": 0.125, "quantType": 3, "outDataType": 1}
    return "PagedAttentionOperation", [int8(2, 4, 64), *caches, tables, lengths, *scales], params


def _linear(rng: np.random.Generator) -> Given:
    x, weight = (rng.integers(-128, 128, (rows, 512)).astype(np.int8) for rows in (16, 96))
    scale = np.abs(1 + 0.2 * rng.standard_normal(96)) * 2e-4
    return "LinearOperation", [x, weight, scale_bits(scale)], {"hasBias": False, "outDataType": 1}


def _swiglu(rng: np.random.Generator) -> Given:
    return "SwigluQuantOperation", [_half(rng, 16, 4096)], {"quantType": 0}


def _asymmetric(rng: np.random.Generator) -> Given:
    params = {"elewiseType": 19, "quantParam": {"asymmetric": True}}
    return "ElewiseOperation", [_half(rng, 16, 1024) + np.float16(0.3)], params


def _norm(rng: np.random.Generator, op: str, dynamic: int) -> Given:
    weights = [_half(rng, 1024, scale=0.2) + np.float16(1), _half(rng, 1024, scale=0.1)]
    own = {"epsilon": 1e-5, "quantType": 2, "dynamicQuantType": dynamic}
    if op.startswith("Layer"):
        own |= {"beginNormAxis": 1, "beginParamsAxis": 1}
    return op, [_half(rng, 16, 1024), *weights], {"layerType": 1, "normParam": own}


def _prenorm(rng: np.random.Generator) -> Given:
    weights = [_half(rng, 1024, scale=0.2) + np.float16(1), _half(rng, 1024, scale=0.1)]
    quantised = [np.array([0.03], np.float16), np.array([3], np.int8)]
    given = [_half(rng, 16, 1024), _half(rng, 16, 1024), *weights, *quantised]
    params = {"layerType": 2, "preNormParam": {"epsilon": 1e-5, "quantType": 2}}
    return "RmsNormOperation", given, params


def _one_core(rng: np.random.Generator, kernel: int, soc: str = "Ascend310P") -> Given:
    op, given, params = _flash(rng, masked=kernel == 1)
    return op, given, {**params, "socVersion": soc, "kernelType": kernel}


KERNELS = {
    "flash attention of a chip with one kind of core": partial(_one_core, kernel=0),
    "the same, precise": partial(_one_core, kernel=1),
    "the same, with the exponential M8V2": partial(_one_core, kernel=2),
    "flash attention in float16": _flash,
    "flash attention in float16, causal": partial(_flash, masked=True),
    "paged attention of int8": _paged,
    "product of int8 with a 64-bit scale": _linear,
    "SwiGLU with quantisation": _swiglu,
    "asymmetric quantisation": _asymmetric,
    "RmsNorm, symmetric": partial(_norm, op="RmsNormOperation", dynamic=1),
    "RmsNorm, asymmetric": partial(_norm, op="RmsNormOperation", dynamic=2),
    "LayerNorm, symmetric": partial(_norm, op="LayerNormOperation", dynamic=1),
    "LayerNorm, asymmetric": partial(_norm, op="LayerNormOperation", dynamic=2),
    "RmsNorm with a residual": _prenorm,
}


def _judged(given: Given, mine: list[Array]) -> list[Judgement]:
    op, inputs, params = given
    golden = golden_ops.get(op)
    tensors = [torch.from_numpy(np.ascontiguousarray(one)) for one in inputs]

    def run(arithmetic: Any) -> Any:
        return golden.compute(tensors, params, arithmetic)

    computation = Computation(golden, tensors, params, run)
    outputs = computation.result(GOLDEN).outputs
    found = []
    for index, (right, got) in enumerate(zip(outputs, mine, strict=True)):
        tensor = torch.from_numpy(np.ascontiguousarray(got)).reshape(right.shape)
        assert tensor.dtype == right.dtype
        output = Output(f"outtensor{index}", index, False, right, tensor, None, computation)
        found.append(standards.get("contract")(output))
    return found


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_kernel_of_the_device_passes(kernel: str, seed: int) -> None:
    given = KERNELS[kernel](np.random.default_rng(seed))
    mine = emulations[given[0]](given[1], given[2])
    assert mine is not None
    judged = _judged(given, mine)
    assert [one.reason for one in judged if not one.passed] == []


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_of_the_device_that_is_2_percent_off_fails(kernel: str) -> None:
    given = KERNELS[kernel](np.random.default_rng(3))
    mine = emulations[given[0]](given[1], given[2])
    assert mine is not None
    wrong = (mine[0].astype(np.float64) * 1.02).astype(mine[0].dtype)
    if wrong.dtype == np.int8:  # towards zero, so by one where a number is large
        wrong = (mine[0].astype(np.float64) * 0.98).astype(np.int8)
    assert not _judged(given, [wrong, *mine[1:]])[0].passed


@pytest.mark.parametrize("kernel", [0, 1, 2])
@pytest.mark.parametrize("soc", ["Ascend310P", "Ascend910A"])
def test_what_a_chip_does_is_permitted_where_nobody_knows_the_chip(kernel: int, soc: str) -> None:
    op, inputs, params = _one_core(np.random.default_rng(4), kernel, soc)
    mine = emulations[op](inputs, params)
    assert mine is not None
    del params["socVersion"]
    judged = _judged((op, inputs, params), mine)
    assert [one.reason for one in judged if not one.passed] == []


def test_sums_in_float16_are_no_kernels_of_a_chip_that_keeps_them_in_float32() -> None:
    op, inputs, params = _flash(np.random.default_rng(5), 1500)
    inputs[0] = inputs[0] * np.float16(0.05)  # small scores, whose roundings hide little
    mine = emulations[op](inputs, params)
    assert mine is not None
    for soc, passes in (("Ascend910B4", True), ("", True), ("Ascend310P3", False)):
        own = {**params, "socVersion": soc} if soc else params
        assert _judged((op, inputs, own), mine)[0].passed == passes, soc


def test_scores_in_float16_are_not_precise_on_a_chip_that_keeps_them_in_float32() -> None:
    op, inputs, params = _one_core(np.random.default_rng(6), 1)
    inputs[0] = inputs[0] * np.float16(3)
    mine = emulations[op](inputs, params)
    assert mine is not None
    assert _judged((op, inputs, params), mine)[0].passed
    assert not _judged((op, inputs, {**params, "socVersion": "Ascend910_9391"}), mine)[0].passed


def _at_a_tie(op: str, seed: int) -> Given:
    """Inputs with a row whose range, in 16 bits, rounds to either of two numbers."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    if op == "ElewiseOperation":
        given = [(normal(24, 256) * 0.3).half() + 2]
        params: dict[str, Any] = {"elewiseType": 19, "quantParam": {"asymmetric": True}}
    else:
        row = normal(24, 256).half()
        given = [row, (1 + 0.2 * normal(256)).half(), (0.1 * normal(256)).half()]
        params = _norm(np.random.default_rng(0), op, 2)[2]
    return op, [one.numpy() for one in given], params


@pytest.mark.parametrize(
    ("op", "seed"),
    [
        ("ElewiseOperation", 20262868),
        *(("RmsNormOperation", seed) for seed in (573, 1017, 1107)),
        *(("LayerNormOperation", seed) for seed in (435, 565, 1441)),
    ],
)
def test_a_row_whose_range_is_at_a_tie_of_16_bits_may_have_either_scale(op: str, seed: int) -> None:
    given = _at_a_tie(op, seed)
    mine = emulations[op](given[1], given[2])
    assert mine is not None
    assert [one.reason for one in _judged(given, mine) if not one.passed] == []


def test_half_precision_attention_is_far_from_one_rounding() -> None:
    """The emulation is no plain attention in disguise."""
    query, key, value = (_half(np.random.default_rng(5), 1024, 64) for _ in range(3))
    found = half_flash(query, key, value, usual_scale(64), None).astype(np.float64)
    scores = query.astype(np.float64) @ key.astype(np.float64).T * usual_scale(64)
    powers = np.exp(scores - scores.max(1, keepdims=True))
    exact = powers @ value.astype(np.float64) / powers.sum(1, keepdims=True)
    rounded = np.square(exact.astype(np.float16) - exact).mean()
    assert np.square(found - exact).mean() > 9 * rounded


def test_probabilities_of_each_block_of_keys_have_a_scale_of_their_own() -> None:
    rng = np.random.default_rng(6)
    query = rng.integers(-90, 90, 64).astype(np.int8)
    key, value = (rng.integers(-90, 90, (1200, 64)).astype(np.int8) for _ in range(2))
    blocks, whole = (online_int8(query, key, value, 1e-4, block) for block in (512, 4096))
    assert np.abs(blocks - whole).max() > 1e-3 * np.abs(whole).max()
