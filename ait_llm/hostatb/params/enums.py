"""Enumerations that several parameter classes share, with the library's names and values."""

from __future__ import annotations

from enum import IntEnum


class AclDataType(IntEnum):
    """Element types as the runtime numbers them."""

    ACL_DT_UNDEFINED = -1
    ACL_FLOAT = 0
    ACL_FLOAT16 = 1
    ACL_INT8 = 2
    ACL_INT32 = 3
    ACL_UINT8 = 4
    ACL_INT16 = 6
    ACL_UINT16 = 7
    ACL_UINT32 = 8
    ACL_INT64 = 9
    ACL_UINT64 = 10
    ACL_DOUBLE = 11
    ACL_BOOL = 12
    ACL_STRING = 13
    ACL_COMPLEX64 = 16
    ACL_COMPLEX128 = 17
    ACL_BF16 = 27
    ACL_INT4 = 29
    ACL_UINT1 = 30
    ACL_COMPLEX32 = 33


class AclFormat(IntEnum):
    """Storage formats as the runtime numbers them."""

    ACL_FORMAT_UNDEFINED = -1
    ACL_FORMAT_NCHW = 0
    ACL_FORMAT_NHWC = 1
    ACL_FORMAT_ND = 2
    ACL_FORMAT_NC1HWC0 = 3
    ACL_FORMAT_FRACTAL_Z = 4
    ACL_FORMAT_NC1HWC0_C04 = 12
    ACL_FORMAT_HWCN = 16
    ACL_FORMAT_NDHWC = 27
    ACL_FORMAT_FRACTAL_NZ = 29
    ACL_FORMAT_NCDHW = 30
    ACL_FORMAT_NDC1HWC0 = 32
    ACL_FRACTAL_Z_3D = 33


class InputLayout(IntEnum):
    """Order of batch, head and sequence axes of attention tensors."""

    TYPE_BSND = 0
    TYPE_BNSD = 1


class QuantType(IntEnum):
    """Element type that a quantising operator produces."""

    QUANT_UNQUANT = 0
    QUANT_UNDEFINED = 0
    QUANT_INT4 = 1
    QUANT_INT8 = 2
    QUANT_INT16 = 3
    QUANT_FLOAT8 = 4
    QUANT_FLOAT16 = 5


class DynamicQuantType(IntEnum):
    """Whether scales are computed from the data, and symmetrically or not."""

    DYNAMIC_QUANT_UNDEFINED = 0
    DYNAMIC_QUANT_SYMMETRIC = 1
    DYNAMIC_QUANT_ASYMMETRIC = 2


class ActivationType(IntEnum):
    """Activation functions."""

    ACTIVATION_UNDEFINED = 0
    ACTIVATION_RELU = 1
    ACTIVATION_GELU = 2
    ACTIVATION_FAST_GELU = 3
    ACTIVATION_SWISH = 4
    ACTIVATION_LOG = 5
    ACTIVATION_SWIGLU_FORWARD = 6
    ACTIVATION_SWIGLU_BACKWARD = 7
    ACTIVATION_SIGMOID = 8
    ACTIVATION_FASTER_GELU_FORWARD = 9
    ACTIVATION_MAX = 10


class CommMode(IntEnum):
    """How the ranks of a collective run."""

    COMM_UNDEFINED = -1
    COMM_MULTI_PROCESS = 0
    COMM_MULTI_THREAD = 1
