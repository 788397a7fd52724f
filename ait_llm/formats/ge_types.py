"""Codes of element types and formats in dump files of the graph engine.

The numbers of element types are those of ``OutputDataType`` in the dump description, which are
neither ``aclDataType`` nor ``ge::DataType``. Source: ``dump_data.proto`` in hicann/runtime.
"""

from __future__ import annotations

from types import MappingProxyType

from ait_llm.core import DType

# Name, and the type whose values the bytes are; UNDEFINED where there is none.
GE_TYPES: tuple[tuple[str, DType], ...] = (
    ("undefined", DType.UNDEFINED),
    ("float", DType.FLOAT32),
    ("float16", DType.FLOAT16),
    ("int8", DType.INT8),
    ("uint8", DType.UINT8),
    ("int16", DType.INT16),
    ("uint16", DType.UINT16),
    ("int32", DType.INT32),
    ("int64", DType.INT64),
    ("uint32", DType.UINT32),
    ("uint64", DType.UINT64),
    ("bool", DType.BOOL),
    ("double", DType.FLOAT64),
    ("string", DType.STRING),
    ("dual_sub_int8", DType.INT8),
    ("dual_sub_uint8", DType.UINT8),
    ("complex64", DType.COMPLEX64),
    ("complex128", DType.COMPLEX128),
    ("qint8", DType.INT8),
    ("qint16", DType.INT16),
    ("qint32", DType.INT32),
    ("quint8", DType.UINT8),
    ("quint16", DType.UINT16),
    ("resource", DType.UINT64),  # a handle of 8 bytes
    ("string_ref", DType.STRING),
    ("dual", DType.UNDEFINED),
    ("variant", DType.UNDEFINED),
    ("bf16", DType.BFLOAT16),
    ("int4", DType.INT4),
    ("uint1", DType.UINT1),
    ("int2", DType.INT2),
    ("uint2", DType.UINT2),
    ("complex32", DType.COMPLEX32),
    ("hifloat8", DType.HIFLOAT8),
    ("float8_e5m2", DType.FLOAT8_E5M2),
    ("float8_e4m3fn", DType.FLOAT8_E4M3FN),
    ("float8_e8m0", DType.FLOAT8_E8M0),
    ("float6_e3m2", DType.FLOAT6_E3M2),
    ("float6_e2m3", DType.FLOAT6_E2M3),
    ("float4_e2m1", DType.FLOAT4_E2M1),
    ("float4_e1m2", DType.FLOAT4_E1M2),
    ("hifloat4", DType.UNDEFINED),
    ("hifloat4_scale", DType.UNDEFINED),
)

FORMAT_FRACTAL_Z = 4
FORMAT_NDC1HWC0 = 32

_FORMATS = (
    "nchw",
    "nhwc",
    "nd",
    "nc1hwc0",
    "fractal_z",
    "nc1c0hwpad",
    "nhwc1c0",
    "fsr_nchw",
    "fractal_deconv",
    "c1hwnc0",
    "fractal_deconv_transpose",
    "fractal_deconv_sp_stride_trans",
    "nc1hwc0_c04",
    "fractal_z_c04",
    "chwn",
    "fractal_deconv_sp_stride8_trans",
    "hwcn",
    "nc1khkwhwc0",
    "bn_weight",
    "filter_hwck",
    "hashtable_lookup_lookups",
    "hashtable_lookup_keys",
    "hashtable_lookup_value",
    "hashtable_lookup_output",
    "hashtable_lookup_hits",
    "c1hwncoc0",
    "md",
    "ndhwc",
    "fractal_zz",
    "fractal_nz",
    "ncdhw",
    "dhwcn",
    "ndc1hwc0",
    "fractal_z_3d",
    "cn",
    "nc",
    "dhwnc",
    "fractal_z_3d_transpose",
    "fractal_zn_lstm",
    "fractal_z_g",
    "reserved",
    "all",
    "null",
    "nd_rnn_bias",
    "fractal_zn_rnn",
    "yuv",
    "yuv_a",
    "ncl",
    "fractal_z_wino",
    "c1hwc0",
    "fractal_nz_c0_16",
    "fractal_nz_c0_32",
    "fractal_nz_c0_2",
    "fractal_nz_c0_4",
    "fractal_nz_c0_8",
)

GE_FORMATS = MappingProxyType({**dict(enumerate(_FORMATS)), 255: "max"})

_PLAIN = {
    "nchw",
    "nhwc",
    "nd",
    "chwn",
    "hwcn",
    "filter_hwck",
    "md",
    "ndhwc",
    "ncdhw",
    "dhwcn",
    "cn",
    "nc",
    "dhwnc",
    "ncl",
}
# Elements in row-major order of the stored dims, without padding.
GE_PLAIN_FORMATS = frozenset(code for code, name in GE_FORMATS.items() if name in _PLAIN)
GE_NZ_FORMATS = frozenset(
    code for code, name in GE_FORMATS.items() if name.startswith("fractal_nz")
)


def ge_type(code: int) -> DType:
    """The type whose values the bytes are; UNDEFINED for one without values or without a name."""
    return GE_TYPES[code][1] if 0 <= code < len(GE_TYPES) else DType.UNDEFINED


def ge_type_name(code: int) -> str:
    """Name of an element type; ``undefined(99)`` for a code without a name."""
    return GE_TYPES[code][0] if 0 <= code < len(GE_TYPES) else f"undefined({code})"


def ge_type_of(name: str) -> DType:
    """The type of that name, in any spelling that GE prints: ``DT_FLOAT16``, ``float16``."""
    wanted = name.strip().lower().removeprefix("dt_")
    wanted = {"float32": "float", "bfloat16": "bf16", "float64": "double"}.get(wanted, wanted)
    return next((dtype for known, dtype in GE_TYPES if known == wanted), DType.UNDEFINED)


def ge_format_name(code: int) -> str:
    """Name of a format; ``undefined(99)`` for a code without a name."""
    return GE_FORMATS.get(code, f"undefined({code})")
