"""Bytes on disk to NumPy arrays of the true element type, and back.

Types of whole bytes are little-endian views. int4, float4, int2 and uint1 are packed with the first
element in the lowest bits, the order that ONNX and ml_dtypes document; libmki counts one byte per
element for them, so data of one byte per element is accepted as well. HiFloat8 and complex32 have
no NumPy type and are widened without loss, to float32 and complex64.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ait_llm.core import DType

Array = NDArray[Any]  # the element type is known at run time only


def stored_byte_counts(dtype: DType, elements: int) -> tuple[int, ...]:
    """Byte counts in which that many elements may be stored: packed, or one byte for each."""
    packed = dtype.byte_count(elements)
    return (packed,) if dtype.bits >= 8 else (packed, elements)


def is_decoded(dtype: DType) -> bool:
    """True for a type whose values :func:`decode` represents."""
    if dtype in (DType.HIFLOAT8, DType.COMPLEX32):
        return True
    return dtype.numpy_type is not None and (dtype.bits >= 8 or 8 % dtype.bits == 0)


def decode(raw: NDArray[np.uint8], dtype: DType, elements: int) -> Array:
    """Interpret stored bytes as a flat array.

    Args:
        raw: the stored bytes, 1-D; the result shares their memory where no unpacking is needed.
        dtype: logical element type.
        elements: number of elements.

    Returns:
        1-D array [elements]. HiFloat8 comes as float32, complex32 as complex64.

    Raises:
        ValueError: the number of bytes does not fit, or values of that type cannot be represented.
    """
    if raw.size not in stored_byte_counts(dtype, elements):
        raise ValueError(f"{raw.size} bytes are not {elements} elements of {dtype.label}")
    if dtype is DType.HIFLOAT8:
        return np.asarray(hifloat8_table()[raw])
    if dtype is DType.COMPLEX32:
        halves: Array = raw.view(np.dtype("<f2")).astype(np.float32)
        return halves.view(np.complex64)
    if dtype.numpy_type is None:
        raise ValueError(f"values of type {dtype.label} cannot be represented in NumPy")
    if dtype is DType.BOOL:
        return np.asarray(raw != 0)  # a device may store any non-zero byte, NumPy expects 1
    if dtype.bits >= 8:
        return raw.view(_little_endian(dtype.numpy_type))
    if raw.size == elements:  # also a single packed element
        values = raw & np.uint8((1 << dtype.bits) - 1)
    elif 8 % dtype.bits:
        raise ValueError(f"the packing of {dtype.label} is not documented")
    else:
        shifts = np.arange(0, 8, dtype.bits, dtype=np.uint8)
        values = (raw[:, None] >> shifts).reshape(-1)[:elements] & np.uint8((1 << dtype.bits) - 1)
    if dtype in (DType.INT4, DType.INT2):
        # ml_dtypes keeps them in a byte with the sign extended
        sign = 1 << (dtype.bits - 1)
        signed = (values ^ np.uint8(sign)).astype(np.int8) - np.int8(sign)
        return np.asarray(signed.astype(dtype.numpy_type))
    return np.asarray(values.view(dtype.numpy_type))


def encode(array: Array, dtype: DType) -> bytes:
    """The packed bytes of an array, in row-major order.

    Args:
        array: values of ``dtype.numpy_type``; for a type without one, its raw codes as uint8
            (HiFloat8) or its values as complex64 (complex32).
        dtype: logical element type.

    Raises:
        ValueError: the array has another element type, or the packing is not known.
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype is DType.COMPLEX32 and flat.dtype == np.complex64:
        return flat.view(np.float32).astype("<f2").tobytes()
    expected = np.uint8 if dtype is DType.HIFLOAT8 else dtype.numpy_type
    if expected is None or flat.dtype != np.dtype(expected):
        raise ValueError(f"an array of {flat.dtype} does not hold {dtype.label}")
    if dtype.bits >= 8:
        return flat.astype(_little_endian(expected), copy=False).tobytes()
    if 8 % dtype.bits:
        raise ValueError(f"the packing of {dtype.label} is not documented")
    per_byte = 8 // dtype.bits
    codes = flat.astype(np.int8) if dtype in (DType.INT4, DType.INT2) else flat
    padded = np.zeros(-(-flat.size // per_byte) * per_byte, dtype=np.uint8)
    padded[: flat.size] = codes.view(np.uint8) & np.uint8((1 << dtype.bits) - 1)
    shifts = np.arange(0, 8, dtype.bits, dtype=np.uint8)
    packed: Array = np.bitwise_or.reduce(padded.reshape(-1, per_byte) << shifts, axis=1)
    return packed.astype(np.uint8).tobytes()


@functools.cache
def hifloat8_table() -> NDArray[np.float32]:
    """Values of the 256 HiFloat8 codes.

    A prefix after the sign bit tells how many exponent bits follow (4, 3, 2, 1 or 0); the exponent
    is sign and magnitude with a hidden leading one; the rest is mantissa. Source: the HiFloat8
    definition as used by Ascend's ``hifloat`` printer (hicann/runtime).
    """
    table = np.zeros(256, dtype=np.float32)
    for code in range(128):
        table[code] = _hifloat8_magnitude(code)
        table[code | 0x80] = -table[code]
    table[0x80] = np.nan
    return table


def _hifloat8_magnitude(code: int) -> float:
    if code == 0x6F:
        return float("inf")
    if code < 0x08:  # prefix 0000: subnormal
        return 2.0 ** (code - 23) if code else 0.0
    if code < 0x10:  # prefix 0001: no exponent bits
        return 1 + (code & 7) / 8
    if code < 0x20:  # prefix 001
        exponent_bits, mantissa_bits = 1, 3
    else:  # prefix 01, 10, 11
        exponent_bits = (code >> 5) + 1
        mantissa_bits = 5 - exponent_bits
    exponent_field = (code >> mantissa_bits) & ((1 << exponent_bits) - 1)
    sign_bit = 1 << (exponent_bits - 1)
    magnitude = sign_bit | (exponent_field & (sign_bit - 1))
    exponent = -magnitude if exponent_field & sign_bit else magnitude
    mantissa = (code & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    return float(2.0**exponent * (1 + mantissa))


def _little_endian(numpy_type: type) -> np.dtype[Any]:
    plain = np.dtype(numpy_type)
    # ml_dtypes types cannot be byte-swapped; their order is that of the (little-endian) host
    return plain.newbyteorder("<") if plain.isbuiltin == 1 else plain
