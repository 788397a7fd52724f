"""FRACTAL_NZ, the blocked storage layout of matrices.

An ND matrix ``[..., m, n]`` is padded with zeros to multiples of 16 rows and n0 columns and stored
as ``[..., n1, m, n0]``: n1 column blocks, each with all rows. n0 is 16 for 2-byte elements and 32
for int8. Source: format definition of the acceleration library.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

ROW_BLOCK = 16


def column_block(dtype: torch.dtype) -> int:
    """Columns of one block (n0): 32 bytes' worth, or 16 for wider elements than int8."""
    return 32 if dtype.itemsize == 1 else 16


def nz_shape(shape: Sequence[int], dtype: torch.dtype) -> tuple[int, ...]:
    """The dims in which a matrix ``[..., m, n]`` is stored."""
    block = column_block(dtype)
    *batch, rows, columns = shape
    return (*batch, -(-columns // block), -(-rows // ROW_BLOCK) * ROW_BLOCK, block)


def nd_to_nz(matrix: Tensor) -> Tensor:
    """``[..., m, n]`` to ``[..., n1, m1 * 16, n0]``, padded with zeros."""
    block = column_block(matrix.dtype)
    rows, columns = matrix.shape[-2:]
    padding = (0, -columns % block, 0, -rows % ROW_BLOCK)
    padded = torch.nn.functional.pad(matrix, padding)
    split = padded.reshape(*padded.shape[:-1], padded.shape[-1] // block, block)
    return split.transpose(-3, -2).contiguous()


def nz_to_nd(blocks: Tensor) -> Tensor:
    """``[..., n1, m, n0]`` to ``[..., m, n1 * n0]``; padding stays."""
    return blocks.transpose(-3, -2).flatten(-2)


def retag_nz(matrix: Tensor) -> Tensor:
    """A matrix dumped with logical 2-D dims but NZ bytes, as ``[1, n1, m, n0]`` blocks."""
    block = column_block(matrix.dtype)
    rows, columns = matrix.shape
    return matrix.reshape(-1).reshape(1, columns // block, rows, block)
