"""Products of matrices with a scale for each block, such as MXFP8, MXFP4 and NVFP4.

Matrices arrive as the numbers that they store: floats of four bits are no pairs any more.

Source: ``torch.nn.functional.scaled_mm`` and its enumerations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ait_llm.formats.packed import places_in_tiles, scales_in_tiles
from ait_llm.opcheck.golden.base import UnverifiableError

_TENSOR, _ROW, _SQUARES = 0, 1, 5  # of ScalingType
_ALONG_ROWS: Mapping[int, int] = {2: 16, 3: 32, 4: 128}
_IN_TILES = 1  # of SwizzleType
_SIDE = 128


def product_of_scaled(given: Mapping[str, Any]) -> Tensor:
    """``self [M, K] . mat2 [K, N] + bias``, each times its scales, of which there may be several.

    Raises:
        UnverifiableError: its scales are of a kind that is not defined here.
    """
    if list(given["contraction_dim"]) not in ([], [1, 0]):
        raise UnverifiableError("it sums over other axes than the last and the first")
    left = _scaled(given["self"], given, "a")
    right = _scaled(given["mat2"].t(), given, "b")
    found: Tensor = left @ right.t()
    return found if given["bias"] is None else found + given["bias"]


def _scaled(matrix: Tensor, given: Mapping[str, Any], side: str) -> Tensor:
    """Rows over which is summed, times their scales."""
    scales, kinds, orders = (given[f"{name}_{side}"] for name in ("scale", "recipe", "swizzle"))
    orders = [*orders, *[0] * (len(scales) - len(orders))]
    for scale, kind, order in zip(scales, kinds, orders, strict=True):
        matrix = matrix * _for_each_element(scale, kind, order == _IN_TILES, matrix, side)
    return matrix


def _for_each_element(scale: Tensor, kind: int, in_tiles: bool, like: Tensor, side: str) -> Tensor:
    rows, columns = like.shape
    if kind == _TENSOR and scale.numel() == 1:
        return scale.reshape(())
    if kind == _ROW and scale.numel() == rows:
        return scale.reshape(rows, 1)
    if kind == _SQUARES and not in_tiles:
        high, wide = -(-rows // _SIDE), -(-columns // _SIDE)
        square = _oriented(scale, high, wide, side)
        square = square.repeat_interleave(_SIDE, 0)[:rows]
        return square.repeat_interleave(_SIDE, 1)[:, :columns]
    size = _ALONG_ROWS.get(kind)
    if size is None or columns % size:
        raise UnverifiableError(f"scales of kind {kind} are not defined here")
    blocks = columns // size
    found = in_rows(scale, rows, blocks) if in_tiles else _oriented(scale, rows, blocks, side)
    return found.repeat_interleave(size, 1)


def _oriented(scale: Tensor, rows: int, blocks: int, side: str) -> Tensor:
    """Scales as ``[rows, blocks]``; those of the right matrix may lie as it does, turned."""
    fits, fits_turned = scale.shape == (rows, blocks), scale.shape == (blocks, rows)
    if side == "b" and fits and fits_turned and scale.numel() > 1:
        raise UnverifiableError("its scales are as many for rows as for columns")
    if fits:
        return scale
    if side == "b" and fits_turned:
        return scale.t()
    raise UnverifiableError("its scales do not fit its matrices")


def in_rows(scale: Tensor, rows: int, blocks: int) -> Tensor:
    """Scales ``[rows, blocks]`` of those that lie in tiles.

    Raises:
        UnverifiableError: there are not as many.
    """
    if scale.numel() != scales_in_tiles(rows, blocks):
        raise UnverifiableError("its scales do not fill the tiles of its matrices")
    return scale.reshape(-1)[torch.from_numpy(places_in_tiles(rows, blocks))]


def result_of_scaled(given: Mapping[str, Any]) -> list[Tensor] | None:
    """What the product is, without values: torch infers it for pairs of small floats alone."""
    kind = given["out_dtype"]
    if not isinstance(kind, torch.dtype):
        return None
    shape = (given["self"].shape[0], given["mat2"].shape[1])
    return [torch.empty(shape, dtype=kind, device="meta")]
