"""Digests: equal for equal numbers, whatever their type, shape and way to be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from ait_llm import DumpConfig, open_dump, register_hook
from ait_llm.core import DType, TensorDesc
from ait_llm.dumps.model import Tensor as Dumped
from ait_llm.formats import write_tensor
from ait_llm.program.digests import digest
from tests.support.dump_builder import DumpBuilder


def _in_torch(folder: Path, *tensors: Tensor) -> list[Dumped]:
    """Tensors as inputs of a captured module."""

    class _Takes(torch.nn.Module):
        def forward(self, *inputs: Tensor) -> Tensor:
            return inputs[0]

    model = _Takes()
    with register_hook(model, DumpConfig(str(folder), tensor_part=0)):
        model(*tensors)
    (operation,) = open_dump(folder).operations(step=0)
    return list(operation.inputs)


def _in_atb(folder: Path, array: np.ndarray, dtype: DType) -> Dumped:  # type: ignore[type-arg]
    builder = DumpBuilder(folder / "ait_dump")
    operation = builder.operation("0_AddOperation", after=("outtensor0",))
    path = operation / "after" / "outtensor0.bin"
    write_tensor(path, array, TensorDesc(dtype, array.shape))
    (found,) = open_dump(folder).operations(step=0)
    return found.outputs[0]


def test_shape_and_wider_types_make_no_difference(tmp_path: Path) -> None:
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0)).half()
    half, wide, turned = _in_torch(tmp_path, x, x.float().reshape(3, 16), x.t())
    assert digest(half) == digest(wide) is not None
    assert digest(turned) != digest(half)


def test_a_single_other_element_of_a_small_tensor_is_seen(tmp_path: Path) -> None:
    x = torch.randn(100, 100, generator=torch.Generator().manual_seed(0))
    y = x.clone()
    y[17, 3] += 1e-3
    first, second = _in_torch(tmp_path, x, y)
    assert digest(first) != digest(second)


@pytest.mark.parametrize("elements", [100, 1 << 14, (1 << 14) + 1, 300_000])
def test_both_kinds_of_files_give_the_same_digest(tmp_path: Path, elements: int) -> None:
    array = np.random.default_rng(0).standard_normal(elements).astype(np.float16)
    (theirs,) = _in_torch(tmp_path / "torch", torch.from_numpy(array))
    mine = _in_atb(tmp_path / "atb", array, DType.FLOAT16)
    assert digest(mine) == digest(theirs) is not None


def test_elements_that_do_not_lie_in_a_row_are_read_in_their_order(tmp_path: Path) -> None:
    x = torch.randn(300, 100, generator=torch.Generator().manual_seed(0))
    turned, plain = _in_torch(tmp_path, x.t(), x.t().contiguous())
    assert digest(turned) == digest(plain) is not None


@pytest.mark.parametrize(
    "tensor", [torch.zeros(5), torch.full((4, 4), float("nan")), torch.ones(1), torch.ones(0)]
)
def test_tensors_that_prove_nothing_have_none(tmp_path: Path, tensor: Tensor) -> None:
    (found,) = _in_torch(tmp_path, tensor)
    assert digest(found) is None


def test_what_is_mostly_not_finite_proves_nothing(tmp_path: Path) -> None:
    """NaN has many bit patterns; they must not tell tensors apart, nor make them the same."""
    patterns = np.array([0x7E00, 0xFE00, 0x7E01, 0x3C00], np.uint16).view(np.float16)
    few = np.array([1, 2, 3, np.nan], np.float16)
    nans, numbers = _in_torch(tmp_path, torch.from_numpy(patterns), torch.from_numpy(few))
    assert digest(nans) is None
    assert digest(numbers) is not None


def test_recorded_statistics_stand_for_values_that_were_not_saved(tmp_path: Path) -> None:
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Identity())
    with register_hook(model, DumpConfig(str(tmp_path), mode="stats")):
        model(x)
    tensors = [t for o in open_dump(tmp_path).operations(step=0) for t in o.tensors]
    assert not any(tensor.has_data for tensor in tensors)
    assert len({digest(tensor) for tensor in tensors}) == 1
    assert digest(tensors[0]) is not None
