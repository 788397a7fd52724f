"""Operators that return nothing and write into memory that was handed out for them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from capture_models import capture
from torch import Tensor, nn

from ait_llm import compare
from ait_llm.core.comparison import Verdict


@pytest.fixture(scope="module", autouse=True)
def library() -> Iterator[None]:
    """The operator by which vLLM multiplies on a CPU."""
    made = torch.library.Library("_C", "FRAGMENT")  # type: ignore[no-untyped-call]
    made.define("onednn_mm(Tensor! c, Tensor a, Tensor? bias, Tensor handler) -> ()")
    made.impl("onednn_mm", _multiply, "CPU")
    yield
    made._destroy()  # type: ignore[no-untyped-call]


WEIGHT = torch.randn(16, 24, generator=torch.Generator().manual_seed(0))


def _multiply(c: Tensor, a: Tensor, bias: Tensor | None, handler: Tensor) -> None:
    """Wrong where the kernel says so."""
    c.copy_(a @ WEIGHT * (2 if handler.item() & 1 else 1))


class Product(nn.Module):
    """vLLM's linear module on a CPU.

    Args:
        process: what its memory holds, and where its kernel is, are other numbers in each.
        wrong: what it multiplies is twice as large.
    """

    def __init__(self, process: int, *, wrong: bool = False) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(24))
        self.handler = torch.tensor(0x7F0000000000 + 4096 * process + wrong)
        self.process = process

    def forward(self, x: Tensor) -> Tensor:
        output = torch.empty(len(x), 24)
        # writes that nobody counts: what the memory held before
        ctypes.memset(output.data_ptr(), 40 + self.process, output.nbytes)
        torch.ops._C.onednn_mm(output, x, None, self.handler)
        return output * self.scale


class Model(nn.Module):
    def __init__(self, process: int, *, wrong: bool = False) -> None:
        super().__init__()
        self.up = nn.Linear(8, 16)
        with torch.no_grad():
            self.up.weight.copy_(torch.linspace(-1, 1, 128).view(16, 8))
            self.up.bias.zero_()
        self.product = Product(process, wrong=wrong)

    def forward(self, x: Tensor) -> Tensor:
        return self.product(self.up(x))


def captured(folder: Path, model: nn.Module) -> Path:
    capture(model, folder, torch.linspace(-2, 2, 40).view(5, 8), operators=True, modules=False)
    return folder


def test_what_memory_held_and_where_a_kernel_is_are_not_compared(tmp_path: Path) -> None:
    golden, mine = captured(tmp_path / "golden", Model(1)), captured(tmp_path / "mine", Model(2))
    result = compare(golden, mine)
    assert not [each.mine for each in result.comparisons if each.verdict is Verdict.FAIL]
    left = [each for each in result.comparisons if each.verdict is Verdict.SKIPPED]
    names = {each.mine.name for each in left if each.mine and "onednn" in each.mine.op}
    assert names == {"intensor0", "intensor2"}


def test_what_such_an_operator_writes_is_compared(tmp_path: Path) -> None:
    golden = captured(tmp_path / "golden", Model(1))
    mine = captured(tmp_path / "mine", Model(2, wrong=True))
    failed = [
        each.mine for each in compare(golden, mine).comparisons if each.verdict is Verdict.FAIL
    ]
    assert ("root.product.aten.mul.Tensor", "intensor0") in {
        (each.op, each.name) for each in failed if each
    }
