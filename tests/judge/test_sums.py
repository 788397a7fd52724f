"""Sums that code between modules makes: what rounding permits of them, and what it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from ait_llm import DumpConfig, compare, open_dump, register_hook
from ait_llm.core.comparison import Report
from ait_llm.judge.sums import is_sum, stray

TYPES = (torch.float32, torch.float16, torch.bfloat16)


class Layer(nn.Module):
    """A residual around one projection."""

    def __init__(self, add: Callable[[Tensor, Tensor], Tensor] = torch.add) -> None:
        super().__init__()
        self.proj = nn.Linear(16, 16)
        self.add = add

    def forward(self, x: Tensor) -> Tensor:
        return self.add(x, self.proj(x))


class Joined(nn.Module):
    """Only what is added, so that a capture holds the three values as they are."""

    def forward(self, one: Tensor, other: Tensor, total: Tensor) -> Tensor:
        return total


def captured(folder: Path, add: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype) -> Path:
    torch.manual_seed(2)
    model = nn.Sequential(Layer(), Layer(add), nn.LayerNorm(16)).to(dtype).eval()
    with torch.no_grad(), register_hook(model, DumpConfig(dump_path=folder, weights=True)):
        model(torch.randn(24, 16).to(dtype))
    return folder


def compared(folder: Path, add: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype) -> Report:
    golden = captured(folder / "golden", torch.add, dtype)
    return compare(golden, captured(folder / "mine", add, dtype), jobs=1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_residual_that_is_scaled_within_the_tolerance_is_found(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    factor = 1 + 3 * torch.finfo(dtype).eps
    found = compared(tmp_path, lambda x, y: ((x + y).float() * factor).to(dtype), dtype)
    (origin,) = found.origins
    assert (origin.op, origin.kind, origin.certain) == ("root.1", "code between modules", True)
    assert "golden's outtensor0 of root.1 is the sum of" in origin.evidence
    assert "this is within the tolerance" in origin.evidence
    assert found.exit_code() == 1


@pytest.mark.parametrize("dtype", TYPES)
def test_a_residual_that_is_added_before_what_was_captured_is_rounded_is_right(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    """As kernels do that join the product and the sum."""
    torch.manual_seed(2)
    layers = nn.Sequential(Layer(), Layer()).to(dtype)

    def joined(x: Tensor, _: Tensor) -> Tensor:
        proj = layers[1].proj
        wide = x.double() + x.double() @ proj.weight.double().T + proj.bias.double()
        return wide.to(dtype)

    found = compared(tmp_path, joined, dtype)
    assert found.origins == ()
    assert found.exit_code() == 0


def _held(folder: Path, *values: Tensor) -> list[object]:
    with torch.no_grad(), register_hook(model := Joined(), DumpConfig(dump_path=folder)):
        model(*values)
    (operation,) = open_dump(folder).operations()
    return [tensor for tensor in operation.tensors if tensor.role == "in"]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), dtype=st.sampled_from(TYPES), spread=st.floats(-6, 6))
def test_a_sum_of_rounded_terms_is_within_what_rounding_permits(
    seed: int, dtype: torch.dtype, spread: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    generator = torch.Generator().manual_seed(seed)
    one, other = (torch.randn(96, generator=generator, dtype=torch.float64) for _ in range(2))
    other *= 2**spread
    folder = tmp_path_factory.mktemp("sum")
    terms = [each.to(dtype) for each in (one, other)]
    tensors = _held(folder, *terms, (one + other).to(dtype))
    assert stray(*tensors) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_an_element_that_is_four_roundings_off_is_told_with_what_it_should_be(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    one, other = torch.rand(2, 96).to(dtype) + 1
    total = one + other
    total[17] *= 1 + 4 * torch.finfo(dtype).eps
    found = stray(*_held(tmp_path, one, other, total))  # type: ignore[arg-type]
    assert found is not None
    assert found.place == (17,)
    assert found.right == float(one[17].double() + other[17].double())
    assert found.value == float(total[17])


def test_values_that_one_term_alone_makes_are_no_sum(tmp_path: Path) -> None:
    one, other = torch.rand(96), torch.zeros(96)
    assert not is_sum(*_held(tmp_path, one, other, one.clone()))  # type: ignore[arg-type]
