"""Small types: packing and values."""

import ml_dtypes
import numpy as np
import pytest

from ait_llm.core import DType
from ait_llm.formats.elements import (
    decode,
    encode,
    hifloat8_table,
    is_decoded,
    stored_byte_counts,
)


def raw(*values: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.array(values, dtype=np.uint8)


@pytest.mark.parametrize(
    ("code", "value"),
    [
        (0x00, 0.0),
        (0x01, 2**-22),
        (0x07, 2**-16),
        (0x08, 1.0),
        (0x0F, 1.875),
        (0x10, 2.0),
        (0x18, 0.5),
        (0x20, 4.0),
        (0x28, 8.0),
        (0x30, 0.25),
        (0x38, 0.125),
        (0x40, 16.0),
        (0x60, 256.0),
        (0x6E, 32768.0),
        (0x6F, float("inf")),
        (0xEF, float("-inf")),
        (0x88, -1.0),
    ],
)
def test_hifloat8_value_from_its_definition(code: int, value: float) -> None:
    assert decode(raw(code), DType.HIFLOAT8, 1).tolist() == [value]


def test_hifloat8_has_one_nan_and_no_value_twice() -> None:
    table = hifloat8_table()
    assert np.flatnonzero(np.isnan(table)).tolist() == [0x80]
    assert len(set(table[~np.isnan(table)].tolist())) == 255


def test_int4_is_packed_low_nibble_first_and_signed() -> None:
    assert decode(raw(0x21, 0xF8, 0x07), DType.INT4, 5).astype(int).tolist() == [1, 2, -8, -1, 7]


def test_int4_of_one_byte_each_is_accepted() -> None:
    assert decode(raw(0x01, 0x0F, 0xF8), DType.INT4, 3).astype(int).tolist() == [1, -1, -8]
    assert stored_byte_counts(DType.INT4, 3) == (2, 3)


def test_uint1_is_packed_lowest_bit_first() -> None:
    assert decode(raw(0b1011, 1), DType.UINT1, 9).tolist() == [1, 1, 0, 1, 0, 0, 0, 0, 1]


def test_float4_is_packed_low_nibble_first() -> None:
    assert decode(raw(0xF2), DType.FLOAT4_E2M1, 2).astype(float).tolist() == [1.0, -6.0]


def test_any_non_zero_byte_is_true() -> None:
    assert decode(raw(0, 1, 2, 255), DType.BOOL, 4).tolist() == [False, True, True, True]


def test_complex32_is_widened() -> None:
    halves = np.array([1.5, -2, 0, 65504], dtype="<f2").view(np.uint8)
    array = decode(halves, DType.COMPLEX32, 2)
    assert array.dtype == np.complex64
    assert array.tolist() == [1.5 - 2j, 65504j]
    assert encode(array, DType.COMPLEX32) == halves.tobytes()


def test_bf16_keeps_its_type() -> None:
    array = decode(raw(0x80, 0x3F, 0x80, 0xFF), DType.BFLOAT16, 2)
    assert array.dtype == ml_dtypes.bfloat16
    assert array.astype(float).tolist() == [1.0, float("-inf")]


def test_float6_is_read_from_one_byte_each_only() -> None:
    assert decode(raw(0x0C), DType.FLOAT6_E3M2, 1).astype(float).tolist() == [1.0]
    assert decode(raw(0x0C, 0x2C), DType.FLOAT6_E3M2, 2).size == 2
    with pytest.raises(ValueError, match="packing of float6_e3m2 is not documented"):
        decode(raw(1, 2, 3), DType.FLOAT6_E3M2, 4)
    with pytest.raises(ValueError, match="packing of float6_e3m2 is not documented"):
        encode(np.zeros(4, dtype=ml_dtypes.float6_e3m2fn), DType.FLOAT6_E3M2)


def test_wrong_number_of_bytes() -> None:
    with pytest.raises(ValueError, match="3 bytes are not 2 elements of float16"):
        decode(raw(1, 2, 3), DType.FLOAT16, 2)


def test_type_that_numpy_cannot_represent() -> None:
    with pytest.raises(ValueError, match="float4_e1m2 cannot be represented"):
        decode(raw(1), DType.FLOAT4_E1M2, 1)


@pytest.mark.parametrize("dtype", list(DType), ids=lambda dtype: dtype.label)
def test_types_that_are_decoded_are_known(dtype: DType) -> None:
    def decodes() -> bool:
        try:
            decode(np.zeros(dtype.byte_count(8), np.uint8), dtype, 8)
        except ValueError:
            return False
        return True

    assert is_decoded(dtype) is decodes()
