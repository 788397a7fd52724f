"""Backward passes of API dumps: gradients computed again from the calls' own arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from ait_llm.core.comparison import Verdict
from ait_llm.dump.api import PrecisionDebugger
from ait_llm.opcheck.api.backward import BackwardCall, backward_golden
from ait_llm.opcheck.golden import EXACT
from ait_llm.opcheck.outcome import OpcheckReport
from ait_llm.opcheck.pipeline import opcheck

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
CHANGED = [
    "Functional.linear.0",
    "Functional.layer_norm.0",
    "Torch.matmul.0",
    "Functional.softmax.0",
    "Functional.gelu.0",
    "Functional.scaled_dot_product_attention.0",
    "Functional.embedding.0",
]


def program(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(3)
    x, weight, bias = (
        torch.randn(*shape, generator=draw).to(dtype).requires_grad_()
        for shape in ((4, 6, 8), (12, 8), (12,))
    )
    y = functional.layer_norm(functional.linear(x, weight, bias), (12,))
    shares = functional.softmax(torch.matmul(y, y.transpose(-2, -1)) / 4, -1, dtype=torch.float32)
    y = torch.cat([shares.to(dtype) @ y, y], -1)
    best, _ = torch.topk(y, 3, dim=1)
    z = functional.gelu(best * 2.0, approximate="tanh")[None]
    z = functional.scaled_dot_product_attention(z, z, z)
    rows = functional.embedding(torch.tensor([1, 2, 2]), weight)
    (z.float().pow(2).mean() + rows.float().pow(2).sum()).backward()


def capture(folder: Path, dtype: torch.dtype) -> Path:
    PrecisionDebugger._reset()
    debugger = PrecisionDebugger(dump_path=str(folder), task="tensor", level="L1")
    debugger.start(nn.Identity())
    try:
        program(dtype)
    finally:
        debugger.stop()
        debugger.step()
        PrecisionDebugger._reset()
    (found,) = folder.glob("**/dump.json")
    return found


def backward(report: OpcheckReport, verdict: Verdict) -> set[str]:
    return {
        item.op_id.partition(".backward")[0]
        for item in report.items
        if item.verdict is verdict and ".backward" in item.op_id
    }


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_a_healthy_run_are_right(dtype: torch.dtype, tmp_path: Path) -> None:
    report = opcheck(capture(tmp_path, dtype))
    assert [item.reason for item in report.items if item.verdict is not Verdict.PASS] == []
    assert backward(report, Verdict.PASS) >= set(CHANGED)
    assert report.exit_code() == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("call", CHANGED)
def test_a_wrong_gradient_is_the_only_one_named(
    call: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    dump = capture(tmp_path, dtype)
    place = 2 if "attention" in call else 0  # scores of attention all but cancel
    files = (dump.parent / "dump_tensor_data").glob(f"{call}.backward.output.{place}.*")
    paths = sorted(files)
    for path in paths:
        values = torch.load(path, weights_only=True)
        path.unlink()
        torch.save(values * 2, path)
    report = opcheck(dump)
    failed = {item.op_id for item in report.items if item.verdict is Verdict.FAIL}
    assert paths
    assert {one.partition("@")[0] for one in failed} == {f"{call}.backward"}


def golden_shapes(*tensors: Tensor) -> list[tuple[tuple[int, ...], torch.dtype]]:
    return [(tuple(one.shape), one.dtype) for one in tensors]


def linear(tensors: Sequence[Tensor | None]) -> Tensor:
    x, weight = tensors
    assert x is not None
    assert weight is not None
    return functional.linear(x, weight)


def test_where_shapes_do_not_tell_either_reading_of_a_record_is_right() -> None:
    """A square product of three dims: its last step is a view, whose gradient looks the same."""
    torch.manual_seed(2)
    given = [torch.randn(2, 6, 6), torch.randn(2, 6, 6)]
    arriving = torch.randn(2, 6, 6)
    forward: Callable[..., Tensor] = lambda tensors: torch.matmul(*tensors)  # noqa: E731
    golden = backward_golden(
        "matmul",
        forward,
        golden_shapes(*given),
        [True, False],
        golden_shapes(arriving),
        golden_shapes(given[0]),
    )
    assert golden is not None
    (first,) = golden.compute([*given, arriving], {}, EXACT).outputs
    others = [
        golden.compute([*given, arriving], params, EXACT).outputs[0]
        for params in golden.alternatives({})
    ]
    wanted = arriving.double() @ given[1].double().transpose(1, 2)
    torch.testing.assert_close(first, wanted)
    assert any(torch.equal(one, arriving.double()) for one in others)


def test_gradients_that_no_reading_of_a_record_gives_are_not_judged() -> None:
    x, weight, arriving = torch.randn(3, 4), torch.randn(5, 4), torch.randn(3, 5)
    shapes = golden_shapes(x, weight)
    for recorded in (torch.empty(7), torch.empty(3, 4, dtype=torch.float64)):
        golden = backward_golden(
            "linear",
            linear,
            shapes,
            [True, False],
            golden_shapes(arriving),
            golden_shapes(recorded),
        )
        assert golden is None


def test_gradients_are_those_of_the_arguments_that_need_one() -> None:
    x, weight, arriving = torch.randn(3, 4), torch.randn(5, 4), torch.randn(3, 5)
    call = BackwardCall("linear", linear, [False, True], last_step=False)
    (found,) = call([x, weight, arriving])
    torch.testing.assert_close(found, arriving.T @ x)
    assert not weight.requires_grad


def test_counts_of_bins_that_rounding_decides_are_counted_and_decide_nothing(
    tmp_path: Path,
) -> None:
    values = torch.arange(8.0) + 0.5
    PrecisionDebugger._reset()
    debugger = PrecisionDebugger(dump_path=str(tmp_path), task="tensor", level="L1")
    debugger.start(nn.Identity())
    try:
        torch.histc(values, bins=3, min=0, max=8)
    finally:
        debugger.stop()
        debugger.step()
        PrecisionDebugger._reset()
    report = opcheck(tmp_path)
    assert report.items == []
    assert "compute places by rounded numbers" in report.unchecked
