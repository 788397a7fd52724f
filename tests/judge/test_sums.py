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
from ait_llm.dumps.tensors import Tensor as Held
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

    def forward(self, *values: Tensor) -> Tensor:
        return values[-1]


def captured(folder: Path, add: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype) -> Path:
    torch.manual_seed(2)
    model = nn.Sequential(Layer(), Layer(add), nn.LayerNorm(16)).to(dtype).eval()
    with torch.no_grad(), register_hook(model, DumpConfig(dump_path=folder, weights=True)):
        model(torch.randn(24, 16).to(dtype))
    return folder


def compared(folder: Path, add: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype) -> Report:
    golden = captured(folder / "golden", torch.add, dtype)
    return compare(golden, captured(folder / "mine", add, dtype), jobs=1)


@pytest.mark.parametrize(
    ("dtype", "error"),
    [(torch.float32, 5e-5), (torch.float16, 3 * 2.0**-10), (torch.bfloat16, 3 * 2.0**-7)],
)
def test_a_residual_that_is_scaled_within_the_tolerance_is_found(
    dtype: torch.dtype, error: float, tmp_path: Path
) -> None:
    found = compared(tmp_path, lambda x, y: ((x + y).float() * (1 + error)).to(dtype), dtype)
    (origin,) = found.origins
    assert (origin.op, origin.kind, origin.certain) == ("root.1", "code between modules", True)
    assert "golden's outtensor0 of root.1 is the sum of" in origin.evidence
    assert "this is within the tolerance" in origin.evidence
    assert found.exit_code() == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_one_element_of_a_residual_is_found_beside_errors_of_the_type_before_it(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    """Golden is float32, so that every layer before it is off by roundings, too."""

    def deep(add: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype, name: str) -> Path:
        torch.manual_seed(2)
        layers = [Layer(), Layer(), Layer(), Layer(add), nn.LayerNorm(16)]
        model = nn.Sequential(*layers).to(dtype).eval()
        config = DumpConfig(dump_path=tmp_path / name, weights=True)
        with torch.no_grad(), register_hook(model, config):
            model(torch.randn(24, 16).to(dtype))
        return tmp_path / name

    def bad(x: Tensor, y: Tensor) -> Tensor:
        total = x + y
        total[11, 5] += 0.7 * torch.finfo(dtype).eps * total.float().norm()
        return total

    golden = deep(torch.add, torch.float32, "golden")
    healthy = compare(golden, deep(torch.add, dtype, "healthy"), jobs=1)
    assert (healthy.origins, healthy.exit_code()) == ((), 0)
    found = compare(golden, deep(bad, dtype, "mine"), jobs=1)
    assert all(each.values["relative_euclidean_distance"] < 0.03 for each in found.comparisons)
    (origin,) = found.origins
    assert (origin.op, origin.kind) == ("root.3", "code between modules")
    assert "mine is not: [11, 5] is" in origin.evidence
    assert found.exit_code() == 1


class WithExtra(nn.Module):
    """A residual of which a part is computed by code of the layer itself, as LoRA may be."""

    def __init__(self, is_apart: bool) -> None:
        super().__init__()
        self.proj = nn.Linear(16, 16)
        extra = torch.randn(16, 16) * 2e-3
        with torch.no_grad():
            self.proj.weight += 0 if is_apart else extra
        self.extra = extra if is_apart else None

    def forward(self, x: Tensor) -> Tensor:
        made = self.proj(x)
        if self.extra is not None:
            made = made + x @ self.extra.to(x.dtype).T
        return x + made


def test_what_only_one_program_keeps_apart_is_no_wrong_sum(tmp_path: Path) -> None:
    """Its terms are further from golden's than the sum."""
    found = []
    for name, is_apart, dtype in (("golden", False, torch.float32), ("mine", True, torch.bfloat16)):
        torch.manual_seed(2)
        layers = [WithExtra(is_apart) for _ in range(3)]
        model = nn.Sequential(*layers, nn.LayerNorm(16)).to(dtype).eval()
        with torch.no_grad(), register_hook(model, DumpConfig(dump_path=tmp_path / name)):
            model(torch.randn(24, 16).to(dtype))
        found.append(tmp_path / name)
    report = compare(*found, jobs=1)
    assert (report.origins, report.exit_code()) == ((), 0)


class Parallel(nn.Module):
    """Two projections beside each other and a residual, as GPT-NeoX has them."""

    def __init__(self, add: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.attention, self.mlp = nn.Linear(16, 16), nn.Linear(16, 16)
        self.add = add

    def forward(self, x: Tensor) -> Tensor:
        return self.add(self.mlp(x) + self.attention(x), x)


def test_a_residual_of_three_terms_is_held_to_golden_s(tmp_path: Path) -> None:
    factor = 1 + 3 * torch.finfo(torch.float16).eps
    found = []
    for name, scale in (("golden", 1.0), ("mine", factor)):
        torch.manual_seed(2)
        model = nn.Sequential(
            Parallel(torch.add),
            Parallel(lambda one, x, scale=scale: ((one + x).float() * scale).to(x.dtype)),
            nn.LayerNorm(16),
        )
        model = model.to(torch.float16).eval()
        config = DumpConfig(dump_path=tmp_path / name, weights=True)
        with torch.no_grad(), register_hook(model, config):
            model(torch.randn(24, 16).to(torch.float16))
        found.append(tmp_path / name)
    (origin,) = compare(*found, jobs=1).origins
    assert (origin.op, origin.kind, origin.certain) == ("root.1", "code between modules", True)
    assert "is the sum of outtensor0 of root.1.mlp, outtensor0 of root.1.attention and" in (
        origin.evidence
    )


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


def _held(folder: Path, *values: Tensor) -> list[Held]:
    with torch.no_grad(), register_hook(model := Joined(), DumpConfig(dump_path=folder)):
        model(*values)
    (operation,) = open_dump(folder).operations()
    return [tensor for tensor in operation.tensors if tensor.role == "in"]


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    dtype=st.sampled_from(TYPES),
    spread=st.floats(-6, 6),
    count=st.integers(2, 3),
    at_once=st.booleans(),
)
def test_a_sum_of_rounded_terms_in_any_order_is_within_what_rounding_permits(
    seed: int,
    dtype: torch.dtype,
    spread: float,
    count: int,
    at_once: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    wide = [torch.randn(96, generator=generator, dtype=torch.float64) for _ in range(count)]
    wide[1] *= 2**spread
    folder = tmp_path_factory.mktemp("sum")
    terms = [each.to(dtype) for each in wide]
    total = sum(wide, torch.zeros(96)).to(dtype) if at_once else sum(terms[::-1][1:], terms[-1])
    tensors = _held(folder, *terms, total)
    assert stray(tensors[:-1], tensors[-1]) is None


def test_a_term_of_float32_that_was_summed_one_after_the_other_is_right(tmp_path: Path) -> None:
    """As a kernel may do that makes the term once more, of 11 008 products, and adds to it."""
    generator = torch.Generator().manual_seed(3)
    x, weight = (torch.randn(size, 11008, generator=generator) / 105 for size in (96, 1))
    residual = torch.randn(96, generator=generator)
    term, total = (x.double() @ weight.double().T)[:, 0].float(), residual.clone()
    for column in range(x.shape[1]):
        total += x[:, column] * weight[:, column]
    assert (total - residual - term).abs().max() > 8 * 2.0**-24
    *terms, made = _held(tmp_path, residual, term, total)
    assert stray(terms, made) is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_an_element_that_is_four_roundings_off_is_told_with_what_it_should_be(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    one, other = torch.rand(2, 96).to(dtype) + 1
    total = one + other
    total[17] *= 1 + 4 * torch.finfo(dtype).eps
    *terms, made = _held(tmp_path, one, other, total)
    found = stray(terms, made)
    assert found is not None
    assert found.place == (17,)
    assert found.right == float(one[17].double() + other[17].double())
    assert found.value == float(total[17])


def test_values_that_one_term_alone_makes_are_no_sum(tmp_path: Path) -> None:
    one, other = torch.rand(96), torch.zeros(96)
    *terms, made = _held(tmp_path, one, other, one.clone())
    assert not is_sum([each.nd() for each in terms], made.nd())
