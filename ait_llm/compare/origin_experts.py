"""The weights of all experts, which one operator reads as one, held to those of golden's module.

Golden captured the experts as one block, so that nothing between their products is compared. The
weights are: expert by expert. Where most of them are golden's, the tensor is known, and an expert
that has others is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ait_llm.compare.origin_finding import OTHER_WEIGHT, Finding, Telling
from ait_llm.compare.origin_run import RunStructure, record_key
from ait_llm.compare.origin_values import Upstream
from ait_llm.compare.origin_words import first_that_fails
from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array

_MOST_BYTES = 256 << 20  # of weights that are read
_DIMS = 3  # experts, rows, columns
_NEAR = 1e-6  # of the largest weight: float32 of the same number, stored in two ways
_TOLD = 4  # experts that are named


class _Other(NamedTuple):
    """Experts of which the weight is another one.

    Attributes:
        name: of golden's parameter.
        experts: their numbers.
        place: of the element that is furthest off.
        golden, mine: its values.
    """

    name: str
    experts: tuple[int, ...]
    place: tuple[int, ...]
    golden: float
    mine: float


class Experts:
    """Looks for weights of single experts that are not golden's.

    Args:
        tell: makes findings about my run.
        golden: the golden run, as far as it is known.
    """

    def __init__(self, tell: Telling, golden: RunStructure | None) -> None:
        self._tell = tell
        self._values = tell.values
        self._golden = golden

    def other_weight(self, near: Upstream, failed: int) -> Finding | None:
        """An operator whose weights are golden's but for those of some experts.

        Args:
            near: the way back from the failure.
            failed: number of the value.
        """
        try:
            return self._other_weight(near, failed)
        except AitError:
            return None  # a damaged file tells nothing

    def _other_weight(self, near: Upstream, failed: int) -> Finding | None:
        way = frozenset(near.operations)
        parameters: dict[str, Tensor] | None = None
        for number in near.unknown:
            uses = [use for use in self._values.flow.values[number].reads if use.op in way]
            if not uses or not _is_of_experts(uses[0].tensor):
                continue
            parameters = self._parameters(failed) if parameters is None else parameters
            found = _differing(uses[0].tensor.nd(), parameters)
            if found is not None:
                text = f"{_told(uses[0].tensor.name, found)}; "
                text += first_that_fails(self._values, failed)
                return self._tell.stated(uses[0].op, text, OTHER_WEIGHT, None)
        return None

    def _parameters(self, failed: int) -> dict[str, Tensor]:
        """Weights of experts of golden's module that makes the value, by name."""
        golden = self._golden
        record = self._tell.comparisons[self._values.first_failed(failed)].golden
        op = None if golden is None or record is None else golden.places.get(record_key(record))
        if golden is None or op is None:
            return {}
        start = f"{golden.run.operations[op].name}."
        return {
            name: tensor
            for name, tensor in golden.run.weights.items()
            if name.startswith(start) and _is_of_experts(tensor)
        }


def _is_of_experts(tensor: Tensor) -> bool:
    if not tensor.has_data or not tensor.dtype.is_floating:
        return False
    return len(tensor.shape) == _DIMS and int(np.prod(tensor.shape)) * 4 <= _MOST_BYTES


def _differing(mine: Array, parameters: dict[str, Tensor]) -> _Other | None:
    """What differs of the parameter that most experts share; None if nothing or none does."""
    found = None
    for name, tensor in parameters.items():
        for golden in _parts(tensor.nd(), mine.shape):
            off = np.abs(golden.astype(np.float32) - mine.astype(np.float32))
            limit = _NEAR * float(np.abs(golden).max())
            other = np.flatnonzero(off.reshape(len(off), -1).max(1) > limit)
            if not other.size:
                return None
            if 2 * other.size <= len(off):
                place = tuple(map(int, np.unravel_index(int(off.argmax()), off.shape)))
                values = float(golden[place]), float(mine[place])
                found = _Other(name, tuple(map(int, other)), place, *values)
    return found


def _parts(golden: Array, shape: tuple[int, ...]) -> Iterator[Array]:
    """A weight of experts, its halves (gate and up), and the same turned round, of one shape."""
    for turned in (golden, golden.swapaxes(1, 2)):
        if turned.shape == shape:
            yield turned
        elif turned.shape == (shape[0], 2 * shape[1], shape[2]):
            yield turned[:, : shape[1]]
            yield turned[:, shape[1] :]


def _told(name: str, found: _Other) -> str:
    experts = ", ".join(map(str, found.experts[:_TOLD]))
    if len(found.experts) > _TOLD:
        experts += f" and {len(found.experts) - _TOLD} more"
    place = ", ".join(map(str, found.place))
    return (
        f"{name} is golden's `{found.name}` but for expert {experts}, most at [{place}]: "
        f"{found.mine:.6g} instead of {found.golden:.6g}"
    )
