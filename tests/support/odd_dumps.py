"""ATB dumps with chosen values, for the search for what is odd."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ait_llm.core import DType, TensorDesc
from ait_llm.formats import write_tensor

Values = np.ndarray[Any, Any]
_TYPES = {
    np.dtype(np.float32): DType.FLOAT32,
    np.dtype(np.float16): DType.FLOAT16,
    np.dtype(ml_dtypes.bfloat16): DType.BFLOAT16,
    np.dtype(np.int32): DType.INT32,
    np.dtype(np.int8): DType.INT8,
}


def write_operation(
    root: Path,
    path: str,
    inputs: Sequence[Values],
    outputs: Sequence[Values],
    *,
    process: str = "0_4242",
    step: int = 0,
    params: Mapping[str, Any] | None = None,
) -> None:
    """Write one operation: ``path`` is ``0_LinearOperation`` or ``0_Layer/1_LinearOperation``."""
    folder = root / "tensors" / process / str(step) / path / "after"
    folder.mkdir(parents=True, exist_ok=True)
    for role, tensors in (("in", inputs), ("out", outputs)):
        for index, values in enumerate(tensors):
            write_tensor(folder / f"{role}tensor{index}.bin", values, desc_of(values))
    if params is not None:
        (folder.parent / "op_param.json").write_text(json.dumps(params) + "\n")


def desc_of(values: Values) -> TensorDesc:
    """How ATB describes an array."""
    return TensorDesc(_TYPES[values.dtype], values.shape)


def half(*shape: int, **places: float) -> Values:
    """Halves in float16; ``at_1_2=nan`` puts a value into row 1, column 2."""
    values = np.full(shape, 0.5, np.float16)  # a mask has zeros and ones
    for place, value in places.items():
        values[tuple(int(part) for part in place.removeprefix("at_").split("_"))] = value
    return values
