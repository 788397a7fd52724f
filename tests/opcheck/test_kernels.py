"""Kernels without a dump: torch operators, plain functions, results that are given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ait_llm.core.comparison import Verdict
from ait_llm.errors import UnknownNameError, UsageError
from ait_llm.opcheck import Result, check, golden_op
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
    wider = {torch.float32, torch.float64}
    assert set(seen) == {torch.float16, *wider}  # as it is, to see where it rounds
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


def test_a_missing_output_never_passes() -> None:
    def golden(x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x

    found = check(lambda x: x.clone(), [X], golden=golden)
    assert found.verdict is Verdict.SKIPPED
    assert not found


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
