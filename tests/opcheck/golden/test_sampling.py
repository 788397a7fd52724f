"""Sampling: the random numbers of glibc, and tokens drawn by a loop over each row."""

from __future__ import annotations

import ctypes
import math
import platform
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.opcheck.golden import Result, golden_ops, topk_topp_sampling
from ait_llm.opcheck.golden.glibc_random import rand, uniform

Run = Callable[..., Result]
OP = "TopkToppSamplingOperation"


@pytest.mark.parametrize(
    ("seed", "values"),
    [
        (1, [1804289383, 846930886, 1681692777, 1714636915, 1957747793]),
        (0, [1804289383, 846930886, 1681692777, 1714636915, 1957747793]),
        (42, [71876166, 708592740, 1483128881, 907283241, 442951012]),
    ],
)
def test_rand_gives_the_well_known_numbers(seed: int, values: list[int]) -> None:
    assert rand([seed], 5).tolist() == [values]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="compares with the C library")
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=3))
@settings(max_examples=20)
def test_rand_equals_the_c_library(seeds: list[int]) -> None:
    libc = ctypes.CDLL(None)
    got = rand(seeds, 40)
    for row, seed in enumerate(seeds):
        libc.srand(ctypes.c_uint(seed))
        assert got[row].tolist() == [libc.rand() for _ in range(40)]


def test_uniform_divides_in_float32() -> None:
    value = np.float32(1804289383) / np.float32(2147483647)
    assert float(uniform([1], 1)) == float(value)


def _probabilities(batch: int, vocabulary: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(batch, vocabulary, generator=generator) * 2).softmax(-1).half()


def _sums(values: list[float]) -> list[float]:
    """Prefix sums, each kept as float16."""
    return [float(np.float16(v)) for v in np.cumsum(np.array(values, dtype=np.float32))]


def _drawn(
    row: list[float], topp: float, number: float, kept: int | None, *, below: bool
) -> tuple[int, list[float], int]:
    """Place in the descending order, the sums and the selected index, by the definition.

    ``kept`` values at least; those below the value at index ``kept`` become zero.
    """
    order = sorted(row, reverse=True)
    if kept is not None:
        order = [v if v >= order[kept] else 0.0 for v in order]
    sums = _sums(order)
    selected = max(sum(s < topp for s in sums) - 1, 0)
    blocks = range(-(-len(sums) // 16384))
    reached = [
        j
        for j in blocks
        if sums[min((j + 1) * 16384, len(sums)) - 1] >= np.float32(topp) * np.float32(number)
    ]
    block = reached[0] if reached else len(blocks) - 1
    at = min((block + 1) * 16384 - 1, selected)
    bound = float(np.float32(sums[at]) * np.float32(number))
    count = sum(s < bound if below else s <= bound for s in sums)
    return min(count, len(sums) - 1), sums, selected


def _token(row: Tensor, place: int) -> int:
    values = row.tolist()
    return sorted(range(len(values)), key=lambda i: (-values[i], i))[place]


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.floats(0, 1, width=16))
def test_single_topk_takes_one_stream_for_all_rows(
    run: Run, seed: int, topk: int, topp: float
) -> None:
    probs = _probabilities(3, 40, seed % 1000)
    params = {"topkToppSamplingType": 0, "topk": topk, "randSeed": seed}
    tops = torch.full((3, 1), topp).half()
    index, prob = run(OP, [probs, tops], params).outputs
    numbers = uniform([seed], 3)[0].tolist()
    for b in range(3):
        row = sorted(probs[b].tolist(), reverse=True)[:topk]
        place, _, _ = _drawn(row, topp, numbers[b], None, below=False)
        assert int(index[b]) == _token(probs[b], place)
        assert prob[b] == probs[b, index[b]]


@settings(max_examples=30)
@given(
    st.lists(st.integers(0, 2**32 - 1), max_size=4),
    st.integers(0, 39),
    st.floats(0, 1, width=16),
)
def test_multinomial_seeds_each_row(run: Run, seeds: list[int], topk: int, topp: float) -> None:
    """The top-k tensor is an index: topk + 1 values survive. Rows past the list take seed 0."""
    probs = _probabilities(3, 40, topk)
    inputs = [probs, torch.full((3, 1), topk, dtype=torch.int32), torch.full((3, 1), topp).half()]
    index, prob = run(OP, inputs, {"topkToppSamplingType": 1, "randSeeds": seeds}).outputs
    if len(seeds) == 1:
        numbers = uniform(seeds, 3)[0].tolist()
    else:
        numbers = [float(uniform([seed], 1)) for seed in (seeds + [0] * 3)[:3]]
    for b in range(3):
        place, _, _ = _drawn(probs[b].tolist(), topp, numbers[b], topk, below=True)
        assert int(index[b]) == _token(probs[b], place)
        assert prob[b] == probs[b, index[b]]


def test_multinomial_logprobs_take_given_numbers(run: Run) -> None:
    probs = _probabilities(3, 40, 7)
    numbers = torch.tensor([[0.1], [0.5], [0.95]])
    topk = torch.tensor([[5], [10], [39]], dtype=torch.int32)
    topp = torch.tensor([[0.5], [0.9], [0.7]]).half()
    params = {"topkToppSamplingType": 3, "logProbsSize": 8}
    index, prob, logs = run(OP, [probs, topk, topp, numbers], params).outputs
    for b in range(3):
        place, sums, selected = _drawn(
            probs[b].tolist(), float(topp[b]), float(numbers[b]), int(topk[b]), below=True
        )
        assert int(index[b]) == _token(probs[b], place)
        assert prob[b] == probs[b, index[b]]
        order = sorted(probs[b].tolist(), reverse=True)
        for n in range(8):
            expected = math.log(order[n] / sums[selected]) if n <= selected else -9999.0
            assert float(logs[b, n]) == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("kind", [2, 4])
def test_exponential_noise_divides_the_kept_values(run: Run, kind: int) -> None:
    probs = _probabilities(4, 32, 3)
    noise = (torch.rand(4, 32) + 0.1).half()
    topk = torch.tensor([[3], [31], [40], [8]], dtype=torch.int32)
    topp = torch.tensor([[0.9], [0.5], [0.95], [0.0]]).half()
    params = {"topkToppSamplingType": kind, "logProbsSize": 6}
    outputs = run(OP, [probs, topk, topp, noise], params).outputs
    for b in range(4):
        order = sorted(probs[b].tolist(), reverse=True)
        k, p = int(topk[b]), float(topp[b])
        kept = [v if k >= 32 or v >= order[k] else 0.0 for v in order]
        sums = _sums(kept)
        ratios = [
            np.float16(0.0 if s > p else v) / np.float16(n)
            for v, s, n in zip(kept, sums, noise[b].tolist(), strict=True)
        ]
        place = ratios.index(max(ratios))
        assert int(outputs[0][b]) == _token(probs[b], place)
        assert outputs[1][b] == probs[b, outputs[0][b]]
        if kind == 4:
            shown = [i for i, s in enumerate(sums) if i == 0 or (s <= p and kept[i] > 0)]
            last = len(shown) - 1
            for n in range(6):
                expected = math.log(order[n] / sums[last]) if n <= last else -9999.0
                assert float(outputs[2][b, n]) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    # Where even the first value exceeds top-p everything is zero and the first wins.
    assert int(outputs[0][3]) == int(probs[3].argmax())


def test_large_vocabularies_are_walked_by_blocks_per_row(run: Run) -> None:
    """Each row has its own block; the sum at a block's end bounds a small random number."""
    vocabulary = 40000
    probs = torch.full((2, vocabulary), 2.0**-14).half()
    numbers = torch.tensor([[0.1], [0.9]])
    topk = torch.full((2, 1), vocabulary - 1, dtype=torch.int32)
    # Sums reach 1 at the end of the first block and 2 at the end of the second.
    topp = torch.full((2, 1), 2.0).half()
    params = {"topkToppSamplingType": 3, "logProbsSize": 0}
    index, _, logs = run(OP, [probs, topk, topp, numbers], params).outputs
    assert logs.shape == (2, 0)
    for b in range(2):
        place, _, _ = _drawn(probs[b].tolist(), 2.0, float(numbers[b]), vocabulary - 1, below=True)
        assert int(index[b]) == place
    assert int(index[0]) < 0.11 * 16384


@pytest.mark.parametrize(("kind", "expected"), [(0, 1), (1, 0)])
def test_a_sum_equal_to_the_bound_counts_for_single_topk_only(
    run: Run, monkeypatch: pytest.MonkeyPatch, kind: int, expected: int
) -> None:
    def half(seeds: list[int], count: int) -> Tensor:
        return torch.full((len(seeds), count), 0.5)

    monkeypatch.setattr(topk_topp_sampling, "uniform", half)
    probs, topp = torch.full((1, 4), 0.25).half(), torch.tensor([[0.6]]).half()
    topk = [] if kind == 0 else [torch.tensor([[3]], dtype=torch.int32)]
    params = {"topkToppSamplingType": kind, "topk": 4, "randSeeds": [1]}
    # Sums are 0.25, 0.5, 0.75, 1; the second is selected; the bound is 0.25.
    assert int(run(OP, [probs, *topk, topp], params).outputs[0]) == expected


def test_frequencies_follow_the_probabilities(run: Run) -> None:
    probs = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).half().expand(4000, 4).contiguous()
    params = {"topkToppSamplingType": 0, "topk": 4, "randSeed": 11}
    index, _ = run(OP, [probs, torch.tensor([[1.0]]).half()], params).outputs
    counts = torch.bincount(index.reshape(-1).long(), minlength=4) / 4000
    # Sums below 1.0 are 0.5, 0.75, 0.875; the last of them bounds the draw.
    expected = torch.tensor([0.5, 0.25, 0.125, 0.0]) / 0.875
    torch.testing.assert_close(counts, expected, rtol=0, atol=0.03)


def _desc(*shape: int, dtype: DType = DType.FLOAT16) -> TensorDesc:
    return TensorDesc(dtype, shape)


@pytest.mark.parametrize(
    ("descs", "params", "text"),
    [
        ([_desc(4, 32), _desc(4, 1)], {"topk": 100}, "1 to 32"),
        ([_desc(4, 32), _desc(3, 1)], {"topk": 5}, "input 1"),
        ([_desc(4, 32), _desc(4)], {"topk": 5}, "2 dimensions"),
        ([_desc(4, 32), _desc(4, 1)], {"topkToppSamplingType": 1}, "takes 3"),
        ([_desc(4, 32), _desc(4, 1)], {"topkToppSamplingType": -1}, "0 SINGLE_TOPK"),
    ],
)
def test_sampling_says_what_it_refuses(
    descs: list[TensorDesc], params: dict[str, Any], text: str
) -> None:
    with pytest.raises(OperationError, match=text):
        golden_ops.get(OP).infer_shape(descs, params)
