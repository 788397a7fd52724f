"""Element types of dumped tensors, with their ATB codes and their NumPy counterparts.

Codes are those of ``aclDataType``, which ATB writes into dump headers; names are those that ATB
prints in its operation tables. NumPy has no bf16, fp8 or int4 of its own: ``ml_dtypes`` adds them.
"""

from __future__ import annotations

from enum import Enum

import ml_dtypes
import numpy as np


class DType(Enum):
    """A logical element type: ``(name, ATB code, bits per element, NumPy type, torch name)``.

    The NumPy type is None where no NumPy or ml_dtypes type holds the values (HiFloat8, complex32,
    strings); ``formats`` widens the first two, the last can only be listed and copied.
    """

    UNDEFINED = ("undefined", -1, 0, None, None)
    FLOAT32 = ("float", 0, 32, np.float32, "float32")
    FLOAT16 = ("float16", 1, 16, np.float16, "float16")
    INT8 = ("int8", 2, 8, np.int8, "int8")
    INT32 = ("int32", 3, 32, np.int32, "int32")
    UINT8 = ("uint8", 4, 8, np.uint8, "uint8")
    INT16 = ("int16", 6, 16, np.int16, "int16")
    UINT16 = ("uint16", 7, 16, np.uint16, "uint16")
    UINT32 = ("uint32", 8, 32, np.uint32, "uint32")
    INT64 = ("int64", 9, 64, np.int64, "int64")
    UINT64 = ("uint64", 10, 64, np.uint64, "uint64")
    FLOAT64 = ("double", 11, 64, np.float64, "float64")
    BOOL = ("bool", 12, 8, np.bool_, "bool")
    STRING = ("string", 13, 0, None, None)
    COMPLEX64 = ("complex64", 16, 64, np.complex64, "complex64")
    COMPLEX128 = ("complex128", 17, 128, np.complex128, "complex128")
    BFLOAT16 = ("bf16", 27, 16, ml_dtypes.bfloat16, "bfloat16")
    INT4 = ("int4", 29, 4, ml_dtypes.int4, None)
    UINT1 = ("uint1", 30, 1, np.uint8, None)
    INT2 = ("int2", 31, 2, ml_dtypes.int2, None)
    UINT2 = ("uint2", 32, 2, ml_dtypes.uint2, None)
    COMPLEX32 = ("complex32", 33, 32, None, "complex32")
    HIFLOAT8 = ("hifloat8", 34, 8, None, None)
    FLOAT8_E5M2 = ("float8_e5m2", 35, 8, ml_dtypes.float8_e5m2, "float8_e5m2")
    FLOAT8_E4M3FN = ("float8_e4m3fn", 36, 8, ml_dtypes.float8_e4m3fn, "float8_e4m3fn")
    FLOAT8_E8M0 = ("float8_e8m0", 37, 8, ml_dtypes.float8_e8m0fnu, "float8_e8m0fnu")
    FLOAT6_E3M2 = ("float6_e3m2", 38, 6, ml_dtypes.float6_e3m2fn, None)
    FLOAT6_E2M3 = ("float6_e2m3", 39, 6, ml_dtypes.float6_e2m3fn, None)
    FLOAT4_E2M1 = ("float4_e2m1", 40, 4, ml_dtypes.float4_e2m1fn, None)
    FLOAT4_E1M2 = ("float4_e1m2", 41, 4, None, None)

    def __init__(
        self,
        label: str,
        code: int,
        bits: int,
        numpy_type: type | None,
        torch_name: str | None,
    ) -> None:
        self.label = label
        self.code = code
        self.bits = bits
        self.numpy_type = numpy_type
        self.torch_name = torch_name

    # Members are the only objects of their kind. Enum hashes names in Python, which counts where
    # types are looked up for each of a hundred thousand tensors.
    __hash__ = object.__hash__

    @property
    def is_floating(self) -> bool:
        """True for real floating-point types of any width."""
        return "float" in self.label or self in (DType.FLOAT64, DType.BFLOAT16)

    def byte_count(self, elements: int) -> int:
        """Bytes that ``elements`` packed elements take, rounded up to whole bytes."""
        return (elements * self.bits + 7) // 8

    @classmethod
    def from_code(cls, code: int) -> DType:
        """The type with that ATB code.

        Raises:
            ValueError: no such code.
        """
        try:
            return _BY_CODE[code]
        except KeyError:
            raise ValueError(f"unknown ATB dtype code {code}") from None

    @classmethod
    def of_torch(cls, name: str) -> DType | None:
        """The type that torch calls ``torch.float16``, or ``float16``; None for another one."""
        plain = name.removeprefix("torch.")
        return next((each for each in cls if each.torch_name == plain), None)

    @classmethod
    def from_label(cls, label: str) -> DType:
        """The type that ATB prints as ``label``; ACL spellings (``ACL_BF16``) are accepted too.

        Raises:
            ValueError: no such name.
        """
        wanted = label.lower().removeprefix("acl_")
        wanted = {"bfloat16": "bf16", "float32": "float", "float64": "double"}.get(wanted, wanted)
        for member in cls:
            if member.label == wanted:
                return member
        raise ValueError(f"unknown dtype name {label!r}")


_BY_CODE = {member.code: member for member in DType}
