"""Products with packed and block-scaled weights, by torch's own kernels and by loops."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ait_llm import DumpConfig, register_hook
from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.golden.aten.quantised_products import scaled_product
from ait_llm.opcheck.golden.base import UnverifiableError
from ait_llm.opcheck.outcome import OpcheckReport
from ait_llm.opcheck.pipeline import opcheck


class FourBits(nn.Module):
    """A weight of four bits as torch's kernel for CPUs packs it."""

    def __init__(self, rows: int, columns: int, group: int, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(rows + columns)
        stored = torch.randint(0, 16, (rows, columns), dtype=torch.int32)
        self.group = group
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(stored, 1)
        self.packed = nn.Buffer(packed)
        self.both = nn.Buffer((torch.rand(columns // group, rows, 2) - 0.3).to(dtype))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            x, self.packed, self.group, self.both
        )
        return found


class _Fault(TorchDispatchMode):
    """One column of the products is off."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        found = func(*args, **(kwargs or {}))
        if "int4pack_mm" in str(func):
            found[:, 3] *= 1.05
        return found


def checked(folder: Path, model: FourBits, x: Tensor, *, wrong: bool = False) -> OpcheckReport:
    config = DumpConfig(dump_path=folder, operators=True, weights=True)
    with torch.no_grad(), register_hook(model, config):
        if wrong:
            with _Fault():
                model(x)
        else:
            model(x)
    return opcheck(folder, jobs=1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(
    ("tokens", "rows", "columns", "group"), [(1, 32, 128, 32), (7, 64, 256, 64), (48, 96, 512, 128)]
)
def test_products_with_weights_of_four_bits_are_right(
    tokens: int, rows: int, columns: int, group: int, dtype: torch.dtype, tmp_path: Path
) -> None:
    x = torch.randn(tokens, columns, generator=torch.Generator().manual_seed(3)).to(dtype)
    report = checked(tmp_path, FourBits(rows, columns, group, dtype), x)
    assert [item.verdict for item in report.items] == [Verdict.PASS]


def test_a_column_of_such_a_product_that_is_off_is_found(tmp_path: Path) -> None:
    x = torch.randn(48, 512, generator=torch.Generator().manual_seed(3)).bfloat16()
    report = checked(tmp_path, FourBits(96, 512, 128, torch.bfloat16), x, wrong=True)
    assert [item.verdict for item in report.items] == [Verdict.FAIL]


def _given(left: Tensor, right: Tensor, one: Tensor, other: Tensor) -> dict[str, object]:
    return {
        **{"self": left, "mat2": right, "scale_a": one, "scale_b": other},
        **{"bias": None, "scale_result": None},
    }


def test_scales_of_blocks_apply_to_the_elements_of_their_block() -> None:
    draw = torch.Generator().manual_seed(5)
    left, right = torch.randn(3, 8, generator=draw), torch.randn(8, 6, generator=draw)
    one, other = torch.rand(3, 2, generator=draw), torch.rand(2, 3, generator=draw)
    wanted = torch.zeros(3, 6, dtype=torch.float64)
    for i in range(3):
        for j in range(6):
            for k in range(8):
                real = float(left[i, k]) * float(one[i, k // 4])
                wanted[i, j] += real * float(right[k, j]) * float(other[k // 4, j // 2])
    wide = _given(*(each.double() for each in (left, right, one, other)))
    torch.testing.assert_close(scaled_product(wide), wanted)


@pytest.mark.parametrize("scale", [torch.rand(96), torch.rand(3, 3)])
def test_scales_whose_order_is_that_of_a_device_are_not_guessed(scale: Tensor) -> None:
    with pytest.raises(UnverifiableError, match="its scales are"):
        scaled_product(_given(torch.rand(3, 8), torch.rand(8, 6), scale, torch.rand(1)))
