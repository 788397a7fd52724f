"""Kernels without a dump: torch operators, plain functions, results that are given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ait_llm.core.comparison import Verdict
from ait_llm.errors import UnknownNameError, UsageError
from ait_llm.opcheck import KernelArithmetic, Result, check, declare, declared, golden_op
from ait_llm.opcheck.golden import golden_ops

X = torch.linspace(1, 2, 64).reshape(4, 16).half()
WEIGHT = torch.linspace(2, 1, 32 * 16).reshape(32, 16).half()


def matmul(x: Tensor, weight: Tensor, **_: Any) -> Tensor:
    return (x.float() @ weight.float().T).half()


def test_a_registered_golden_judges_given_results() -> None:
    params = {"hasBias": False, "transposeB": True}
    right = matmul(X, WEIGHT)
    assert check("LinearOperation", [X, WEIGHT], params, outputs=right)
    assert check("Linear", [X, WEIGHT], params, outputs=[right])
    found = check("Linear", [X, WEIGHT], params, outputs=right * 1.01)
    assert found.verdict is Verdict.FAIL
    assert "LinearOperation outtensor0: FAIL [contract error<=bound of its arithmetic]" in str(
        found
    )


def test_a_callable_is_called_with_inputs_and_parameters() -> None:
    params = {"hasBias": False, "transposeB": True}
    assert check("Linear", [X, WEIGHT], params, outputs=matmul)


@pytest.fixture
def scale_op() -> Iterator[Any]:
    """``checks::scale`` as a torch operator, with a golden operator of that name."""
    library = torch.library.Library("checks", "DEF")
    library.define("scale(Tensor x, float by) -> Tensor")
    library.impl("scale", lambda x, by: (x.float() * by).to(x.dtype), "CPU")

    @golden_op("checks::scale", infer_shape=lambda descs, params: (descs[0],))
    def scale(inputs: Any, params: Any, arithmetic: Any) -> Result:
        return Result((arithmetic.round(arithmetic.widen(inputs[0]) * params["by"], X.dtype),))

    yield torch.ops.checks.scale
    golden_ops._entries.pop("checks::scale")
    library._destroy()


def test_a_torch_operator_finds_the_golden_of_its_name(scale_op: Any) -> None:
    assert check(scale_op, [X], {"by": 3.0})
    assert check(scale_op.default, [X], {"by": 3.0})
    assert not check(scale_op, [X], {"by": 3.0}, golden_params={"by": 3.1})


def test_a_plain_function_is_golden_in_a_wider_type() -> None:
    seen: list[torch.dtype] = []

    def golden(x: Tensor) -> Tensor:
        seen.append(x.dtype)
        return x * x

    assert check(lambda x: x * x, [X], golden=golden)
    assert set(seen) == {torch.float16, torch.float32}  # as it is, to see where it rounds
    assert not check(lambda x: x * x + 0.5, [X], golden=golden)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def fused_rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return rms_norm(x.float(), weight.float()).to(x.dtype)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v


def biased(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x @ weight + bias


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_kernels_that_fuse_the_steps_of_a_plain_golden_or_do_not_pass(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    x, weight, bias = (
        torch.randn(*shape, generator=generator).to(dtype) for shape in ((64, 96), (96, 32), (32,))
    )
    q, k, v = (torch.randn(2, 4, 48, 16, generator=generator).to(dtype) for _ in range(3))
    assert check(fused_rms_norm, [x, x[0].abs() + 1], golden=rms_norm)
    assert check(attention, [q, k, v], golden=attention)
    assert check(nn.functional.scaled_dot_product_attention, [q, k, v], golden=attention)
    assert check(biased, [x, weight, bias], golden=biased)
    assert check(lambda x, w, b: torch.addmm(b, x, w), [x, weight, bias], golden=biased)
    assert not check(lambda *given: 1.01 * biased(*given), [x, weight, bias], golden=biased)
    assert not check(lambda q, k, v: 1.02 * attention(q, k, v), [q, k, v], golden=attention)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("wide", [False, True])
def test_kernels_of_an_engine_may_round_between_the_steps_of_their_definition(
    dtype: torch.dtype, wide: bool
) -> None:
    tokens, heads, size = 130, 4, 64
    angles = torch.arange(tokens).outer(1e4 ** -(torch.arange(0, size, 2) / size))
    table = torch.cat([angles.cos(), angles.sin()], -1).to(dtype)
    query, key = (torch.randn(tokens, heads * size).to(dtype) for _ in range(2))

    def rotary(factor: float = 1.0) -> Any:
        def kernel(positions: Tensor, *tensors: Any, head_size: int, is_neox: bool) -> None:
            *both, cache = tensors
            kind = torch.float32 if wide else dtype
            cos, sin = cache[positions].to(kind).unsqueeze(1).chunk(2, -1)
            for x in both:
                one, two = x.to(kind).reshape(tokens, heads, head_size).chunk(2, -1)
                turned = torch.cat((one * cos - two * sin, two * cos + one * sin), -1)
                x.copy_(turned.reshape(x.shape) * factor)

        return kernel

    inputs = [torch.arange(tokens), query, key, table]
    params = {"head_size": size, "is_neox": True}
    assert check("_C::rotary_embedding", inputs, params, outputs=rotary())
    assert not check("_C::rotary_embedding", inputs, params, outputs=rotary(1.02))


def test_a_kernel_that_writes_into_its_input_fails() -> None:
    found = check(lambda x: x.mul_(2), [X.clone()], golden=lambda x: 2 * x)
    assert [item.verdict for item in found.items] == [Verdict.PASS, Verdict.FAIL]
    assert "overwrites this input" in found.items[1].reason


def test_an_operator_in_place_is_judged_by_what_it_wrote() -> None:
    target, source = torch.zeros(4, 4).half(), torch.ones(2, 4).half()
    params = {"starts": [1, 0], "ends": [3, 4], "strides": [1, 1]}

    def write(at: int) -> Any:
        def kernel(x: Tensor, y: Tensor, **_: Any) -> None:
            x[at : at + 2] = y

        return kernel

    right = check("SetValueOperation", [target, source], params, outputs=write(1))
    assert [(item.output, item.verdict) for item in right.items] == [("intensor0", Verdict.PASS)]
    assert not check("SetValueOperation", [target, source], params, outputs=write(0))
    assert not target.any()  # the caller's tensors are left alone


def both(x: Tensor) -> tuple[Tensor, Tensor]:
    return x + 1, x + 2


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (lambda x: x + 1, "outtensor1: FAIL: the kernel did not return it"),
        (lambda x: (x + 1, x + 2, x), "golden <lambda> has 2 outputs"),
        (lambda x: (x + 1, (x + 2).reshape(-1)), "its shape is [64], golden's is [4, 16]"),
        (lambda x: (x + 1, (x + 2).T), "its shape is [16, 4], golden's is [4, 16]"),
        (lambda x: (x + 1, (x + 2).float()), "data type is float32, golden's is float16"),
        (lambda x: (x + 1, (x + 2).bfloat16()), "data type is bfloat16, golden's is float16"),
    ],
)
def test_number_shapes_and_types_of_results_must_be_goldens(kernel: Any, reason: str) -> None:
    found = check(kernel, [X], golden=both)
    assert found.verdict is Verdict.FAIL
    assert reason in str(found)
    assert check(lambda x: [x + 1, x + 2], [X], golden=both)


def test_whole_numbers_of_another_type_fail() -> None:
    assert check(lambda x: x.argmax(-1), [X], golden=lambda x: x.argmax(-1))
    found = check(lambda x: x.argmax(-1).int(), [X], golden=lambda x: x.argmax(-1))
    assert "data type is int32, golden's is int64" in str(found)
    assert not check(lambda x: (x > 1).byte(), [X], golden=lambda x: x > 1)


def test_a_golden_that_widens_its_inputs_says_nothing_of_types() -> None:
    def golden(x: Tensor) -> Tensor:
        return x.float() * 3

    assert check(lambda x: x * 3, [X], golden=golden)
    assert check(lambda x: x.float() * 3, [X], golden=golden)
    assert not check(lambda x: (x * 3).bfloat16(), [X], golden=golden)


def test_default_arguments_of_the_kernel_reach_golden(scale_op: Any) -> None:
    def kernel(x: Tensor, by: float = 3.0, *, shift: float = 0.5, unused: int = 1) -> Tensor:
        return (x.float() * by + shift).half()

    def golden(x: Tensor, by: float, shift: float = 0.0) -> Tensor:
        return x * by + shift

    assert check(kernel, [X], golden=golden)
    assert check(kernel, [X], {"by": 2.0}, golden=golden)
    assert not check(kernel, [X], golden=golden, golden_params={"by": 2.0})
    assert not check(kernel, [X], {"by": 2.0}, golden=golden, golden_params={"by": 3.0})

    def scaled(x: Tensor, by: float = 3.0) -> Tensor:
        return (x.float() * by).half()

    assert check(scaled, [X], golden="checks::scale")

    def elu(x: Tensor, alpha: float) -> Tensor:
        return torch.where(x > 0, x, alpha * torch.expm1(x))

    assert check(torch.ops.aten.elu, [X - 2], golden=elu)


def test_kernels_in_place_with_a_plain_golden() -> None:
    source = torch.linspace(0, 1, 64).reshape(4, 16).half()

    def kernel(x: Tensor, y: Tensor) -> None:
        x += y

    def returning(x: Tensor, y: Tensor) -> Tensor:
        return x.add_(y)

    def lazy(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def wrong(x: Tensor, y: Tensor) -> None:
        x += y
        x[3, 3] -= 1

    for right in (kernel, returning):
        for golden in (kernel, returning):
            found = check(right, [X, source], golden=golden)
            assert found, str(found)
            assert "intensor0" in {item.output for item in found.items}
        assert check(right, [X, source], golden=lazy, writes=[0])
    for golden in (kernel, returning):
        for bad in (lazy, wrong, lambda x, y: x.copy_(y), lambda x, y: y.add_(x)):
            assert not check(bad, [X, source], golden=golden)
    assert not check(wrong, [X, source], golden=lazy, writes=[0])
    assert not check(kernel, [X, source], golden=lazy)
    with pytest.raises(UsageError, match="names 2 inputs, and golden kernel returns 1"):
        check(kernel, [X, source], golden=lazy, writes=[0, 1])


def test_a_tolerance_or_an_arithmetic_of_its_own_in_one_line() -> None:
    def rough(x: Tensor) -> Tensor:
        return (x.float() * 1.004).half()

    def golden(x: Tensor) -> Tensor:
        return x * 1

    assert not check(rough, [X], golden=golden)
    assert check(rough, [X], golden=golden, tolerance=(5e-3, 0))
    found = check(rough, [X], golden=golden, tolerance=(3e-3, 0))
    assert "64 of 64 elements are further off than the declared tolerance" in str(found)
    assert "[contract declared: error<=0+0.003*|golden|]" in str(found)

    def twice(x: Tensor) -> Tensor:
        return (x * 3) * 0.7

    def once(x: Tensor) -> Tensor:
        return x.float() * 3 * 0.7

    assert not check(twice, [X], golden=once)
    assert check(twice, [X], golden=once, arithmetic=KernelArithmetic(roundings=2))


@pytest.fixture
def forget_declared() -> Iterator[None]:
    yield
    declared._declared.clear()


@pytest.mark.usefixtures("forget_declared")
def test_declarations_hold_for_every_check_of_an_operator(scale_op: Any) -> None:
    assert not check(scale_op, [X], {"by": 3.0}, golden_params={"by": 3.005})
    declare("checks::scale", rtol=2e-2)
    assert check(scale_op, [X], {"by": 3.0}, golden_params={"by": 3.005})
    assert check(scale_op.default, [X], {"by": 3.0}, golden_params={"by": 3.005})
    declare("checks::scale", roundings=1)
    assert not check(scale_op, [X], {"by": 3.0}, golden_params={"by": 3.05})
    for wrong in ({}, {"rounding": 1}, {"rtol": -1.0}, {"atol": float("nan")}):
        with pytest.raises(UsageError):
            declare("checks::scale", **wrong)


def test_inputs_reach_the_kernel_as_they_lie_in_memory() -> None:
    seen: list[Any] = []

    def kernel(x: Tensor) -> Tensor:
        seen.append((x.stride(), x.storage_offset()))
        return x.clone()

    given = torch.arange(200.0)[3:].as_strided((4, 8), (20, 2))
    assert check(kernel, [given], golden=lambda x: x.clone())
    assert seen == [((20, 2), 3)]


def test_what_golden_cannot_compute_is_an_error() -> None:
    found = check("Linear", [X, WEIGHT[:, :3]], {}, outputs=X)
    assert found.verdict is Verdict.ERROR
    assert "cannot be computed" in str(found)


def test_a_kernel_without_golden_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no golden operator 'matmul'.*@golden_op"):
        check(matmul, [X, WEIGHT])
    with pytest.raises(UsageError, match="is a name; give outputs="):
        check("Linear", [X, WEIGHT])
    with pytest.raises(UnknownNameError, match="did you mean"):
        check("LinearOperatoin", [X, WEIGHT], outputs=X)


def test_a_kernel_that_is_run_here_is_not_said_to_have_been_dumped() -> None:
    x = torch.randn(8)
    (item,) = check(torch.relu, [x], golden=lambda x: x.clamp(min=0) + 1).items
    assert "computed" in item.reason
    assert "dumped" not in item.reason
