"""One failing pair of tensors looked at closely: where it differs, and what stands there."""

from __future__ import annotations

from dataclasses import dataclass

WINDOW = (3, 5)
"""Rows and columns of the neighbourhood of an element: its own row and column in the middle."""

ERROR_DECADES = (-9.0, 3.0)
"""Powers of ten between which the codes 1 to 254 of :attr:`Closeup.errors` lie."""


@dataclass(frozen=True, slots=True)
class Closeup:
    """What a picture of one pair needs.

    The aligned tensors are looked at as a matrix: the last axis across (channels), all axes
    before it down (tokens, or requests and tokens).

    Attributes:
        index: of the comparison in the report.
        shape: dims of both tensors after alignment.
        cells: rows and columns of the map; each cell stands for a part of the matrix.
        errors: one byte for each cell in row-major order, as base64: the largest absolute error in
            the cell over golden's root mean square. 0 is none, 255 not finite on one side only,
            others lie evenly between the powers of ten of :data:`ERROR_DECADES`.
        low, high: smallest and largest finite value of both sides.
        golden_counts, my_counts: how many elements lie in each of as many equal parts between them;
            of a large tensor, in a sample.
        worst: numbers of the elements with the largest absolute errors in row-major order, the
            largest first.
        golden_windows, my_windows: the values around each of them in the matrix, one neighbourhood
            of :data:`WINDOW` after the other; NaN beyond the edges.
    """

    index: int
    shape: tuple[int, ...]
    cells: tuple[int, ...]
    errors: str
    low: float = 0.0
    high: float = 0.0
    golden_counts: tuple[int, ...] = ()
    my_counts: tuple[int, ...] = ()
    worst: tuple[int, ...] = ()
    golden_windows: tuple[float, ...] = ()
    my_windows: tuple[float, ...] = ()
