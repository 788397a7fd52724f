"""Products with large weights against float64 of the whole."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ait_llm.opcheck.golden import EXACT, GOLDEN
from ait_llm.opcheck.golden.products import (
    integer_matmul,
    is_large,
    magnitudes,
    shared_products,
    wide_matmul,
)


@pytest.fixture(params=[torch.float16, torch.bfloat16])
def operands(request: pytest.FixtureRequest) -> tuple[Tensor, Tensor]:
    """x of 3 rows, and a stored weight that is seen transposed, of 1100 terms."""
    torch.manual_seed(3)
    x, weight = torch.randn(3, 1100), torch.randn(2001, 1100)
    return x.to(request.param), weight.to(request.param).T


def test_a_large_weight_gives_the_product_of_float64(operands: tuple[Tensor, Tensor]) -> None:
    x, weight = operands
    assert is_large(weight)
    expected = x.double() @ weight.double()
    sizes = x.double().abs() @ weight.double().abs()
    for arithmetic, dtype, unit in ((GOLDEN, torch.float32, 2.0), (EXACT, torch.float64, 1.0)):
        product = wide_matmul(x, weight, arithmetic)
        assert product.dtype == dtype
        assert float(((product - expected).abs() / sizes).max()) < unit * 2.0**-24


def test_leading_dimensions_and_plain_layouts_are_kept(operands: tuple[Tensor, Tensor]) -> None:
    x, weight = operands
    whole = wide_matmul(x, weight, EXACT)
    batched = wide_matmul(x.reshape(3, 1, 1100), weight.contiguous(), EXACT)
    torch.testing.assert_close(batched, whole.reshape(3, 1, 2001), rtol=1e-5, atol=1e-4)


def test_a_float32_weight_is_widened_to_float64() -> None:
    torch.manual_seed(4)
    x, weight = torch.randn(2, 1100), torch.randn(1100, 2001)
    torch.testing.assert_close(
        wide_matmul(x, weight, GOLDEN), x.double() @ weight.double(), rtol=1e-12, atol=1e-12
    )


def test_integer_products_are_exact() -> None:
    torch.manual_seed(5)
    x = torch.randint(-128, 128, (3, 1100), dtype=torch.int8)
    weight = torch.randint(-128, 128, (1100, 2001), dtype=torch.int8)
    assert torch.equal(integer_matmul(x, weight), (x.int() @ weight.int()).double())


def test_products_of_given_tensors_are_computed_once(operands: tuple[Tensor, Tensor]) -> None:
    x, weight = operands
    with shared_products([x, None, weight]):
        first, second = (wide_matmul(x, weight, EXACT) for _ in range(2))
        assert first.data_ptr() == second.data_ptr()
        other = wide_matmul(x.neg(), weight, EXACT)
        torch.testing.assert_close(other, -first)
    assert wide_matmul(x, weight, EXACT).data_ptr() != first.data_ptr()


def test_magnitudes_are_products_of_absolute_values(operands: tuple[Tensor, Tensor]) -> None:
    x, weight = operands
    expected = (x.double().abs() @ weight.double().abs()).float()
    with magnitudes() as sizes:
        found = wide_matmul(x, weight, GOLDEN)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)
    assert (sizes.is_part, sizes.used) == (False, {weight.untyped_storage().data_ptr()})


def test_a_part_of_the_magnitudes_has_the_largest_terms(operands: tuple[Tensor, Tensor]) -> None:
    x, weight = operands
    x[:, 600:700] *= 50
    expected = (x.double().abs() @ weight.double().abs()).float()
    with magnitudes(0.25) as sizes:
        found = wide_matmul(x, weight, GOLDEN)
    assert sizes.is_part
    share = found / expected
    assert 0.8 < float(share.min()) <= float(share.max()) < 1 + 1e-5
