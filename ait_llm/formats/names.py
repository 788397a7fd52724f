"""Names and codes of the storage formats that ATB prints and writes.

Codes are those of ``aclFormat``; names are the lower-case words in ATB's operation tables.
"""

from __future__ import annotations

from types import MappingProxyType

FORMAT_NC1HWC0 = 3
FORMAT_FRACTAL_NZ_C0_16 = 50
FORMAT_FRACTAL_NZ_C0_32 = 51

FORMAT_NAMES = MappingProxyType(
    {
        -1: "undefined",
        0: "nchw",
        1: "nhwc",
        2: "nd",
        3: "nc1hwc0",
        4: "fractal_z",
        12: "nc1hwc0_c04",
        16: "hwcn",
        27: "ndhwc",
        29: "fractal_nz",
        30: "ncdhw",
        32: "ndc1hwc0",
        33: "fractal_z_3d",
        35: "nc",
        47: "ncl",
        50: "fractal_nz_c0_16",
        51: "fractal_nz_c0_32",
    }
)

# Formats whose elements lie in row-major order of the dims, without padding.
PLAIN_FORMATS = frozenset({-1, 0, 1, 2, 16, 27, 30, 35, 47})

_CODES = {name: code for code, name in FORMAT_NAMES.items()}


def format_name(code: int) -> str:
    """Name of a format code; ``undefined(7)`` for a code without a name."""
    return FORMAT_NAMES.get(code, f"undefined({code})")


def format_code(name: str) -> int:
    """Code of a format name; ACL spellings (``ACL_FORMAT_ND``) are accepted too.

    Raises:
        ValueError: no such name.
    """
    wanted = name.strip().lower().removeprefix("acl_").removeprefix("format_")
    try:
        return _CODES[wanted]
    except KeyError:
        raise ValueError(f"unknown format name {name!r}") from None
