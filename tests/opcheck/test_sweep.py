"""Sweeps: healthy kernels of torch pass, planted faults are found and made small."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from ait_llm.core.comparison import Verdict
from ait_llm.errors import UnknownNameError, UsageError
from ait_llm.opcheck import SweepReport, check, sweep, sweep_inputs
from ait_llm.opcheck.sweeps.cases import LAYOUTS, Case, as_dtypes, as_shapes, value_kinds


def softmax(x: Tensor) -> Tensor:
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


def product(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight.T


def layer_norm(x: Tensor, weight: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5) * weight


def torch_layer_norm(x: Tensor, weight: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], weight)


@pytest.mark.parametrize(
    ("kernel", "golden", "shapes"),
    [
        (functional.silu, lambda x: x * torch.sigmoid(x), [(3, 21)]),
        (lambda x: torch.softmax(x, -1), softmax, [(4, 33), (2, 3, 8)]),
        (functional.linear, product, [[(5, 40), (24, 40)]]),
        (torch_layer_norm, layer_norm, [[(5, 40), (40,)]]),
        (lambda x: x.topk(3, -1).values, lambda x: x.sort(-1).values.flip(-1)[..., :3], [(4, 9)]),
    ],
)
def test_healthy_kernels_pass_with_all_values_and_layouts(
    kernel: Any, golden: Any, shapes: Any
) -> None:
    report = sweep(kernel, shapes=shapes, golden=golden, speed=False)
    assert report, str(report)
    assert {one.case.values for one in report.cases} == set(value_kinds)
    assert {one.case.layout for one in report.cases} == set(LAYOUTS)
    assert any(one.case.is_empty for one in report.cases)
    assert {one.case.dtypes[0] for one in report.cases} == {"float32", "float16", "bfloat16"}


def test_attention_over_keys_that_score_alike_passes() -> None:
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5) @ v

    inputs = sweep_inputs(shapes=[(2, 4, 33, 32)] * 3, dtypes=["float16"] * 3, values="tiny")
    assert check(functional.scaled_dot_product_attention, inputs, golden=attention)
    assert not check(
        lambda *given: functional.scaled_dot_product_attention(*given) * 1.01,
        inputs,
        golden=attention,
    )


def found(kernel: Any, golden: Any, shapes: Any, **settings: Any) -> SweepReport:
    report = sweep(kernel, shapes=shapes, golden=golden, speed=False, **settings)
    assert report.verdict is Verdict.FAIL, str(report)
    assert report.smallest is not None
    return report


def smallest(kernel: Any, golden: Any, shapes: Any, **settings: Any) -> Case:
    report = found(kernel, golden, shapes, **settings)
    assert report.smallest is not None
    return report.smallest.case


def test_a_tail_behind_blocks_shrinks_to_the_smallest_tail() -> None:
    def kernel(x: Tensor) -> Tensor:
        result = torch.zeros_like(x)
        whole = x.shape[-1] // 16 * 16
        result[..., :whole] = x[..., :whole] * 3
        return result

    assert smallest(kernel, lambda x: x * 3, [(4, 8, 50)]).shapes == ((1, 1, 1),)


def test_a_fault_of_large_sizes_shrinks_to_its_edge() -> None:
    def kernel(x: Tensor, weight: Tensor) -> Tensor:
        kept = min(x.shape[-1], 20)
        return x[:, :kept] @ weight[:, :kept].T

    case = smallest(kernel, product, [[(8, 64), (16, 64)]], dtypes=["float32"])
    assert case.shapes == ((1, 21), (1, 21))
    assert (case.layout, case.values, case.seed) == ("contiguous", "normal", 0)


def test_what_fails_with_strides_alone_keeps_its_layout() -> None:
    def kernel(x: Tensor) -> Tensor:  # reads memory as if rows were whole
        return x.as_strided(x.shape, torch.empty(x.shape).stride()) * 1

    assert smallest(kernel, lambda x: x * 1, [(4, 6)]).layout in ("transposed", "strided")


@pytest.mark.parametrize(
    ("kernel", "golden", "kind"),
    [
        (lambda x: torch.exp(x) / torch.exp(x).sum(-1, keepdim=True), softmax, "large"),
        (lambda x: torch.nan_to_num(x) * 2, lambda x: x * 2, "NaN and Inf"),
        (
            lambda x: (x.square().mean(-1) - x.mean(-1).square()).sqrt(),
            lambda x: (x - x.mean(-1, keepdim=True)).square().mean(-1).sqrt(),
            "constant",
        ),
        (lambda x: (x * 2**-60 * 2**-60) * 2**60 * 2**60, lambda x: x * 1, "tiny"),
    ],
)
def test_values_at_the_edges_find_what_plain_ones_do_not(
    kernel: Any, golden: Any, kind: str
) -> None:
    report = found(kernel, golden, [(4, 32)], dtypes=["float32"])
    failed = {one.case.values for one in report.cases if one.verdict is Verdict.FAIL}
    assert kind in failed
    assert "normal" not in failed


def test_a_kernel_that_flushes_the_smallest_numbers_is_right() -> None:
    def flushing(x: Tensor) -> Tensor:
        tiny = torch.finfo(x.dtype).smallest_normal
        return torch.where(x.abs() < tiny, torch.zeros_like(x), x).abs().log()

    report = sweep(flushing, shapes=[(4, 16)], golden=lambda x: x.abs().log(), dtypes=["float32"])
    assert report, str(report)
    assert "flushes the smallest numbers to zero" in str(report)


def test_a_kernel_that_differs_between_calls_is_found() -> None:
    calls = iter(range(10**6))

    def kernel(x: Tensor) -> Tensor:
        order = slice(None, None, 1) if next(calls) % 2 else slice(0, None)
        flipped = x.flip(-1) if order.step is None else x
        total = torch.zeros(x.shape[:-1])
        for column in flipped.unbind(-1):
            total = total + column
        return total

    report = found(kernel, lambda x: x.sum(-1), [(3, 40)], dtypes=["float32"])
    assert {one.kind for one in report.cases if one.verdict is Verdict.FAIL} == {"repeated"}
    assert "other bits when the kernel is called again" in str(report)
    assert sweep(
        kernel,
        shapes=[(3, 40)],
        golden=lambda x: x.sum(-1),
        dtypes=["float32"],
        deterministic=False,
    )


def test_a_row_that_depends_on_the_size_of_its_batch_is_said_or_found() -> None:
    def kernel(x: Tensor) -> Tensor:  # splits sums only where there are few rows
        parts = x.split(8, -1) if x.shape[0] < 4 else x.split(64, -1)
        total = torch.zeros(x.shape[0])
        for part in parts:
            own = torch.zeros(x.shape[0])
            for column in part.unbind(-1):
                own = own + column
            total = total + own
        return total

    settings: Any = {"shapes": [(6, 64)], "golden": lambda x: x.sum(-1), "dtypes": ["float32"]}
    said = sweep(kernel, batched=[0], **settings)
    assert said
    assert "has other bits in a batch than alone" in str(said)
    report = sweep(kernel, batched=[0], batch_invariant=True, **settings)
    assert report.verdict is Verdict.FAIL
    assert report.smallest is not None
    assert report.smallest.kind == "batch"
    assert sweep(
        lambda x: x * 2, shapes=[(6, 64)], golden=lambda x: x * 2, batched=[0], batch_invariant=True
    )


class _Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


def test_gradients_are_held_to_those_of_golden() -> None:
    settings: Any = {"gradients": True, "speed": False}
    right = sweep(torch_layer_norm, shapes=[[(6, 40), (40,)]], golden=layer_norm, **settings)
    assert right, str(right)
    assert sweep(functional.linear, shapes=[[(5, 40), (24, 40)]], golden=product, **settings)
    report = found(_Halved.apply, lambda x: x * 2, [(4, 8)], gradients=True)
    assert {one.kind for one in report.cases if one.verdict is Verdict.FAIL} == {"gradient"}
    assert report.smallest is not None
    assert report.smallest.case.shapes == ((1, 1),)
    assert "the gradient of input 0 is wrong" in report.smallest.reason
    found(lambda x: x.detach() * 2, lambda x: x * 2, [(4, 8)], gradients=True)


def test_operators_of_torch_in_place_and_whole_numbers() -> None:
    assert sweep(
        torch.ops.aten.add_.Tensor, shapes=[[(4, 8), (4, 8)]], golden=lambda x, y: x + y, writes=[0]
    )
    assert sweep(
        torch.ops.aten.gelu,
        shapes=[(4, 8)],
        params={"approximate": "tanh"},
        golden=lambda x, approximate: functional.gelu(x, approximate=approximate),
    )
    settings: Any = {"dtypes": [("int64", "bfloat16")], "high": 9}
    rows = [[(5, 3), (9, 8)]]
    assert sweep(functional.embedding, shapes=rows, golden=lambda i, w: w[i], **settings)
    assert not sweep(lambda i, w: w[(i + 1) % 9], shapes=rows, golden=lambda i, w: w[i], **settings)


def test_a_registered_golden_serves_a_sweep() -> None:
    def kernel(x: Tensor, y: Tensor, elewiseType: int = 8) -> Tensor:
        return x + y

    shapes = [[(4, 8), (4, 8)]]
    assert sweep(kernel, shapes=shapes, dtypes=["float16"], golden="ElewiseOperation")
    assert not sweep(
        lambda x, y: x - y,
        shapes=shapes,
        dtypes=["float16"],
        golden="ElewiseOperation",
        golden_params={"elewiseType": 8},
    )


def test_a_kernel_that_refuses_fails_only_where_it_was_asked() -> None:
    def kernel(x: Tensor) -> Tensor:
        if x.dtype != torch.float32 or not x.is_contiguous():
            raise NotImplementedError("contiguous float32 only")
        return x * 2

    report = sweep(kernel, shapes=[(4, 8)], golden=lambda x: x * 2)
    assert report
    assert "the kernel refuses it: NotImplementedError: contiguous float32 only" in str(report)
    for asked in ({"dtypes": ["float16"]}, {"dtypes": ["float32"], "layouts": ["strided"]}):
        report = sweep(kernel, shapes=[(4, 8)], golden=lambda x: x * 2, **asked)
        assert report.verdict is Verdict.FAIL
    nothing = sweep(lambda x: kernel(x.half()), shapes=[(4, 8)], golden=lambda x: x * 2)
    assert nothing.verdict is Verdict.SKIPPED
    assert not nothing


def test_the_code_of_a_case_makes_its_inputs() -> None:
    case = Case(((3, 5), (5,), None), ("float16",) * 3, "strided", "cancelling", 7)
    again = eval(case.code, {"sweep_inputs": sweep_inputs})
    for mine, other in zip(case.inputs(), again, strict=True):
        assert (mine is None) is (other is None)
        if mine is not None and other is not None:
            assert torch.equal(mine, other)
            assert mine.stride() == other.stride() != mine.contiguous().stride()


def test_speed_is_taken_beside_golden() -> None:
    report = sweep(lambda x: x * 2, shapes=[(64, 64)], golden=lambda x: x * 2, dtypes=["float32"])
    (speed,) = report.speeds
    assert speed.times is not None
    assert speed.seconds > 0
    assert report.table()[0].endswith("| ms | speed |")
    assert len(report.table()) == 4  # the head, and with and without rows


def test_arguments_that_mean_nothing_are_refused() -> None:
    golden: Any = lambda x: x  # noqa: E731
    for wrong in ([], [3], [("a",)]):
        with pytest.raises(UsageError, match="shapes="):
            sweep(golden, shapes=wrong, golden=golden)
    with pytest.raises(UsageError, match="no data type"):
        sweep(golden, shapes=[(2,)], dtypes=["half8"], golden=golden)
    with pytest.raises(UsageError, match="2 types for 1 inputs"):
        as_dtypes([("float16", "float32")], 1)
    with pytest.raises(UsageError, match="no layout"):
        sweep(golden, shapes=[(2,)], layouts=["diagonal"], golden=golden)
    with pytest.raises(UnknownNameError, match="kind of values"):
        sweep(golden, shapes=[(2,)], values=["huge"], golden=golden)
    with pytest.raises(UsageError, match="gradients=True needs a plain function"):
        sweep(
            lambda x, y: x + y,
            shapes=[[(2, 2), (2, 2)]],
            golden="ElewiseOperation",
            golden_params={"elewiseType": 8},
            dtypes=["float16"],
            gradients=True,
        )
    assert as_shapes([(2, 3), [(1,), None]]) == [((2, 3),), ((1,), None)]
