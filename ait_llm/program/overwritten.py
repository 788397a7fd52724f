"""What operators write into their arguments, where they return nothing: by versions of storages."""

from __future__ import annotations

from collections import defaultdict
from math import prod

from ait_llm.dumps.model import Tensor
from ait_llm.program.describe import shape_of
from ait_llm.program.flow import Flow, Value
from ait_llm.program.operators import is_uninitialised
from ait_llm.program.storages import place_of

# A region of a storage: offset, dims and strides.
_Region = tuple[int, tuple[int, ...], tuple[int, ...]]


class Overwritten:
    """Values by the regions of storages that hold them, version by version.

    Args:
        found: the values of a pass whose tensors have identities.
    """

    def __init__(self, found: Flow) -> None:
        self._flow = found
        self._versions: dict[int, dict[_Region, dict[int, Value]]]
        self._versions = defaultdict(lambda: defaultdict(dict))
        changing = any(op.inputs and not op.outputs for op in found.run.operations)
        for value in found.values if changing else ():
            place = _place(value.uses[0].tensor)
            if place is not None:
                storage, version, region = place
                self._versions[storage][region][version] = value

    def results(self, op: int) -> list[tuple[Tensor, Value]]:
        """The arguments that an operator changes, with the values that they are then.

        They are seen later in the next version of their storage, and nobody else makes that.
        """
        found = []
        for tensor in self._flow.run.operations[op].inputs:
            place = _place(tensor)
            if place is None:
                continue
            storage, version, region = place
            later = {
                number: value
                for number, value in self._versions[storage].get(region, {}).items()
                if number > version and value.uses[0].op > op and value.uses[0].role == "in"
            }
            if later:
                found.append((tensor, later[min(later)]))
        return found

    def kept(self, op: int) -> list[tuple[Value, Value]]:
        """Values before and after an operator that shares their storage but wrote beside them."""
        changed = self.results(op)
        found: list[tuple[Value, Value]] = []
        for tensor, after in changed:
            before, now = _place(tensor), _place(after.uses[0].tensor)
            if before is None or now is None:
                continue
            regions = [place[2] for place in map(_place_of_first, changed) if place is not None]
            for region, values in self._versions[before[0]].items():
                old, new = values.get(before[1]), values.get(now[1])
                if old is None or new is None or not all(_is_beside(region, r) for r in regions):
                    continue
                if (old, new) not in found and new.uses[0].op > op:
                    found.append((old, new))
        return found

    def is_fresh(self, value: Value) -> bool:
        """True for memory that was handed out and not written yet."""
        writes = value.writes
        return bool(writes) and is_uninitialised(self._flow.run.operations[writes[0].op])


def _place_of_first(changed: tuple[Tensor, Value]) -> tuple[int, int, _Region] | None:
    return _place(changed[0])


def _place(tensor: Tensor) -> tuple[int, int, _Region] | None:
    identity, shape = tensor.identity, shape_of(tensor)
    if identity is None or shape is None:
        return None
    storage, version, offset, *lying = place_of(tensor, identity)
    dims, strides = ((prod(shape),), ()) if len(lying) == 1 else (shape, identity.strides)
    return storage, version, (offset, dims, strides)


def _is_beside(one: _Region, other: _Region) -> bool:
    """True if two regions are other columns of the same rows."""
    if len(one[1]) != 2 or len(other[1]) != 2 or one[2] != other[2] or one[2][1] != 1:
        return False
    row, (first, second) = one[2][0], (one[0] % one[2][0], other[0] % other[2][0])
    if first + one[1][1] > row or second + other[1][1] > row:
        return False
    return first + one[1][1] <= second or second + other[1][1] <= first
