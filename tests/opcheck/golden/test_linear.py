"""Linear against sums of products written out, one output element at a time."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ait_llm.core import FORMAT_FRACTAL_NZ, DType, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.opcheck.golden import DEVICE, GOLDEN, Arithmetic, Result, golden_ops
from ait_llm.opcheck.golden.layout import nd_to_nz, nz_to_nd, retag_nz

Run = Callable[..., Result]
AssertClose = Callable[..., None]
OP = "LinearOperation"


def _product(x: Tensor, w: Tensor) -> Tensor:
    """``[M, K] . [K, N]`` with exactly rounded float64 sums."""
    left, right = x.double().tolist(), w.double().t().tolist()
    return torch.tensor(
        [
            [math.fsum(a * b for a, b in zip(row, col, strict=True)) for col in right]
            for row in left
        ],
        dtype=torch.float64,
    )


def _params(**own: Any) -> dict[str, Any]:
    return {"transposeB": False, "hasBias": False, **own}


@pytest.mark.parametrize("arithmetic", [GOLDEN, DEVICE], ids=["golden", "device"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_products_in_every_orientation(
    run: Run,
    assert_close: AssertClose,
    dtype: torch.dtype,
    transpose_a: bool,
    transpose_b: bool,
    arithmetic: Arithmetic,
) -> None:
    x, w = torch.randn(5, 12).to(dtype), torch.randn(12, 7).to(dtype)
    expected = _product(x, w)
    given_x = x.t().contiguous() if transpose_a else x
    given_w = w.t().contiguous() if transpose_b else w
    params = _params(transposeA=transpose_a, transposeB=transpose_b)
    (y,) = run(OP, [given_x, given_w], params, arithmetic).outputs
    device_float32 = dtype is torch.float32 and arithmetic is DEVICE
    assert_close(y, expected, floor=20.0 if device_float32 else 0.05)


def test_defaults_are_transposed_weight_and_bias(run: Run, assert_close: AssertClose) -> None:
    """Disagreement 14: the library's default has a bias."""
    x, w, bias = torch.randn(3, 8).half(), torch.randn(4, 8).half(), torch.randn(4).half()
    (y,) = run(OP, [x, w, bias]).outputs
    assert_close(y, _product(x, w.t()) + bias.double(), floor=0.05)


@pytest.mark.parametrize("batched_weight", [False, True])
@pytest.mark.parametrize("bias_dtype", [torch.float16, torch.float32])
def test_batches_pair_with_weight_and_bias(
    run: Run, assert_close: AssertClose, batched_weight: bool, bias_dtype: torch.dtype
) -> None:
    x = torch.randn(3, 2, 8).half()
    w = torch.randn(*([3] if batched_weight else []), 8, 4).half()
    bias = torch.randn(*([3] if batched_weight else [1]), 4).to(bias_dtype)
    (y,) = run(OP, [x, w, bias], _params(hasBias=True)).outputs
    for b in range(3):
        weight, row = (w[b], bias[b]) if batched_weight else (w, bias[0])
        assert_close(y[b], _product(x[b], weight) + row.double(), floor=0.05)


def test_float_bias_is_added_before_rounding(run: Run) -> None:
    x, w = torch.ones(1, 16).bfloat16(), torch.full((16, 16), 16.0).bfloat16()
    wide = torch.full((16,), 0.75)
    (y,) = run(OP, [x, w, wide], _params(hasBias=True)).outputs
    assert float(y[0, 0]) == float(torch.tensor(256.75).bfloat16())


def test_bfloat16_bias_is_added_to_the_rounded_product(run: Run) -> None:
    x = torch.tensor([[1.0] + [0.0] * 15]).bfloat16()
    w = torch.zeros(16, 16).bfloat16()
    w[0, 0] = 256.0
    x[0, 1], w[1, 0] = 1.0, 1.0
    bias = torch.zeros(16).bfloat16()
    bias[0] = 1.0
    (y,) = run(OP, [x, w, bias], _params(hasBias=True)).outputs
    # 257 rounds to 256, plus 1 rounds to 256 again; 258 would be exact in one rounding.
    assert float(y[0, 0]) == 256.0


def test_accumulation_is_in_place_and_float32(run: Run, assert_close: AssertClose) -> None:
    x, w, accum = torch.randn(4, 8).half(), torch.randn(8, 6).half(), torch.randn(4, 6)
    result = run(OP, [x, w, accum], _params(enAccum=True))
    assert result.outputs[0].dtype == torch.float32
    assert_close(result.outputs[0], _product(x, w) + accum.double(), floor=10.0)
    assert torch.equal(result.updated_inputs[2], result.outputs[0])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_einsum_pairs_the_middle_dimension(
    run: Run, assert_close: AssertClose, transposed: bool, with_bias: bool
) -> None:
    x, w = torch.randn(5, 2, 8).half(), torch.randn(2, 8, 4).half()
    bias = torch.randn(2, 4).half()
    inputs = [
        x.permute(2, 1, 0).contiguous() if transposed else x,
        w.transpose(1, 2).contiguous() if transposed else w,
        *([bias] if with_bias else []),
    ]
    params = _params(matmulType=1, transposeA=transposed, transposeB=transposed, hasBias=with_bias)
    (y,) = run(OP, inputs, params).outputs
    for b in range(2):
        extra = bias[b].double() if with_bias else 0
        assert_close(y[:, b], _product(x[:, b], w[b]) + extra, floor=0.05)


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([torch.float16, torch.int8]))
def test_nz_blocks_hold_the_matrix(rows: int, columns: int, dtype: torch.dtype) -> None:
    block = 32 if dtype == torch.int8 else 16
    matrix = torch.randint(-100, 100, (rows, columns)).to(dtype)
    blocks = nd_to_nz(matrix)
    assert blocks.shape == (-(-columns // block), -(-rows // 16) * 16, block)
    for r in range(rows):
        for c in range(columns):
            assert blocks[c // block, r, c % block] == matrix[r, c]
    assert torch.equal(nz_to_nd(blocks)[:rows, :columns], matrix)
    assert int(blocks.count_nonzero()) == int(matrix.count_nonzero())


@pytest.mark.parametrize("transpose_b", [False, True])
def test_nz_weights_give_the_same_product(run: Run, transpose_b: bool) -> None:
    x, w = torch.randn(4, 32).half(), torch.randn(32, 48).half()
    stored = w.t().contiguous() if transpose_b else w
    params = _params(transposeB=transpose_b)
    (plain,) = run(OP, [x, stored], params).outputs
    blocks = nd_to_nz(stored.unsqueeze(0))
    (blocked,) = run(OP, [x, blocks], params, formats={1: FORMAT_FRACTAL_NZ}).outputs
    assert torch.equal(plain, blocked)
    flat = retag_nz(blocks.reshape(stored.shape))
    assert torch.equal(flat, blocks)


def test_nz_weight_padding_is_not_summed(run: Run) -> None:
    x, w = torch.randn(4, 20).half(), torch.randn(16, 20).half()
    blocks = nd_to_nz(w.unsqueeze(0))
    blocks[:, 1, :, 4:] = float("nan")
    (y,) = run(OP, [x, blocks], _params(transposeB=True), infer=False).outputs
    (plain,) = run(OP, [x, w], _params(transposeB=True)).outputs
    assert torch.equal(y, plain)


def _int8(*shape: int) -> Tensor:
    return torch.randint(-128, 128, shape, dtype=torch.int32).to(torch.int8)


def _bits(scale: Tensor) -> Tensor:
    return torch.tensor([struct.unpack("<I", struct.pack("<f", v))[0] for v in scale.tolist()])


def _upper_19_bits(scale: Tensor) -> Tensor:
    """What the matrix unit reads of a float32 scale: sign, exponent and ten bits."""
    fractions = (math.frexp(value) for value in scale.tolist())
    return torch.tensor([math.floor(m * 2**11) / 2**11 * 2**e for m, e in fractions])


@pytest.mark.parametrize("inner", [16, 3000])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("out", [DType.FLOAT16, DType.BFLOAT16])
def test_int8_products_are_exact_before_the_scale(
    run: Run, assert_close: AssertClose, out: DType, with_bias: bool, inner: int
) -> None:
    """Disagreements 15 and 40: dequantised without a bias too; sums exact beyond 2**24."""
    x, w = _int8(3, inner), _int8(5, inner)
    if inner > 1040:
        x[0], w[0] = 127, 127
    scale = torch.rand(5) * 1e-5 + 1e-6
    bias = torch.randint(-1000, 1000, (5,), dtype=torch.int32)
    deq = scale if out is DType.BFLOAT16 else _bits(scale)
    inputs = [x, w, *([bias] if with_bias else []), deq]
    params = {"hasBias": with_bias, "outDataType": out.code, "quantMode": 1}
    (y,) = run(OP, inputs, params).outputs
    exact = [
        [sum(a * b for a, b in zip(r, c, strict=True)) for c in w.tolist()] for r in x.tolist()
    ]
    total = torch.tensor(exact, dtype=torch.float64) + (bias.double() if with_bias else 0)
    used = scale if out is DType.BFLOAT16 else _upper_19_bits(scale)
    assert_close(y, total * used.double(), floor=0.001)


def test_int8_sums_beyond_float32_keep_their_last_bit(run: Run) -> None:
    x = torch.full((1, 3001), 127, dtype=torch.int8)
    bias = torch.tensor([-(127 * 127 * 3001) + 1], dtype=torch.int32)
    params = {"outDataType": 27, "quantMode": 1}
    assert float(run(OP, [x, x, bias, torch.ones(1)], params).outputs[0]) == 1.0


def test_per_token_scales_multiply_rows(run: Run, assert_close: AssertClose) -> None:
    x, w = _int8(3, 32), _int8(5, 32)
    scale, token = torch.rand(5) * 1e-4, torch.rand(3) + 0.5
    params = {"hasBias": False, "outDataType": 1, "quantMode": 2}
    (y,) = run(OP, [x, w, scale, token], params).outputs
    expected = _product(x, w.t()) * scale.double() * token.double().unsqueeze(1)
    assert_close(y, expected, floor=0.05)


def test_per_token_scales_are_shared_by_batches(run: Run, assert_close: AssertClose) -> None:
    x, w = _int8(2, 3, 32), _int8(2, 5, 32)
    scale, token = torch.rand(5) * 1e-4, torch.rand(3) + 0.5
    params = {"hasBias": False, "outDataType": 1, "quantMode": 2}
    (y,) = run(OP, [x, w, scale, token], params).outputs
    product = torch.stack([_product(a, b.t()) for a, b in zip(x, w, strict=True)])
    expected = product * scale.double() * token.double().unsqueeze(1)
    assert_close(y, expected, floor=0.05)


@given(st.floats(-4, 4, width=16))
def test_products_are_linear_in_x(run: Run, factor: float) -> None:
    x, w = torch.linspace(-1, 1, 64).reshape(4, 16), torch.linspace(2, -1, 48).reshape(16, 3)
    (base,) = run(OP, [x, w], _params()).outputs
    (scaled,) = run(OP, [(x.double() * factor).float(), w], _params()).outputs
    torch.testing.assert_close(scaled, base * factor, rtol=1e-5, atol=1e-5)


def _desc(*shape: int, dtype: DType = DType.FLOAT16) -> TensorDesc:
    return TensorDesc(dtype, shape)


@pytest.mark.parametrize(
    ("descs", "params", "text"),
    [
        ([_desc(4, 32), _desc(16, 64)], _params(), "summed dimension"),
        ([_desc(4, 32), _desc(2, 32, 8)], _params(), "no batch"),
        ([_desc(3, 4, 32), _desc(2, 32, 8)], _params(), "batch of 3"),
        ([_desc(4, 32), _desc(32, 8), _desc(9)], _params(hasBias=True), "input 2"),
        ([_desc(4, 32), _desc(32, 8)], _params(hasBias=True), "2 inputs"),
        ([_desc(4, 32), _desc(32, 8)], _params(outDataType=3), "outDataType is int32"),
        ([_desc(4, 32), _desc(32, 8)], _params(enAccum=True, hasBias=True), "excludes"),
        ([_desc(4), _desc(32, 8)], _params(), "input 0"),
        ([_desc(4, 32), _desc(32, 8)], {"transposeB": "yes"}, "give true or false"),
    ],
)
def test_linear_says_what_it_refuses(
    descs: list[TensorDesc], params: dict[str, Any], text: str
) -> None:
    with pytest.raises(OperationError, match=text):
        golden_ops.get(OP).infer_shape(descs, params)
