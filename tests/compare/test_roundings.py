"""How far roundings alone bring healthy tensors apart, held to products that numpy makes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from other_sums import OtherSums
from transformers import LlamaConfig, LlamaForCausalLM

from ait_llm import DumpConfig, register_hook
from ait_llm.compare.roundings import is_of_sums, noise_of
from ait_llm.core.comparison import Comparison, TensorRecord, Verdict
from ait_llm.core.dtype import DType
from ait_llm.judge.pairs import DISTANCE

TYPES = {DType.FLOAT32: torch.float32, DType.BFLOAT16: torch.bfloat16, DType.FLOAT16: torch.float16}


def compared(dtype: DType, golden: torch.Tensor, mine: torch.Tensor) -> Comparison:
    """A comparison with the distance of two tensors, in float64."""
    one, other = golden.double(), mine.double()
    distance = float((one - other).norm() / one.norm())
    record = TensorRecord(
        "op", "", "Linear", "outtensor0", "out", 0, "", dtype=dtype, shape=tuple(golden.shape)
    )
    return Comparison(record, replace(record), Verdict.PASS, values={DISTANCE: distance})


@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from([*TYPES]),
    terms=st.integers(32, 2048),
    rows=st.integers(16, 64),
)
def test_a_product_whose_sums_have_another_order_is_of_sums(
    seed: int, dtype: DType, terms: int, rows: int
) -> None:
    draw = np.random.default_rng(seed)
    left, right = (
        torch.from_numpy(draw.standard_normal(shape, dtype=np.float32)).to(TYPES[dtype]).float()
        for shape in ((rows, terms), (terms, 64))
    )
    half = terms // 2
    one = (left @ right).to(TYPES[dtype])
    other = (left[:, half:] @ right[half:] + left[:, :half] @ right[:half]).to(TYPES[dtype])
    assert is_of_sums(compared(dtype, one, other))


@pytest.mark.parametrize("dtype", TYPES)
def test_a_result_scaled_by_one_rounding_is_not_of_sums(dtype: DType) -> None:
    made = torch.from_numpy(np.random.default_rng(1).standard_normal((64, 64)))
    rounding = {DType.FLOAT32: 2.0**-19, DType.BFLOAT16: 2.0**-8, DType.FLOAT16: 2.0**-11}[dtype]
    one, other = made.to(TYPES[dtype]), (made * (1 + rounding)).to(TYPES[dtype])
    assert not is_of_sums(compared(dtype, one, other))


@pytest.mark.parametrize("dtype", [DType.BFLOAT16, DType.FLOAT16])
@pytest.mark.parametrize("given_exponent", range(-18, -8))
def test_a_rounding_leaves_no_more_of_a_small_error_than_it_is_said_to(
    dtype: DType, given_exponent: int
) -> None:
    draw = np.random.default_rng(2)
    made = torch.from_numpy(draw.standard_normal((256, 256)))
    error = 2.0**given_exponent
    other = made + error * torch.from_numpy(draw.standard_normal((256, 256)))
    found = compared(dtype, made.to(TYPES[dtype]), other.to(TYPES[dtype]))
    distance, noise = found.values[DISTANCE], noise_of(found, error)
    assert noise / 8 < distance < np.hypot(error, noise)


def test_two_types_are_apart_by_a_whole_rounding() -> None:
    made = torch.from_numpy(np.random.default_rng(3).standard_normal((64, 64)))
    found = compared(DType.BFLOAT16, made.float(), made.bfloat16())
    assert found.golden is not None
    found = replace(found, golden=replace(found.golden, dtype=DType.FLOAT32))
    assert not is_of_sums(found)
    assert found.values[DISTANCE] < noise_of(found) == 2.0**-8


def test_a_root_of_rounded_values_weighs_their_error_and_one_of_others_does_not() -> None:
    draw = np.random.default_rng(4)
    rows = torch.from_numpy(draw.standard_normal((64, 512)) * draw.uniform(0.2, 2, (64, 1)))
    rounded = rows + 2.0**-9 * torch.from_numpy(draw.standard_normal((64, 512)))
    means, other = rows.square().mean(-1), rounded.square().mean(-1)
    given = float((other - means).norm() / means.norm())
    found = compared(DType.FLOAT32, means.rsqrt(), other.rsqrt())
    assert given > 2.0**-20
    assert 1.2 * given < found.values[DISTANCE] < noise_of(found, given, of_coarse=True)
    assert noise_of(found, given) == 2.0**-20


@pytest.mark.parametrize("operators", [False, True], ids=["modules", "operators"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_healthy_runs_with_other_sums_are_compared_without_torch(
    tmp_path: Path, dtype: torch.dtype, operators: bool
) -> None:
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval().to(dtype)
    ids = torch.arange(16)[None]
    for side in ("golden", "mine"):
        wanted = DumpConfig(dump_path=tmp_path / side, operators=operators)
        with torch.no_grad(), register_hook(model, wanted):
            if side == "mine":
                with OtherSums():
                    model(ids)
            else:
                model(ids)
    program = (
        "import sys; from ait_llm import compare\n"
        "found = compare(sys.argv[1], sys.argv[2], ledger=False, jobs=1)\n"
        "assert found.exit_code() == 0, found\n"
        "differ = [each for each in found.comparisons\n"
        f"          if each.values.get({DISTANCE!r})]\n"
        "assert differ\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, tmp_path / "golden", tmp_path / "mine"],
        check=True,
        timeout=120,
    )
