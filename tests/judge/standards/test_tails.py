"""Healthy kernels of torch where they lose digits: in tails, in few rows, and near constants."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ait_llm.opcheck import check

TAILS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "erf": torch.erf,
    "softplus": F.softplus,
    "log_sigmoid": F.logsigmoid,
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "rms_norm without an epsilon": lambda x: F.rms_norm(x, x.shape[-1:]),
    "layer_norm of a large sum": lambda x: F.layer_norm(x + 300, x.shape[-1:]),
}


@pytest.mark.parametrize("scale", [0.001, 0.03, 4.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", TAILS)
def test_a_healthy_kernel_is_not_accused_where_it_loses_digits(
    name: str, dtype: torch.dtype, scale: float
) -> None:
    torch.manual_seed(1)
    for shape in ((32, 64), (256, 8)):
        x = (torch.randn(*shape) * scale).to(dtype)
        found = check(TAILS[name], [x], golden=TAILS[name])
        assert found, str(found)


def test_a_normalised_constant_may_be_what_rounding_of_its_mean_leaves() -> None:
    right = TAILS["layer_norm of a large sum"]
    assert check(right, [torch.full((5, 64), 0.1)], golden=right)


@pytest.mark.parametrize("name", ["gelu", "log_softmax", "rms_norm without an epsilon"])
def test_half_a_percent_is_found_there_nevertheless(name: str) -> None:
    torch.manual_seed(1)
    right = TAILS[name]
    x = torch.randn(256, 8) * 4
    assert not check(lambda x: right(x) * 1.005, [x], golden=right)


def test_a_nan_may_get_another_sign() -> None:
    x = torch.full((9, 3), torch.nan, dtype=torch.bfloat16)
    assert check(torch.neg, [x], outputs=x.clone(), golden=torch.neg)
    assert not check(torch.neg, [x], outputs=torch.zeros_like(x), golden=torch.neg)
