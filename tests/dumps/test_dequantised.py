"""Quantised weights as real numbers, against packing by hand and against transformers."""

from __future__ import annotations

import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quantised_weights import FORMATS
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from ait_llm.dumps.dequantised import Dequantised, dequantised
from ait_llm.dumps.tensor_files import TensorFile
from ait_llm.errors import FormatError


def _torch(array: np.ndarray) -> torch.Tensor:
    if array.dtype == ml_dtypes.float8_e4m3fn:
        return torch.from_numpy(array.view(np.uint8)).view(torch.float8_e4m3fn)
    return torch.from_numpy(np.ascontiguousarray(array))


def _found(tensors: dict[str, torch.Tensor], folder: Path) -> dict[str, Dequantised]:
    save_file({name: each.contiguous() for name, each in tensors.items()}, folder / "m.safetensors")
    file = TensorFile(folder / "m.safetensors")
    return dequantised({key: file.tensor(key, place) for place, key in enumerate(file.keys)})


@settings(max_examples=40)
@given(
    st.sampled_from(sorted(FORMATS)),
    st.sampled_from(((16, 64, 32), (32, 64, 64), (8, 128, 32), (24, 192, 64), (144, 160, 32))),
    st.integers(0, 9),
)
def test_a_weight_has_the_numbers_that_were_packed(
    form: str, size: tuple[int, int, int], seed: int
) -> None:
    rows, columns, group = size
    weight = np.random.default_rng(seed).standard_normal((rows, columns)) * 0.05
    stored, real = FORMATS[form](weight, group)
    tensors = {f"model.up.{name}": _torch(array) for name, array in stored.items()}
    tensors["model.norm.weight"] = torch.ones(8)
    with tempfile.TemporaryDirectory() as folder:
        found = _found(tensors, Path(folder))
        assert list(found) == ["model.up.weight"]
        each = found["model.up.weight"]
        assert each.tensor.shape == weight.shape
        assert set(each.parts) <= set(tensors)
        np.testing.assert_allclose(each.tensor.nd(), real, rtol=1e-6, atol=1e-9)
        off = np.linalg.norm(real - weight) / np.linalg.norm(real)
        assert 0.4 * each.tensor.rounding < off < 1.6 * each.tensor.rounding


def test_experts_in_mxfp4_are_those_of_transformers(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(0)
    blocks = torch.randint(0, 256, (3, 8, 2, 16), dtype=torch.uint8, generator=draw)
    scales = torch.randint(118, 130, (3, 8, 2), dtype=torch.uint8, generator=draw)
    names = {"experts.gate_up_proj_blocks": blocks, "experts.gate_up_proj_scales": scales}
    found = _found(names, tmp_path)["experts.gate_up_proj"]
    expected = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    np.testing.assert_array_equal(found.tensor.nd(), expected.numpy())
    assert found.tensor.shape == tuple(expected.shape)


@pytest.mark.parametrize("zero", [7, 8])
def test_symmetric_zeros_say_whether_they_are_less_one(tmp_path: Path, zero: int) -> None:
    data = torch.arange(8, dtype=torch.int32).repeat(4, 1)
    zeros = int("".join([str(zero)] * 8), 16)
    tensors = {
        "a.qweight": data,
        "a.qzeros": torch.from_numpy(np.full((1, 1), zeros, np.uint32).view(np.int32)),
        "a.scales": torch.full((1, 8), 0.5),
    }
    real = _found(tensors, tmp_path)["a.weight"].tensor.nd()
    assert real[3, 0] == (3 - 8) * 0.5
    assert real[3, 1] == (0 - 8) * 0.5


def test_scales_that_do_not_fit_are_an_error_of_the_weight(tmp_path: Path) -> None:
    tensors = {"a.weight": torch.ones(6, 8, dtype=torch.int8), "a.weight_scale": torch.ones(4, 1)}
    (found,) = _found(tensors, tmp_path).values()
    with pytest.raises(FormatError, match="4 scales do not fit 6 elements of axis 0"):
        found.tensor.nd()


def test_other_integers_are_left_alone(tmp_path: Path) -> None:
    tensors = {
        "a.weight": torch.ones(6, 8, dtype=torch.int8),
        "b.weight": torch.ones(6, 8),
        "b.weight_scale": torch.ones(6, 1),
        "c.qweight": torch.ones(6, 8, dtype=torch.int32),
    }
    assert _found(tensors, tmp_path) == {}
