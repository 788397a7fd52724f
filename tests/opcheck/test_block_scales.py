"""Products of small floats with a scale for each block, by loops over what the bytes stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ait_llm import DumpConfig, open_dump, register_hook
from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.golden.aten.block_scales import in_rows
from ait_llm.opcheck.outcome import OpcheckReport
from ait_llm.opcheck.pipeline import opcheck

ROWS, INNER, COLUMNS = 5, 128, 48
PAIRS, EXPONENTS = torch.float4_e2m1fn_x2, torch.float8_e8m0fnu


def tiled(scales: Tensor) -> Tensor:
    """Scales as a tensor core reads them, element by element as its manual says."""
    rows, blocks = scales.shape
    high, wide = -(-rows // 128), -(-blocks // 4)
    found = torch.zeros(high * wide * 512, dtype=torch.uint8)
    for row in range(rows):
        for block in range(blocks):
            tile = (row // 128) * wide + block // 4
            place = tile * 512 + (row % 32) * 16 + (row % 128) // 32 * 4 + block % 4
            found[place] = scales.view(torch.uint8)[row, block]
    return found.view(scales.dtype)


def numbers(raw: Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    """What bytes of two floats of four bits stand for, ``[rows, 2 bytes]``."""
    data = raw.view(torch.uint8).numpy()
    halves = np.stack([data & 15, data >> 4], -1).reshape(len(data), -1)
    return halves.view(ml_dtypes.float4_e2m1fn).astype(np.float64)


def looped(x: Tensor, xs: Tensor, w: Tensor, ws: Tensor, size: int) -> Tensor:
    left, right = numbers(x), numbers(w)
    found = torch.zeros(len(left), len(right), dtype=torch.float64)
    for row in range(len(left)):
        for column in range(len(right)):
            for k in range(left.shape[1]):
                one = left[row, k] * float(xs[row, k // size].double())
                found[row, column] += one * right[column, k] * float(ws[column, k // size].double())
    return found


class Scaled(nn.Module):
    """A product of MXFP4 as an accelerator runs it; a CPU is shown what it makes."""

    def __init__(self, version: int, in_tiles: bool) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(3)
        self.w = nn.Buffer(_bytes((COLUMNS, INNER // 2), 0, 256, draw).view(PAIRS))
        self.scales = _bytes((COLUMNS, INNER // 32), 120, 130, draw).view(EXPONENTS)
        self.laid = nn.Buffer(tiled(self.scales) if in_tiles else self.scales)
        self.version, self.in_tiles = version, in_tiles

    def forward(self, x: Tensor, scales: Tensor) -> Tensor:
        found: Tensor
        laid = tiled(scales) if self.in_tiles else scales
        if self.version == 1:
            found = torch.ops.aten._scaled_mm(
                x, self.w.t(), laid, self.laid, out_dtype=torch.bfloat16
            )
        else:
            order = int(self.in_tiles)
            found = torch.ops.aten._scaled_mm_v2(
                x, self.w.t(), [laid], [3], [order], [self.laid], [3], [order], None, torch.bfloat16
            )
        return found


class Accelerator(TorchDispatchMode):
    """Runs the products that no CPU has."""

    def __init__(self, model: Scaled, scales: Tensor, factor: float) -> None:
        super().__init__()
        self._model, self._scales, self._factor = model, scales, factor

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if "_scaled_mm" not in str(func):
            return func(*args, **(kwargs or {}))
        made = looped(args[0], self._scales, args[1].t(), self._model.scales, 32)
        made[:, 5] *= self._factor
        return made.to(torch.bfloat16)


def _bytes(shape: tuple[int, int], low: int, high: int, draw: torch.Generator) -> Tensor:
    return torch.randint(low, high, shape, generator=draw, dtype=torch.uint8)


def captured(folder: Path, version: int, in_tiles: bool, factor: float = 1.0) -> Path:
    model = Scaled(version, in_tiles)
    draw = torch.Generator().manual_seed(4)
    x = _bytes((ROWS, INNER // 2), 0, 256, draw).view(PAIRS)
    scales = _bytes((ROWS, INNER // 32), 120, 130, draw).view(EXPONENTS)
    config = DumpConfig(dump_path=folder, operators=True, modules=False, weights=True)
    with torch.no_grad(), register_hook(model, config), Accelerator(model, scales, factor):
        model(x, scales)
    return folder


def verdicts(report: OpcheckReport) -> dict[str, Verdict]:
    return {item.op_type: item.verdict for item in report.items if "scaled_mm" in item.op_type}


@pytest.mark.parametrize(("version", "in_tiles"), [(1, True), (2, True), (2, False)])
def test_a_product_of_mxfp4_is_judged_by_its_stored_numbers_and_scales(
    tmp_path: Path, version: int, in_tiles: bool
) -> None:
    right = opcheck(captured(tmp_path / "right", version, in_tiles), jobs=1)
    assert list(verdicts(right).values()) == [Verdict.PASS]
    wrong = opcheck(captured(tmp_path / "wrong", version, in_tiles, 1.02), jobs=1)
    assert list(verdicts(wrong).values()) == [Verdict.FAIL]


def test_pairs_of_small_floats_are_read_as_the_numbers_they_stand_for(tmp_path: Path) -> None:
    model = Scaled(2, in_tiles=False)
    for operation in open_dump(captured(tmp_path, 2, in_tiles=False)).operations():
        if "scaled_mm" in operation.type:
            right = operation.inputs[1]
            assert right.shape == (INNER, COLUMNS)
            np.testing.assert_array_equal(right.nd().astype(np.float64), numbers(model.w).T)


def test_scales_in_tiles_are_put_in_rows_across_the_edges_of_tiles() -> None:
    scales = torch.rand(130, 6).to(torch.float8_e4m3fn)
    torch.testing.assert_close(in_rows(tiled(scales), 130, 6).float(), scales.float())
