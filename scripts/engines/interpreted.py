"""Kernels of Triton in its interpreter, on a machine without a device."""

from __future__ import annotations

import os
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported

import ml_dtypes
import numpy as np
import triton.language as tl
from triton.runtime import interpreter

STORED = {
    tl.float8e4nv: ml_dtypes.float8_e4m3fn,
    tl.bfloat16: ml_dtypes.bfloat16,
    tl.float16: np.float16,
    tl.float32: np.float32,
}


def converted(values: np.ndarray, of: Any, to: Any, _: object) -> np.ndarray:
    """To the nearest, as devices do: the interpreter cuts, or loses what is carried."""
    exact = values.view(STORED[of]).astype(np.float32)
    made = exact.clip(-448, 448) if to is tl.float8e4nv else exact
    return made.astype(STORED[to]).view(f"uint{to.primitive_bitwidth}")


interpreter._convert_float = converted
