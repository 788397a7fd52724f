"""Attention whose kernels leave sums in float32: these pass, and sums kept in 16 bits do not."""

from __future__ import annotations

import zlib
from dataclasses import replace
from functools import partial

import pytest
import torch

from ait_llm.judge.standards import Computation, Output, standards
from ait_llm.opcheck.golden import DEVICE, GOLDEN, Result, golden_ops
from ait_llm.opcheck.selftest import runner
from ait_llm.opcheck.selftest.cases import Built, Draw
from ait_llm.opcheck.selftest.emulated_float_attention import float_flash
from ait_llm.opcheck.selftest.faults import Run, faults, variations

RELAY, RAZOR = "RelayAttentionOperation", "RazorFusionAttentionOperation"
LATENT, RING = "MultiLatentAttentionOperation", "RingMLAOperation"
GRADIENT = "LaserAttentionGradOperation"
HALF, WIDE_HALF = torch.float16, torch.bfloat16
CASES = [
    (RELAY, HALF), (RELAY, WIDE_HALF), (RAZOR, HALF), (RAZOR, WIDE_HALF), (LATENT, HALF),
    (LATENT, WIDE_HALF), (RING, HALF), (RING, WIDE_HALF), (GRADIENT, WIDE_HALF),
]  # fmt: skip


def _built(op: str, dtype: torch.dtype, seed: int) -> Built:
    variant = "prefill" if op == LATENT else ""
    [case] = [each for each in runner.cases if (each.op, each.variant) == (op, variant)]
    built = case.build(Draw(dtype, zlib.crc32(f"{op} {dtype} {seed}".encode())))
    if op == RAZOR:  # the emulation hides no blocks
        built = replace(built, params={**built.params, "preTokens": 512, "nextTokens": 512})
    return built


def _run(op: str, dtype: torch.dtype, seed: int, *, quick: bool) -> tuple[Computation, Run]:
    golden, built = golden_ops.get(op), _built(op, dtype, seed)
    computation = Computation(
        golden,
        list(built.inputs),
        built.params,
        partial(built.compute, golden),
        verdict_only=quick,
    )
    return computation, Run(golden, built, dtype, computation.result(DEVICE))


def _accused(computation: Computation, mine: Result | None) -> list[str]:
    assert mine is not None
    golden = computation.result(GOLDEN)
    found = [
        standards.get("contract")(
            Output(f"outtensor{index}", index, False, right, got, None, computation)
        )
        for index, (right, got) in enumerate(zip(golden.outputs, mine.outputs, strict=True))
        if index not in golden.undefined
    ]
    return [each.reason for each in found if not each.passed]


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_kernels_of_the_device_pass(op: str, dtype: torch.dtype, seed: int, quick: bool) -> None:
    computation, run = _run(op, dtype, seed, quick=quick)
    assert _accused(computation, variations.get("kernel of the device")(run)) == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("op", "dtype"), [(RELAY, HALF), (RAZOR, HALF), (GRADIENT, WIDE_HALF)])
def test_sums_in_16_bits_are_found(op: str, dtype: torch.dtype, seed: int) -> None:
    computation, run = _run(op, dtype, seed, quick=True)
    assert _accused(computation, faults.get("half-precision accumulation")(run))


def test_the_emulated_flash_attention_is_attention() -> None:
    query, key, value = (torch.randn(n, 64, dtype=torch.float64) for n in (5, 300, 300))
    exact = torch.softmax(query @ key.T / 8, -1) @ value
    found, logarithm = float_flash(
        *(each.float().numpy() for each in (query, key, value)), 0.125, None
    )
    torch.testing.assert_close(torch.from_numpy(found).double(), exact, rtol=1e-5, atol=1e-6)
    logs = (query @ key.T / 8).logsumexp(-1)
    torch.testing.assert_close(torch.from_numpy(logarithm).double(), logs, rtol=1e-5, atol=1e-5)
