"""The operator table: which types and formats of tensors go together.

``operator_table.json`` has the facts of the acceleration library's own table, one row for each
combination; ``scripts/vendor/operator_table.py`` makes it from a checkout of the public sources.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from ait_llm.core import FORMAT_ND, DType, TensorDesc

FORMATS = {
    "nchw": 0, "nhwc": 1, "nd": FORMAT_ND, "nc1hwc0": 3, "fractal_z": 4, "nc1hwc0_c04": 12,
    "hwcn": 16, "ndhwc": 27, "fractal_nz": 29, "ncdhw": 30, "ndc1hwc0": 32, "fractal_z_3d": 33,
}  # fmt: skip

Row = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Section:
    """The rows of one operator, or of one of its variants.

    Attributes:
        inputs, outputs: type and format of each tensor, row by row.
        optional_inputs, optional_outputs: indices of those that may be empty.
    """

    inputs: tuple[Row, ...]
    outputs: tuple[Row, ...]
    optional_inputs: tuple[int, ...]
    optional_outputs: tuple[int, ...]

    def has_inputs(self, inputs: Sequence[TensorDesc]) -> bool:
        """A row has inputs like these; empty ones fit any."""
        return any(_fits(row, inputs) for row in self.inputs)

    def has(self, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc]) -> bool:
        """A row has inputs and outputs like these."""
        return any(
            _fits(row, inputs) and (not outputs or _fits(made, outputs))
            for row, made in zip(self.inputs, self.outputs, strict=True)
        )


def _fits(row: Row, descs: Sequence[TensorDesc]) -> bool:
    if len(row) != len(descs):
        return False
    return all(
        desc.dtype is DType.UNDEFINED
        or not desc.shape
        or 0 in desc.shape
        or (desc.dtype.label, desc.format) == wanted
        for wanted, desc in zip(row, descs, strict=True)
    )


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    text = files(__package__).joinpath("operator_table.json").read_text("utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


@cache
def section(name: str) -> Section:
    """A section of the table.

    Raises:
        KeyError: there is none of that name.
    """
    found = _table()[name]
    return Section(
        tuple(_row(text) for text in found["in"]),
        tuple(_row(text) for text in found["out"]),
        tuple(found.get("optional_in", ())),
        tuple(found.get("optional_out", ())),
    )


def _row(text: str) -> Row:
    tensors = (word.partition("/") for word in text.split())
    return tuple((dtype, FORMATS[layout or "nd"]) for dtype, _, layout in tensors)


def has_section(name: str) -> bool:
    """Whether the table has a section of that name."""
    return name in _table()
