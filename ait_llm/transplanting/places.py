"""The values of mine whose golden counterpart is known, and golden's numbers for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ait_llm.compare.alignment import Aligned, ShapeMismatchError, align
from ait_llm.compare.values import Values, open_values
from ait_llm.core import FORMAT_ND, DType
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.match.model import REDUCED, SELF_CHECK, Match, Source
from ait_llm.match.programs.routed import ROUTED
from ait_llm.match.views import Part, Reorder, Reshape, Rows
from ait_llm.program.one_pass import Pass

_DUMP = "ait_dump"
_TORCH_TENSORS, _ATB_TENSORS = "torch_tensors", "tensors"
_MOVING = (Part, Reorder, Reshape, Rows)
"""Views that choose elements and change none."""
_UNWRITTEN = ("aten.empty", "aten.new_empty")
_STORED = 4  # bytes of the smallest floating number that is written
_SURE = 0.5  # confidence of a pair; below, it is one of several that fit


class Numbers(NamedTuple):
    """Golden's numbers for some elements of a tensor of mine.

    Attributes:
        values: the numbers, ``[elements]``.
        at: which elements, counted in row-major order; None for all of them.
    """

    values: Array
    at: Array | None


@dataclass(slots=True)
class Place:
    """A tensor of mine that golden has, too.

    Attributes:
        key: path of its file without the ending: below the folder of its process in a capture of
            PyTorch, below that of all processes in one of ATB.
        matches: the golden tensors that it consists of; mostly one.
    """

    key: str
    matches: list[Match] = field(default_factory=list)

    @property
    def op(self) -> str:
        """The operator or module of mine."""
        return self.matches[0].mine.operation.name

    @property
    def op_type(self) -> str:
        """Its type."""
        return self.matches[0].mine.operation.type

    @property
    def name(self) -> str:
        """Which of its values."""
        return self.matches[0].mine.name

    @property
    def step(self) -> int:
        """Step of mine."""
        return self.matches[0].mine.operation.step

    @property
    def process(self) -> tuple[int, int]:
        """Device and number of the process of mine."""
        operation = self.matches[0].mine.operation
        return operation.device, operation.pid

    @property
    def dtype(self) -> DType:
        """Element type of mine."""
        return self.matches[0].mine.tensor.dtype

    @property
    def size(self) -> int:
        """Elements of mine's value; 0 where a router decides how many rows it has."""
        match = self.matches[0]
        return 0 if ROUTED in match.reason else prod(match.mine.tensor.shape)

    @property
    def suspect(self) -> tuple[str, int, str]:
        """What is one suspect over all steps: operator, which call of it, which value."""
        operation = self.matches[0].mine.operation
        return operation.name, operation.call, self.name

    def numbers(self) -> Numbers:
        """Golden's numbers, in the order of mine's elements.

        Raises:
            AitError: a file cannot be read.
            ValueError: the two do not fit.
        """
        parts = []
        for match in self.matches:
            parts.append(_numbers(match))
            if parts[0].at is None:
                return parts[0]
        if len(parts) == 1:
            return parts[0]
        size = prod(self.matches[0].mine.tensor.shape)
        taken = np.zeros(size, bool)
        values, places = [], []
        for part in parts:
            at = np.arange(size) if part.at is None else part.at
            new = ~taken[at]
            taken[at] = True
            values.append(part.values[new])
            places.append(at[new])
        return Numbers(np.concatenate(values), np.concatenate(places))

    def mine_at(self, run: Path, numbers: Numbers) -> Array | None:
        """What a run of mine has there, in the order of golden's numbers; None if it has nothing.

        Args:
            run: its output folder, or the dump in it.
            numbers: as :meth:`numbers` gave them.
        """
        name = _escaped(self.key)
        root = run if run.name == _DUMP else run / _DUMP
        found = list(root.glob(f"{_TORCH_TENSORS}/*/{name}.pth"))
        found += root.glob(f"{_ATB_TENSORS}/{name}.bin")
        if len(found) != 1:
            return None
        array = _loaded(found[0])
        if self.size not in (0, array.size):
            return None
        if numbers.at is None:
            return array if array.size == numbers.values.size else None
        if numbers.at.size and int(numbers.at.max()) >= array.size:
            return None
        return array[numbers.at]


def find_places(found: Sequence[tuple[Pass, Pass, Sequence[Match]]]) -> list[Place]:
    """All places, in the order in which mine computes them.

    Args:
        found: the pairs of passes and their matches, as :func:`ait_llm.compare` hands them out.
    """
    places: dict[tuple[tuple[int, int], str], Place] = {}
    matches = [match for _, _, each in found for match in each if _can_be_put(match)]
    for match in sorted(matches, key=lambda match: match.mine.place):
        key = _key(match.mine.tensor.path)
        if key is not None:
            process = (match.mine.operation.device, match.mine.operation.pid)
            places.setdefault((process, key), Place(key)).matches.append(match)
    for place in places.values():  # the surest is whole in most cases
        place.matches.sort(key=lambda match: -match.confidence)
    return list(places.values())


def _can_be_put(match: Match) -> bool:
    operation = match.mine.operation
    return (
        operation.stands_for == "operation"
        and not match.mine.parameter
        and match.relation not in (REDUCED, SELF_CHECK)
        and match.confidence >= _SURE
        and not operation.type.startswith(_UNWRITTEN)
        and all(isinstance(view, _MOVING) for view in match.mine.views)
        and _has_data(match)
        and not _is_sent_elsewhere(match)
    )


def _is_sent_elsewhere(match: Match) -> bool:
    """True if a row lies where a router sends it, and is another row of the other side.

    With golden's choice of experts in place of mine, the rows of mine are others.
    """
    if ROUTED not in match.reason:
        return False
    try:
        golden, mine = (_flat(_elements(each)) for each in (match.golden, match.mine))
    except (AitError, ValueError):
        return True
    return not np.array_equal(golden, mine)


def _elements(source: Source) -> Aligned:
    """Which elements of its tensor the views of a side choose, counted in row-major order."""
    shape = source.tensor.shape
    return Aligned(Values(np.arange(prod(shape)).reshape(shape), DType.INT64), source.views)


def _flat(elements: Aligned) -> Array:
    return np.ascontiguousarray(elements.whole()).reshape(-1)


def _has_data(match: Match) -> bool:
    try:
        mine = match.mine.tensor
        return match.golden.tensor.has_data and mine.has_data and mine.format == FORMAT_ND
    except AitError:
        return False


def _key(path: Path) -> str | None:
    """The key of a tensor file; None for one of another kind."""
    parts = path.with_suffix("").parts
    if _TORCH_TENSORS in parts:
        below = parts[parts.index(_TORCH_TENSORS) + 2 :]
        return "/".join(below) if len(below) == 3 else None
    if _ATB_TENSORS in parts and path.suffix == ".bin":
        return "/".join(parts[parts.index(_ATB_TENSORS) + 1 :])
    return None


def _numbers(match: Match) -> Numbers:
    with open_values(match.golden.tensor) as golden:
        theirs, ours = Aligned(golden, match.golden.views), _elements(match.mine)
        try:
            align(theirs, ours)
        except ShapeMismatchError as error:
            raise ValueError(str(error)) from None
        values = plain(theirs.whole())
        if not match.mine.views:
            return Numbers(values, None)
        return Numbers(values, _flat(ours))


def plain(array: Array) -> Array:
    """Numbers in a type that NumPy stores, ``[elements]``: float32 for fewer bits."""
    kind = array.dtype
    if kind.kind in "iu":
        array = array.astype(np.int64)
    elif kind.kind != "b" and (kind.kind != "f" or kind.itemsize < _STORED):
        array = array.astype(np.float32)
    return np.array(array, copy=True, order="C").reshape(-1)


def _loaded(path: Path) -> Array:
    from ait_llm.formats import load

    return plain(load(path).array)


def _escaped(key: str) -> str:
    """A key as a pattern that means itself."""
    return "".join(f"[{each}]" if each in "*?[" else each for each in key)


def in_steps(places: Sequence[Place]) -> list[list[Place]]:
    """Places of one suspect together, in order."""
    groups: dict[tuple[str, int, str], list[Place]] = {}
    for place in places:
        groups.setdefault(place.suspect, []).append(place)
    return list(groups.values())
