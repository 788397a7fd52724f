"""The matrix product inside a Linear operation, term by term, on as many elements as needed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ait_llm.diagnosis.call import Call
from ait_llm.diagnosis.residual import Array, Residual

_ROWS, _COLUMNS = 64, 64  # of the output that are looked at
_AGREES = 1e-4  # relative: the product that we see is the one that golden computes
_ND_DIMS = 2


@dataclass(frozen=True, eq=False)
class Product:
    """Some rows and columns of ``x @ w + rest``.

    Attributes:
        x: ``[rows, terms]``.
        w: ``[terms, columns]``.
        rest: bias, ``[rows, columns]``.
        rows, columns: which ones of the output, seen as a matrix.
        residual: of these elements.
    """

    x: Array
    w: Array
    rest: Array
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    residual: Residual

    @property
    def terms(self) -> int:
        """Length of the sums."""
        return int(self.x.shape[1])


def product_of(call: Call, residual: Residual) -> Product | None:
    """The product of a call; None where it is no plain product of two matrices of floats."""
    params = call.params
    if call.golden.name != "LinearOperation" or len(call.inputs) < _ND_DIMS:
        return None
    x, weight = call.inputs[:2]
    if x is None or weight is None or weight.dim() != _ND_DIMS or not x.is_floating_point():
        return None
    if not weight.is_floating_point() or params.get("enAccum") or params.get("matmulType"):
        return None
    left, right = x.double().numpy(), weight.double().numpy()
    if params.get("transposeA"):
        left = left.swapaxes(-1, -2)
    if params.get("transposeB", True):
        right = right.T
    left = left.reshape(-1, left.shape[-1])
    if left.shape[1] != right.shape[0] or residual.size != len(left) * right.shape[1]:
        return None
    rows, columns = _some(len(left), _ROWS), _some(right.shape[1], _COLUMNS)
    left, right = left[rows], right[:, columns]

    def part(values: Array) -> Array:
        return values.reshape(-1, values.shape[-1])[np.ix_(rows, columns)]

    exact, bias = part(residual.exact), np.zeros((1, len(columns)))
    if params.get("hasBias", True):
        given = call.inputs[2] if len(call.inputs) > _ND_DIMS else None
        if given is None or given.numel() != residual.mine.shape[-1]:
            return None
        bias = given.double().numpy().reshape(1, -1)[:, columns]
    size = np.abs(left) @ np.abs(right) + np.abs(bias)
    if bool((np.abs(exact - left @ right - bias) > _AGREES * size).any()):
        return None
    own = Residual(part(residual.mine), exact, residual.dtype, residual.terms, residual.unit)
    return Product(left, right, np.broadcast_to(bias, exact.shape), rows, columns, own)


def _some(size: int, most: int) -> NDArray[np.intp]:
    """Indices of some of many rows, evenly spread."""
    return np.unique(np.linspace(0, size - 1, min(size, most)).round().astype(np.intp))
