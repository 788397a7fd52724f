"""Elewise, Activation and Softmax against formulas evaluated one number at a time."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ait_llm.opcheck.golden import DEVICE, GOLDEN, Arithmetic, Result

Run = Callable[..., Result]
AssertClose = Callable[..., None]

ELEWISE = "ElewiseOperation"
ACTIVATION = "ActivationOperation"
HALVES = [torch.float16, torch.bfloat16]


def _each(function: Callable[..., float], *tensors: Tensor) -> Tensor:
    """A function of floats applied element by element in float64."""
    shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
    columns = [tensor.expand(shape).reshape(-1).double().tolist() for tensor in tensors]
    values = [function(*row) for row in zip(*columns, strict=True)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x > -700 else 0.0


@pytest.mark.parametrize("arithmetic", [GOLDEN, DEVICE], ids=["golden", "device"])
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("kind", "function"),
    [
        (3, math.cos),
        (4, math.sin),
        (20, math.tanh),
        (5, operator.neg),
        (2, lambda x: x * 0.3),
    ],
)
def test_unary_functions(
    run: Run,
    assert_close: AssertClose,
    kind: int,
    function: Callable[[float], float],
    dtype: torch.dtype,
    arithmetic: Arithmetic,
) -> None:
    x = (torch.randn(4, 32) * 3).to(dtype)
    params = {"elewiseType": kind, "mulsParam": {"varAttr": 0.3}}
    (y,) = run(ELEWISE, [x], params, arithmetic).outputs
    assert y.dtype == dtype
    assert_close(y, _each(function, x))


def test_golden_float32_is_computed_in_float64(run: Run) -> None:
    x = torch.randn(1000).reshape(1, -1)
    params = {"elewiseType": 4}
    (golden,) = run(ELEWISE, [x], params, GOLDEN).outputs
    assert torch.equal(golden, torch.sin(x.double()).float())
    wide = run(ELEWISE, [x], params, Arithmetic(round_output=False), infer=False).outputs[0]
    assert wide.dtype == torch.float64


@pytest.mark.parametrize("shapes", [((4, 32), (4, 32)), ((4, 32), (1, 32)), ((4, 1), (3, 4, 32))])
@pytest.mark.parametrize(
    ("kind", "function"),
    [(8, operator.add), (15, operator.sub), (9, operator.mul), (10, operator.truediv)],
)
def test_arithmetic_broadcasts(
    run: Run,
    assert_close: AssertClose,
    kind: int,
    function: Callable[[float, float], float],
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    x, y = torch.randn(shapes[0]).half(), (torch.rand(shapes[1]) + 0.5).half()
    (z,) = run(ELEWISE, [x, y], {"elewiseType": kind}).outputs
    assert_close(z, _each(function, x, y))


def test_integer_sums_are_exact(run: Run) -> None:
    x = torch.tensor([[2**53 + 1, -5]])
    y = torch.tensor([[1, 2**62]])
    assert run(ELEWISE, [x, y], {"elewiseType": 8}).outputs[0].tolist() == [[2**53 + 2, 2**62 - 5]]
    assert run(ELEWISE, [x, y], {"elewiseType": 15}).outputs[0].tolist() == [[2**53, -5 - 2**62]]


def test_half_products_overflow_to_infinity(run: Run) -> None:
    """Disagreement 10: not clipped."""
    x = torch.tensor([[60000.0, -60000.0, 2.0]]).half()
    (y,) = run(ELEWISE, [x, x.abs()], {"elewiseType": 9}).outputs
    assert y.tolist() == [[math.inf, -math.inf, 4.0]]


@pytest.mark.parametrize(
    ("kind", "expected"), [(13, [1, 0, 0, 0]), (14, [0, 1, 0, 0]), (16, [0, 0, 1, 0])]
)
def test_comparisons_give_int8(run: Run, kind: int, expected: list[int]) -> None:
    x = torch.tensor([1.0, 2.0, 3.0, math.nan]).half()
    y = torch.tensor([2.0, 1.0, 3.0, math.nan]).half()
    (z,) = run(ELEWISE, [x, y], {"elewiseType": kind}).outputs
    assert z.dtype == torch.int8
    assert z.tolist() == expected


def test_logic_takes_any_nonzero_as_true(run: Run) -> None:
    x = torch.tensor([0, 0, 2, -1], dtype=torch.int8)
    y = torch.tensor([0, 3, 0, 7], dtype=torch.int8)
    assert run(ELEWISE, [x, y], {"elewiseType": 11}).outputs[0].tolist() == [0, 0, 0, 1]
    assert run(ELEWISE, [x, y], {"elewiseType": 12}).outputs[0].tolist() == [0, 1, 1, 1]
    assert run(ELEWISE, [x], {"elewiseType": 7}).outputs[0].tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (torch.float16, 3, torch.int32),
        (torch.float32, -1, torch.float16),
        (torch.float16, -1, torch.float32),
        (torch.bfloat16, 27, torch.bfloat16),
        (torch.int64, -1, torch.float32),
        (torch.float32, 9, torch.int64),
    ],
)
def test_cast_truncates_to_integers_and_has_defaults(
    run: Run, source: torch.dtype, target: int, expected: torch.dtype
) -> None:
    x = torch.tensor([1.75, -1.75, 2.0, -0.5]).to(source)
    (y,) = run(ELEWISE, [x], {"elewiseType": 1, "outTensorType": target}).outputs
    assert y.dtype == expected
    whole = not expected.is_floating_point
    assert y.tolist() == [math.trunc(v) if whole else v for v in x.tolist()]


# ---- activations ----------------------------------------------------------------------------

FORMULAS: dict[int, Callable[[float], float]] = {
    1: lambda x: max(x, 0.0),
    2: lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    3: lambda x: x * math.exp(0.851 * (x - abs(x))) / (1 + math.exp(-1.702 * abs(x))),
    4: lambda x: x / (1 + math.exp(-1.5 * x)),
    8: _sigmoid,
    9: lambda x: x * _sigmoid(1.702 * abs(x)) * math.exp(0.851 * (x - abs(x))),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kind", FORMULAS)
def test_activation_formulas(
    run: Run, assert_close: AssertClose, kind: int, dtype: torch.dtype
) -> None:
    """Disagreement 38: bfloat16 stays bfloat16."""
    x = torch.cat([torch.randn(60) * 3, torch.tensor([0.0, -0.0, 20.0, -20.0])]).to(dtype)
    params = {"activationType": kind, "scale": 1.5, "dim": -1}
    (y,) = run(ACTIVATION, [x], params, infer=kind != 1).outputs
    assert y.dtype == dtype
    assert_close(y, _each(FORMULAS[kind], x))


def test_gelu_in_both_modes_equals_torch(run: Run, assert_close: AssertClose) -> None:
    x = torch.linspace(-6, 6, 97)
    for mode, name in ((0, "tanh"), (1, "none")):
        params = {"activationType": 2, "geluMode": mode}
        (y,) = run(ACTIVATION, [x], params).outputs
        expected = torch.nn.functional.gelu(x.double(), approximate=name)
        assert_close(y, expected, floor=1.0)


def test_gelu_modes_differ_by_the_known_amount(run: Run) -> None:
    x = torch.linspace(-4, 4, 8001)
    erf = run(ACTIVATION, [x], {"activationType": 2, "geluMode": 1}).outputs[0]
    tanh = run(ACTIVATION, [x], {"activationType": 2}).outputs[0]
    difference = (erf - tanh).abs()
    assert float(difference.max()) == pytest.approx(4.73e-4, rel=0.01)
    assert abs(abs(float(x[difference.argmax()])) - 2.7) < 0.1


def test_log_of_non_positive_numbers(run: Run, assert_close: AssertClose) -> None:
    x = torch.tensor([1.0, 0.0, -1.0, 10.0]).half()
    (y,) = run(ACTIVATION, [x], {"activationType": 5}).outputs
    assert_close(y, [0.0, -math.inf, math.nan, math.log(10)])


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_swiglu_gates_one_half_with_the_other(
    run: Run, assert_close: AssertClose, axis: int
) -> None:
    x = (torch.randn(4, 6, 8) * 2).bfloat16()
    (y,) = run(ACTIVATION, [x], {"activationType": 6, "dim": axis}).outputs
    gate, value = x.chunk(2, axis)
    assert_close(y, _each(lambda a, b: a * _sigmoid(a) * b, gate, value))


@pytest.mark.parametrize("axis", [-1, 1])
def test_swiglu_backward_is_the_derivative(run: Run, assert_close: AssertClose, axis: int) -> None:
    """Disagreement 39: dy is input 0, x is input 1."""
    x = (torch.randn(3, 4, 8) * 2).half()
    shape = list(x.shape)
    shape[axis] //= 2
    dy = torch.randn(shape).half()
    leaf = x.double().requires_grad_()
    gate, value = leaf.chunk(2, axis)
    (torch.nn.functional.silu(gate) * value).backward(dy.double())
    (dx,) = run(ACTIVATION, [dy, x], {"activationType": 7, "dim": axis}).outputs
    assert_close(dx, leaf.grad)


def test_swiglu_of_an_odd_length_drops_the_last_entry(run: Run) -> None:
    x = torch.randn(2, 7).half()
    odd = run(ACTIVATION, [x], {"activationType": 6}).outputs[0]
    even = run(ACTIVATION, [x[:, :6].contiguous()], {"activationType": 6}).outputs[0]
    assert torch.equal(odd, even)


# ---- softmax --------------------------------------------------------------------------------


@pytest.mark.parametrize(("axes", "first", "last"), [([-1], 2, 2), ([1, 2], 1, 2), ([0], 0, 0)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_softmax_normalises_over_all_axes_together(
    run: Run,
    assert_close: AssertClose,
    axes: list[int],
    first: int,
    last: int,
    dtype: torch.dtype,
) -> None:
    """Disagreement 37."""
    x = (torch.randn(3, 4, 5) * 4).to(dtype)
    (y,) = run("SoftmaxOperation", [x], {"axes": axes}).outputs
    expected = torch.empty(x.shape, dtype=torch.float64)
    kept = [range(n) if not first <= d <= last else [slice(None)] for d, n in enumerate(x.shape)]
    for place in itertools.product(*kept):
        part = x[place].double()
        largest = float(part.max())
        powers = _each(lambda v, m=largest: math.exp(v - m), part)
        expected[place] = powers / powers.sum()
    assert_close(y, expected)


@given(st.integers(-60000, 60000))
def test_softmax_does_not_see_a_shift(run: Run, shift: int) -> None:
    x = torch.tensor([[0.0, 1.0, 2.0, -3.0]])
    (base,) = run("SoftmaxOperation", [x], {"axes": [-1]}).outputs
    (moved,) = run("SoftmaxOperation", [x + shift], {"axes": [-1]}).outputs
    torch.testing.assert_close(moved, base, rtol=1e-6, atol=0)
