"""Operators that are right because the operator itself makes the same here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ait_llm import DumpConfig, open_dump, register_hook
from ait_llm.judge.plainly import is_plainly_right

Change = Callable[[Tensor, Tensor, Tensor], Tensor]
TYPES = [torch.float32, torch.float16, torch.bfloat16]


class Changed(TorchDispatchMode):
    """Products that are made otherwise."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        self._change = change

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        if str(func) == "aten.mm.default":
            return self._change(*args, out).to(out.dtype)
        return out


def _answer(folder: Path, dtype: torch.dtype, change: Change) -> bool | None:
    """What is said about a product of 600 terms, made otherwise than here."""
    torch.manual_seed(5)
    model = nn.Linear(600, 80, bias=False).to(dtype)
    x = torch.randn(40, 600).to(dtype)
    config = DumpConfig(dump_path=folder, operators=True, weights=True)
    with Changed(change), torch.no_grad(), register_hook(model, config):
        model(x)
    (product,) = [each for each in open_dump(folder).operations() if "aten.mm" in each.name]
    return is_plainly_right(product)


def _as_it_is(left: Tensor, right: Tensor, out: Tensor) -> Tensor:
    return out


def _in_another_order(left: Tensor, right: Tensor, out: Tensor) -> Tensor:
    half = left.shape[-1] // 2
    first = left[:, half:].float() @ right[half:].float()
    return first + left[:, :half].float() @ right[:half].float()


def _one_element_off(left: Tensor, right: Tensor, out: Tensor) -> Tensor:
    wrong = out.clone()
    wrong[7, 9] += 0.01
    return wrong


def _scaled(left: Tensor, right: Tensor, out: Tensor) -> Tensor:
    return out.double() * (1 + 100 * torch.finfo(out.dtype).eps)


def _in_16_bits(left: Tensor, right: Tensor, out: Tensor) -> Tensor:
    narrow = torch.bfloat16 if out.dtype is torch.float32 else out.dtype
    sums = torch.zeros_like(out, dtype=narrow)
    for term in range(left.shape[-1]):
        sums += left[:, term : term + 1].to(narrow) * right[term : term + 1].to(narrow)
    return sums


def _a_term_left_out(left: Tensor, right: Tensor, out: Tensor) -> Tensor:
    return left[:, :-1].float() @ right[:-1].float()


WRONG = [_one_element_off, _scaled, _in_16_bits, _a_term_left_out]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("change", [_as_it_is, _in_another_order])
def test_sums_in_any_order_are_plainly_right(
    change: Change, dtype: torch.dtype, tmp_path: Path
) -> None:
    assert _answer(tmp_path, dtype, change) is True


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("change", WRONG)
def test_what_sums_do_not_explain_is_not(
    change: Change, dtype: torch.dtype, tmp_path: Path
) -> None:
    assert _answer(tmp_path, dtype, change) is False


def test_what_grows_with_its_numbers_is_not_run(tmp_path: Path) -> None:
    class Grows(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.repeat(1, 3)

    model = Grows()
    config = DumpConfig(dump_path=tmp_path, operators=True)
    with torch.no_grad(), register_hook(model, config):
        model(torch.ones(2, 2))
    (repeat,) = [each for each in open_dump(tmp_path).operations() if "repeat" in each.name]
    assert is_plainly_right(repeat) is None
