"""Runs whose weights are kept in few bits, compared with real ones without the weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook
from ait_llm.compare import compare
from ait_llm.core.comparison import Report, Verdict
from ait_llm.dump.api import PrecisionDebugger

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning"),
]
SEED = 11
WIDTH = 64


class WholeNumbers(nn.Module):
    """A projection by int8 weights, scaled behind the product as kernels of int8 do."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        scale = linear.weight.abs().amax(-1) / 127
        self.register_buffer("weight", torch.round(linear.weight / scale[:, None]).to(torch.int8))
        self.register_buffer("weight_scale", scale)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        y = (x.flatten(0, -2) @ self.weight.t().to(x.dtype)) * self.weight_scale
        y = y.view(*x.shape[:-1], -1)
        return y if self.bias is None else y + self.bias


class Cast(nn.Module):
    """A projection by int8 weights, a parameter that the module casts as it runs."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        scale = linear.weight.abs().amax(-1) / 127
        whole = torch.round(linear.weight / scale[:, None]).to(torch.int8)
        self.weight = nn.Parameter(whole, requires_grad=False)
        self.register_buffer("scales", scale)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.linear(x, self.weight.to(x.dtype)) * self.scales
        return y if self.bias is None else y + self.bias


class Restored(Cast):
    """The same, which multiplies by the real numbers that the weight stands for."""

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.to(x.dtype) * self.scales[:, None]
        return nn.functional.linear(x, weight, self.bias)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.silu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.embedding = nn.Embedding(50, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, 50, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def whole_numbers(model: Net) -> None:
    for block in model.blocks:
        block.up, block.down = WholeNumbers(block.up), WholeNumbers(block.down)


def cast(model: Net) -> None:
    for block in model.blocks:
        block.up, block.down = Cast(block.up), Cast(block.down)


def restored(model: Net) -> None:
    for block in model.blocks:
        block.up, block.down = Restored(block.up), Restored(block.down)


def packed(model: Net) -> None:
    torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, inplace=True)


def packed_halves(model: Net) -> None:
    torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.float16, inplace=True)


def captured(folder: Path, model: Net, *, level: str = "modules", weights: bool = False) -> Path:
    operators = level == "operators"
    config = DumpConfig(
        dump_path=folder, modules=not operators, operators=operators, weights=weights
    )
    with torch.no_grad(), register_hook(model, config):
        model(torch.arange(14).view(2, 7))
    return folder / "ait_dump"


def of(folder: Path, change: object = None, factor: float = 1.0, **options: object) -> Path:
    model = Net().eval()
    with torch.no_grad():
        model.blocks[1].up.weight.mul_(factor)
    if callable(change):
        change(model)
    return captured(folder, model, **options)  # type: ignore[arg-type]


def alarms(found: Report) -> list[str]:
    return [str(each) for each in found.comparisons if each.verdict is Verdict.FAIL]


@pytest.mark.parametrize("weights", [False, True], ids=["no-weights", "weights"])
@pytest.mark.parametrize("level", ["modules", "operators"])
@pytest.mark.parametrize("change", [whole_numbers, cast, restored, packed, packed_halves])
def test_a_healthy_run_of_few_bits_is_accused_of_nothing(
    tmp_path: Path, change: object, level: str, weights: bool
) -> None:
    golden = of(tmp_path / "golden", level=level, weights=weights)
    mine = of(tmp_path / "mine", change, level=level, weights=weights)
    for sides in ((golden, mine), (mine, golden)):
        found = compare(*sides)
        assert alarms(found) == []
        assert found.exit_code() == 0
        assert found.counts[Verdict.PASS] > 20


def api_calls(folder: Path, change: Callable[[Net], None] | None, factor: float = 1.0) -> Path:
    model = Net().eval()
    with torch.no_grad():
        model.blocks[1].up.weight.mul_(factor)
    if change is not None:
        change(model)
    PrecisionDebugger._reset()
    debugger = PrecisionDebugger(dump_path=str(folder), task="tensor", level="mix")
    debugger.start(model)
    with torch.no_grad():
        model(torch.arange(14).view(2, 7))
    debugger.stop()
    PrecisionDebugger._reset()
    return folder


@pytest.mark.parametrize("change", [cast, restored, packed])
def test_a_healthy_capture_of_api_calls_of_few_bits_is_accused_of_nothing(
    tmp_path: Path, change: Callable[[Net], None]
) -> None:
    golden = api_calls(tmp_path / "golden", None)
    mine = api_calls(tmp_path / "mine", change)
    for sides in ((golden, mine), (mine, golden)):
        found = compare(*sides)
        assert alarms(found) == []
        assert found.counts[Verdict.PASS] > 20


@pytest.mark.parametrize("change", [cast, restored, packed])
def test_a_wrong_weight_of_few_bits_is_found_in_a_capture_of_api_calls(
    tmp_path: Path, change: Callable[[Net], None]
) -> None:
    golden = api_calls(tmp_path / "golden", None)
    mine = api_calls(tmp_path / "mine", change, 1.5)
    found = compare(golden, mine)
    assert found.exit_code() == 1
    [origin] = found.origins
    assert ".2.forward" in origin.op or "blocks.1.up" in origin.op


@pytest.mark.parametrize("level", ["modules", "operators"])
@pytest.mark.parametrize("change", [whole_numbers, packed])
def test_a_weight_that_is_off_by_more_than_its_bits_is_found(
    tmp_path: Path, change: object, level: str
) -> None:
    golden = of(tmp_path / "golden", level=level)
    found = compare(golden, of(tmp_path / "mine", change, 1.3, level=level))
    assert found.exit_code() == 1
    [origin] = found.origins
    assert origin.op.startswith("root.blocks.1.up")


def test_of_few_bits_on_both_sides_nothing_more_is_allowed_than_of_real_numbers(
    tmp_path: Path,
) -> None:
    golden = of(tmp_path / "golden", whole_numbers)
    found = compare(golden, of(tmp_path / "mine", whole_numbers, 1.01))
    assert found.exit_code() == 1
