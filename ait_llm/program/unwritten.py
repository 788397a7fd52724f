"""Memory that was handed out and not written yet: what it holds means nothing."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ait_llm.dumps.model import Tensor
from ait_llm.dumps.tensors import Identity
from ait_llm.formats.elements import Array
from ait_llm.program.describe import integers, shape_of
from ait_llm.program.flow import Value
from ait_llm.program.operators import (
    is_in_place,
    is_moving,
    is_received_into,
    is_uninitialised,
    writes_all,
)
from ait_llm.program.overwritten import Overwritten
from ait_llm.program.program import Program
from ait_llm.program.roles import Role

_MOST = 1 << 24  # elements of a storage; of larger ones every look is taken for unwritten
_Region = tuple[int, tuple[int, ...], tuple[int, ...]]  # offset, dims, strides


@dataclass(slots=True)
class _Fresh:
    """A storage that was handed out unwritten, and what was written to it since.

    Attributes:
        written: regions, with the version of the storage that has them first and the value there.
        known: answers given, by version and region.
    """

    written: list[tuple[int, _Region, Value | None]] = field(default_factory=list)
    known: dict[tuple[int, _Region], bool] = field(default_factory=dict)

    def holds(self, version: int, region: _Region) -> bool:
        """True if some element of a region is not written in a version."""
        if (version, region) not in self.known:
            self.known[version, region] = self._lacks(version, region)
        return self.known[version, region]

    def _lacks(self, version: int, region: _Region) -> bool:
        since = [each for number, each, _ in self.written if number <= version]
        if not since or region in since:
            return not since
        size = max(map(_end, (region, *since)))
        if size > _MOST:
            return True
        seen = np.zeros(size, dtype=np.bool_)
        for each in since:
            _stretch(seen, each)[...] = True
        return not bool(_stretch(seen, region).all())


@dataclass(frozen=True, slots=True)
class Filled:
    """A value that was written piece by piece.

    Attributes:
        value: the whole.
        region: where it lies in its storage.
        parts: regions in the order in which they were written, and what was written there.
    """

    value: Value
    region: _Region
    parts: tuple[tuple[_Region, Value | None], ...]


class Unwritten:
    """Which tensors of a program show memory that nobody may have written.

    What an operator reads for good has been written, or the program is wrong. What it only looks at
    in another shape, or overwrites, may hold anything, until all of it was written.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._storages: dict[int, _Fresh] = defaultdict(_Fresh)
        self._values: set[int] = set()
        self._overwritten = Overwritten(program.flow)
        for op, role in enumerate(program.roles):
            if role is Role.OPERATOR:
                self._follow(op)

    def _follow(self, op: int) -> None:
        """Note what an operator hands out, passes on or writes."""
        operation = self._program.operations[op]
        if not operation.outputs:
            self._follow_arguments(op)
        fresh = is_uninitialised(operation)
        passes_on = is_moving(operation) and any(
            self._is_known(op, tensor) for tensor in operation.inputs[:1]
        )
        for tensor in operation.outputs:
            identity = tensor.identity
            if fresh and identity is not None:
                self._storages[identity.storage] = _Fresh()
            if fresh or passes_on:
                self._add(op, tensor)
            elif identity is not None and identity.storage in self._storages:
                region = _region(tensor, identity)
                if region is not None and writes_all(operation):
                    written = self._program.value(op, tensor)
                    known = self._storages[identity.storage].written
                    known.append((identity.version, region, written))

    def filled(self) -> list[Filled]:
        """Values that no operator gives as a whole: memory that several of them filled."""
        found: dict[int, Filled] = {}
        for op in range(len(self._program.operations)) if self._storages else ():
            for tensor in self._program.operations[op].inputs:
                value, identity = self._program.value(op, tensor), tensor.identity
                if value is None or identity is None or value.writes or value.number in found:
                    continue
                fresh = self._storages.get(identity.storage)
                region = _region(tensor, identity)
                if fresh is None or region is None or fresh.holds(identity.version, region):
                    continue
                parts = [
                    (part, written)
                    for version, part, written in fresh.written
                    if version <= identity.version
                ]
                found[value.number] = Filled(value, region, tuple(parts))
        return list(found.values())

    def _follow_arguments(self, op: int) -> None:
        """Note what an operator that returns nothing writes into its arguments."""
        for tensor, after in self._overwritten.results(op):
            before, now = tensor.identity, after.uses[0].tensor.identity
            if before is None or now is None or before.storage not in self._storages:
                continue
            region = _region(tensor, before)
            if region is not None:
                self._storages[before.storage].written.append((now.version, region, after))

    def holds(self, op: int, tensor: Tensor) -> bool:
        """True if a tensor of an operation may not have been written."""
        if self._is_overwritten_first(op, tensor):
            return True
        if not self._values and not self._storages:
            return False
        operation = self._program.operations[op]
        if self._program.roles[op] is not Role.OPERATOR:
            value = self._program.value(op, tensor)
            return value is not None and value.number in self._values
        if is_uninitialised(operation):
            return tensor.role == "out"
        is_target = is_in_place(operation) and tensor.index == 0
        is_target |= not operation.outputs  # what it makes is in its arguments
        is_target |= is_received_into(operation, tensor)
        if is_moving(operation) or (is_target and tensor.role == "in"):
            return self._is_known(op, tensor)
        return False

    def _is_overwritten_first(self, op: int, tensor: Tensor) -> bool:
        """True for memory of which a capture of calls sees nothing before a call writes into it.

        Nobody captures ``torch.empty_like`` as such, and what it finds may be what an earlier value
        left there.
        """
        if not self._program.run.traits.finished or tensor.role != "in" or tensor.index:
            return False
        if self._program.operations[op].type != "__setitem__":
            return False
        value = self._program.value(op, tensor)
        return value is not None and (len(value.uses) == 1 or self._writes_each_row(op, tensor))

    def _writes_each_row(self, op: int, tensor: Tensor) -> bool:
        """True if a call writes to all rows of its first argument, which its second one names."""
        inputs, shape = self._program.operations[op].inputs, shape_of(tensor)
        rows = integers(inputs[1], _MOST) if len(inputs) > 1 and shape else None
        if rows is None or not shape or rows.shape != shape[:1]:
            return False
        return bool(np.array_equal(np.sort(rows), np.arange(shape[0])))

    def _is_known(self, op: int, tensor: Tensor) -> bool:
        identity = tensor.identity
        if identity is not None and identity.storage in self._storages:
            region = _region(tensor, identity)
            fresh = self._storages[identity.storage]
            return region is None or fresh.holds(identity.version, region)
        value = self._program.value(op, tensor)
        return value is not None and value.number in self._values

    def _add(self, op: int, tensor: Tensor) -> None:
        value = self._program.value(op, tensor)
        if value is not None:
            self._values.add(value.number)


def _region(tensor: Tensor, identity: Identity) -> _Region | None:
    shape = shape_of(tensor)
    if shape is None or len(shape) != len(identity.strides) or min(identity.strides, default=0) < 0:
        return None
    return identity.offset, shape, tuple(identity.strides)


def _end(region: _Region) -> int:
    """Behind the last element of a region."""
    offset, dims, strides = region
    if 0 in dims:
        return offset
    return offset + sum((n - 1) * step for n, step in zip(dims, strides, strict=True)) + 1


def _stretch(seen: Array, region: _Region) -> Array:
    """A region of a storage, as a view; steps are of one byte."""
    offset, dims, strides = region
    return as_strided(seen[offset:], dims, strides)
