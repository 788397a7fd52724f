"""NumPy to torch and back without a bit lost."""

from pathlib import Path

import numpy as np
import pytest
import torch

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import MissingDependencyError
from ait_llm.formats import from_torch, load, to_torch, write_tensor
from ait_llm.formats.elements import decode

IN_TORCH = [
    member for member in DType if member.torch_name is not None and member.numpy_type is not None
]


@pytest.mark.parametrize("dtype", IN_TORCH, ids=lambda dtype: dtype.label)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)], ids=str)
def test_round_trip_keeps_type_and_bits(dtype: DType, shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape))
    raw = np.random.default_rng(7).integers(0, 2, dtype.byte_count(count), dtype=np.uint8)
    array = decode(raw, dtype, count).reshape(shape)
    tensor = to_torch(array, dtype)
    assert str(tensor.dtype) == f"torch.{dtype.torch_name}"
    assert tuple(tensor.shape) == shape
    again, same = from_torch(tensor)
    assert same is dtype
    assert again.dtype == array.dtype
    assert again.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("dtype", "raw", "torch_dtype", "values"),
    [
        (DType.INT4, [0xF1], torch.int8, [1, -1]),
        (DType.UINT1, [0b10], torch.uint8, [0, 1]),
        (DType.HIFLOAT8, [0x08, 0x10], torch.float32, [1.0, 2.0]),
        (DType.FLOAT4_E2M1, [0x42], torch.float32, [1.0, 2.0]),
        (DType.COMPLEX32, [0, 0x3C, 0, 0x40, 0, 0, 0, 0], torch.complex64, [1 + 2j, 0]),
    ],
    ids=lambda value: value.label if isinstance(value, DType) else None,
)
def test_types_that_torch_lacks_are_widened(
    dtype: DType, raw: list[int], torch_dtype: torch.dtype, values: list[complex]
) -> None:
    tensor = to_torch(decode(np.array(raw, dtype=np.uint8), dtype, 2), dtype)
    assert tensor.dtype == torch_dtype
    assert tensor.tolist() == values


def test_tensor_owns_its_memory() -> None:
    array = np.zeros(3, dtype=np.float32)
    tensor = to_torch(array, DType.FLOAT32)
    tensor += 1
    assert array.tolist() == [0, 0, 0]


def test_transposed_array_keeps_its_values() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T
    assert to_torch(array, DType.FLOAT32).tolist() == array.tolist()


def test_strided_and_differentiable_tensors_are_read() -> None:
    tensor = torch.arange(6.0, requires_grad=True).reshape(2, 3).T
    array, _ = from_torch(tensor)
    assert array.tolist() == tensor.tolist()


def test_lazily_conjugated_and_negated_tensors_are_resolved() -> None:
    tensor = torch.tensor([1 + 2j, 3 - 4j])
    assert from_torch(tensor.conj())[0].tolist() == [1 - 2j, 3 + 4j]
    assert from_torch(tensor.conj().imag)[0].tolist() == [-2.0, 4.0]


def test_half_complex_tensor_is_widened() -> None:
    array, dtype = from_torch(torch.view_as_complex(torch.tensor([[1.5, -2.0]]).half()))
    assert (dtype, array.dtype, array.tolist()) == (DType.COMPLEX32, np.complex64, [1.5 - 2j])


def test_old_torch_without_a_type_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch, "float8_e8m0fnu")
    array = decode(np.array([127], dtype=np.uint8), DType.FLOAT8_E8M0, 1)
    with pytest.raises(MissingDependencyError, match="has no element type float8_e8m0fnu"):
        to_torch(array, DType.FLOAT8_E8M0)


def test_sparse_tensor_is_refused() -> None:
    with pytest.raises(ValueError, match="sparse_coo has no NumPy counterpart"):
        from_torch(torch.eye(2).to_sparse())


def test_loaded_tensor_becomes_torch(tmp_path: Path) -> None:
    bits = np.array([0x3F80, 0xC000], dtype=np.uint16)
    array = decode(bits.view(np.uint8), DType.BFLOAT16, 2)
    write_tensor(tmp_path / "a.bin", array, TensorDesc(DType.BFLOAT16, (2,)))
    tensor = load(tmp_path / "a.bin").torch()
    assert tensor.dtype == torch.bfloat16
    assert tensor.tolist() == [1.0, -2.0]
