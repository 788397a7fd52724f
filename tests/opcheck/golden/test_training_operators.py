"""Training operators, fused quantisation and Multinomial."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.opcheck.golden import Result, golden_ops
from ait_llm.opcheck.golden.glibc_random import uniform

Run = Callable[..., Result]
AssertClose = Callable[..., None]


def test_rope_grad_is_what_the_kernel_computes(run: Run, assert_close: AssertClose) -> None:
    """Disagreements 27 and 28: no swap of halves; lengths under the key c_qSeqLen."""
    lengths = [3, 2]
    query, key = torch.randn(5, 256).half(), torch.randn(5, 128).half()
    cos, sin = torch.randn(4, 128).half(), torch.randn(4, 128).half()
    outputs = run("RopeGradOperation", [query, key, cos, sin], {"c_qSeqLen": lengths}).outputs
    rows = [0, 1, 2, 0, 1]
    for given, got in zip((query, key), outputs, strict=True):
        expected = torch.empty(given.shape, dtype=torch.float64)
        for t, row in enumerate(rows):
            for column in range(given.shape[1]):
                d = column % 128
                shifted = float(sin[row, d + 64]) if d < 64 else -float(sin[row, d - 64])
                expected[t, column] = float(given[t, column]) * (float(cos[row, d]) + shifted)
        assert_close(got, expected, floor=0.05)


SIZES = {"headNum": 2, "qSeqLen": [3, 5]}


def test_fast_softmax_treats_each_square(run: Run, assert_close: AssertClose) -> None:
    x = (torch.randn(2 * (9 + 25)) * 3).half()
    (y,) = run("FastSoftMaxOperation", [x], SIZES).outputs
    first, second = x[:18].reshape(6, 3), x[18:].reshape(10, 5)
    expected = [part.double().softmax(-1).reshape(-1) for part in (first, second)]
    assert_close(y, torch.cat(expected))


def test_fast_softmax_gradient_is_the_derivative(run: Run, assert_close: AssertClose) -> None:
    """Disagreement 32: computed from the inputs."""
    x = torch.randn(68, dtype=torch.float64, requires_grad=True)
    parts = [x[:18].reshape(6, 3), x[18:].reshape(10, 5)]
    y = torch.cat([part.softmax(-1).reshape(-1) for part in parts])
    rounded = y.detach().half()
    dy = torch.randn(68).half()
    (dx,) = run("FastSoftMaxGradOperation", [rounded, dy], SIZES).outputs
    y.backward(dy.double())
    assert x.grad is not None
    torch.testing.assert_close(dx.double(), x.grad, rtol=4e-3, atol=2e-3)
    rows = [r.double().reshape(-1, n) for r, n in ((rounded[:18], 3), (rounded[18:], 5))]
    grads = [g.double().reshape(-1, n) for g, n in ((dy[:18], 3), (dy[18:], 5))]
    exact = [
        (p * (g - (p * g).sum(1, keepdim=True))).reshape(-1)
        for p, g in zip(rows, grads, strict=True)
    ]
    assert_close(dx, torch.cat(exact), floor=0.05)


def test_attention_masks_are_cut_and_repeated(run: Run) -> None:
    mask = torch.randn(2, 1, 4, 4).half()
    params = {"headNum": 3, "seqLen": [2, 4]}
    (y,) = run("GenAttentionMaskOperation", [mask], params).outputs
    expected = mask[0, 0, :2, :2].reshape(-1).tolist() * 3 + mask[1, 0].reshape(-1).tolist() * 3
    assert y.tolist() == expected


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_strided_products_of_several_sizes(
    run: Run, assert_close: AssertClose, transpose_a: bool, transpose_b: bool
) -> None:
    """Disagreement 29: keys as dumped. Heads lie side by side in each row."""
    heads, sizes = 2, [(3, 2, 4), (1, 3, 2)]
    m, n, k = (list(column) for column in zip(*sizes, strict=True))
    rows_a = [a if transpose_a else c for a, _, c in sizes]
    rows_b = [c if transpose_b else b for _, b, c in sizes]
    params = {
        "batch": 2,
        "headNum": heads,
        "transposeA": transpose_a,
        "transposeB": transpose_b,
        "m": m,
        "n": n,
        "k": k,
        "lda": [heads * c for c in rows_a],
        "ldb": [heads * c for c in rows_b],
        "ldc": [heads * b for b in n],
        "strideA": rows_a,
        "strideB": rows_b,
        "strideC": n,
    }
    a = torch.randn(heads * sum(i * p for i, _, p in sizes)).half()
    b = torch.randn(heads * sum(j * p for _, j, p in sizes)).half()
    (y,) = run("StridedBatchMatmulOperation", [a, b], params).outputs
    expected = torch.zeros(y.shape, dtype=torch.float64)
    base_a = base_b = base_c = 0
    for batch, (rows, columns, inner) in enumerate(sizes):
        for head in range(heads):
            for i in range(rows):
                for j in range(columns):
                    total = 0.0
                    for p in range(inner):
                        at_a, col_a = (p, i) if transpose_a else (i, p)
                        at_b, col_b = (j, p) if transpose_b else (p, j)
                        left = a[base_a + rows_a[batch] * (head + heads * at_a) + col_a]
                        right = b[base_b + rows_b[batch] * (head + heads * at_b) + col_b]
                        total += float(left) * float(right)
                    expected[base_c + columns * (head + heads * i) + j] = total
        base_a += rows * inner * heads
        base_b += columns * inner * heads
        base_c += rows * columns * heads
    assert_close(y, expected, floor=0.05)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_swiglu_quant_scales_each_row(run: Run, dtype: torch.dtype) -> None:
    x = torch.cat([torch.randn(4, 64) * 2, torch.zeros(1, 64)]).to(dtype)
    q, scale = run("SwigluQuantOperation", [x], {"quantType": 0}).outputs
    for row in range(5):
        values = x[row].double().tolist()
        product = [
            a / (1 + math.exp(-a)) * b for a, b in zip(values[:32], values[32:], strict=True)
        ]
        largest = max(map(abs, product))
        assert float(scale[row]) == pytest.approx(largest / 127, rel=1e-5)
        wanted = [round(float(np.float16(v * 127 / largest))) if largest else 0 for v in product]
        difference = (q[row].int() - torch.tensor(wanted)).abs()
        assert int(difference.max()) <= 1
        assert int(difference.sum()) <= 1


def test_multinomial_takes_the_first_sum_that_reaches(run: Run) -> None:
    """Disagreement 44; all rows share the random numbers."""
    probs = (torch.randn(5, 50) * 2).softmax(-1).half()
    params = {"numSamples": 6, "randSeed": 77}
    (index,) = run("MultinomialOperation", [probs], params).outputs
    numbers = uniform([77], 6)[0].tolist()
    for row in range(5):
        sums = [float(np.float16(v)) for v in np.cumsum(probs[row].float().numpy())]
        for sample, number in enumerate(numbers):
            reached = [i for i, s in enumerate(sums) if s >= number]
            assert int(index[row, sample]) == (reached[0] if reached else 49)


@pytest.mark.parametrize(
    ("op", "shapes", "params", "text"),
    [
        ("FastSoftMaxOperation", [(67,)], SIZES, "input 0"),
        ("FastSoftMaxOperation", [(68,)], {"headNum": 2}, "positive"),
        ("GenAttentionMaskOperation", [(2, 1, 4, 4)], {"headNum": 1, "seqLen": [5, 1]}, "fit"),
        ("RopeGradOperation", [(5, 128)] * 2 + [(2, 128)] * 2, {"c_qSeqLen": [3, 2]}, "2 rows"),
        ("StridedBatchMatmulOperation", [(4,), (4,)], {"batch": 1}, "one entry per"),
        ("SwigluQuantOperation", [(4, 8)], {"quantType": 1}, "per token"),
        ("MultinomialOperation", [(4, 8)], {"numSamples": 65}, "1 to 64"),
    ],
)
def test_training_operators_say_what_they_refuse(
    op: str, shapes: list[tuple[int, ...]], params: dict[str, object], text: str
) -> None:
    descs = [TensorDesc(DType.FLOAT16, shape) for shape in shapes]
    with pytest.raises(OperationError, match=text):
        golden_ops.get(op).infer_shape(descs, params)
