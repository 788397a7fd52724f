"""What a weight is that should be golden's and is not: transposed, scaled, that of another layer.

Who loads a checkpoint wrongly makes one of a few mistakes, and the values of weights show which.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ait_llm.core import DType
from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array

_MOST = 1 << 24  # elements of a weight that is looked at
_LOOKED_AT = 64  # elements that tell whether another weight is worth reading
_CLOSE = 1e-5
_COARSE = 2.0**-7  # two roundings to bf16


def likeness(
    name: str, mine: Tensor, golden: Mapping[str, Tensor], own: str, right: Tensor | None
) -> str:
    """What a weight is instead, as a clause; empty where it is nothing known.

    Args:
        name: of my weight.
        mine: its values.
        golden: golden's weights by name.
        own: golden's name of the weight that it should be.
        right: that weight.
    """
    try:
        return _likeness(name, mine, golden, own, right)
    except AitError:
        return ""  # who compares it tells what is wrong


def _likeness(
    name: str, mine: Tensor, golden: Mapping[str, Tensor], own: str, right: Tensor | None
) -> str:
    if not mine.dtype.is_floating or not 1 < int(np.prod(mine.shape)) <= _MOST:
        return ""
    ours = mine.nd().astype(np.float64)
    if right is not None and right.shape == mine.shape:
        theirs, close = right.nd().astype(np.float64), _closeness(mine, right)
        if ours.ndim == 2 and ours.shape[0] == ours.shape[1] and _are_close(ours.T, theirs, close):
            return "it is that of golden, transposed"
        factor = _factor(ours, theirs, close)
        if factor is not None:
            return f"it is that of golden times {factor:.4g}"
    if np.ptp(ours) == 0:
        return ""  # norms of ones are those of every layer
    kind = name.rpartition(".")[2]
    for other, tensor in golden.items():
        if other != own and other.rpartition(".")[2] == kind and tensor.shape == mine.shape:
            close = _closeness(mine, tensor)
            start = tensor.numpy(mmap=True).reshape(-1)[:_LOOKED_AT].astype(np.float64)
            if not _are_close(ours.reshape(-1)[:_LOOKED_AT], start, close):
                continue
            if _are_close(ours, tensor.nd().astype(np.float64), close):
                return f"it is golden's `{other}`"
    return ""


def _closeness(one: Tensor, other: Tensor) -> float:
    """Relative difference that two copies of one weight may have."""
    exact = DType.FLOAT32, DType.FLOAT64
    return _CLOSE if one.dtype in exact and other.dtype in exact else _COARSE


def _are_close(one: Array, other: Array, close: float) -> bool:
    size = float(np.abs(other).max(initial=0.0))
    return bool(size) and np.allclose(one, other, rtol=close, atol=size * _CLOSE)


def _factor(ours: Array, theirs: Array, close: float) -> float | None:
    """By what number golden's weight was multiplied; None if by none, or by 1."""
    energy = float((theirs * theirs).sum())
    if not energy or not np.isfinite(energy):
        return None
    factor = float((ours * theirs).sum()) / energy
    if not np.isfinite(factor) or not factor or abs(factor - 1) <= close:
        return None
    return factor if _are_close(ours, theirs * factor, close) else None
