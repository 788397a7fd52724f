"""Results of their last members that modules hand on as they are, where golden's change them.

A cap of logits or a factor that is left out behind the last member may move values by less than
their limits. Yet both captures say what was done: of the same result one module makes another
value, by more than roundings are, and the other none. Only modules that are the same in both
programs, by path and class, are held against one another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ait_llm.compare.origin_run import RunStructure
from ait_llm.compare.origin_values import RunValues
from ait_llm.compare.roundings import rounding_of
from ait_llm.core.comparison import Comparison, TensorRecord
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.judge.pairs import DISTANCE
from ait_llm.program.describe import is_float, size_of
from ait_llm.program.flow import parents_of

_MOST = 1 << 24  # elements that are looked at
_FAR = 2.0  # of what the members differ by
_ROUNDINGS = 2.0  # more than those of a chain of operations element by element
_LESS = 3.0  # by how much roundings are less than what changes a value


@dataclass(frozen=True, slots=True)
class Unchanged:
    """What a module makes of the result of its last member on one side alone.

    Attributes:
        module, member: indices of my operations.
        index: of the comparison of the module's results.
        golden, mine: how far what each side's module returns is from what its member does, as a
            relative Euclidean distance.
    """

    module: int
    member: int
    index: int
    golden: float
    mine: float


@dataclass(frozen=True, slots=True)
class _Made:
    """One result: which comparison shows it, and how far it is from golden's."""

    op: int
    index: int
    error: float


def may_hand_on(values: RunValues, comparisons: Sequence[Comparison]) -> bool:
    """True if results of a module are further from golden than those of its last member.

    Args:
        values: my run and what the comparisons say about it.
        comparisons: all of the report.
    """
    return any(_suspects(values, comparisons))


def unchanged(
    golden: RunStructure, values: RunValues, comparisons: Sequence[Comparison]
) -> Iterator[Unchanged]:
    """Modules that change what their last member makes on one side alone, in execution order.

    Args:
        golden: the golden run.
        values: my run and what the comparisons say about it.
        comparisons: all of the report.
    """
    for whole, part in _suspects(values, comparisons):
        sides: list[float | None] = []
        for side, name in ((golden, "golden"), (values, "mine")):
            records = (getattr(comparisons[each.index], name) for each in (part, whole))
            sides.append(_distance(*(_tensor(side, record) for record in records)))
        theirs, ours = sides
        if theirs is None or ours is None:
            continue
        less, more = sorted((theirs, ours))
        operations = [
            (values.run.operations[each.op], golden.operation_at(comparisons[each.index].golden))
            for each in (whole, part)
        ]
        item = comparisons[whole.index]
        rounding = max(rounding_of(each) for each in (item.golden, item.mine) if each is not None)
        if more > max(_ROUNDINGS * rounding, _LESS * less) and all(map(_are_same, operations)):
            yield Unchanged(whole.op, part.op, whole.index, theirs, ours)


def _suspects(
    values: RunValues, comparisons: Sequence[Comparison]
) -> Iterator[tuple[_Made, _Made]]:
    """Results of modules and of their last members that are much nearer to golden's."""
    found: dict[int, dict[object, _Made]] = {}
    for index in values.indices:
        item = comparisons[index]
        if item.mine is None or item.golden is None or DISTANCE not in item.values:
            continue
        op = values.place_of(index)
        if op is None or {item.mine.role, item.golden.role} != {"out"}:
            continue
        if item.mine.shape == item.golden.shape:
            made = _Made(op, index, item.values[DISTANCE])
            found.setdefault(op, {}).setdefault(item.mine.shape, made)
    last: dict[int, dict[object, _Made]] = {}
    for op, around in enumerate(parents_of(values.run)):
        if around is not None:
            last.setdefault(around, {}).update(found.get(op, {}))
    for op, results in found.items():
        for shape, whole in results.items():
            part = last.get(op, {}).get(shape)
            if part is not None and whole.error > _FAR * part.error:
                yield whole, part


def _are_same(pair: tuple[Operation, Operation | None]) -> bool:
    """True if two operations have one name and class."""
    mine, golden = pair
    return golden is not None and (mine.name, mine.type) == (golden.name, golden.type)


def _tensor(run: RunStructure, record: TensorRecord) -> Tensor | None:
    operation = run.operation_at(record)
    outputs = () if operation is None else operation.outputs
    return next((each for each in outputs if each.index == record.index), None)


def _distance(one: Tensor | None, other: Tensor | None) -> float | None:
    """How far two tensors are apart; None if that is not known."""
    if one is None or other is None or not (one.has_data and other.has_data):
        return None
    if not (is_float(one) and is_float(other)) or size_of(one) > _MOST:
        return None
    try:
        first, last = (np.asarray(each.nd(), np.float64) for each in (one, other))
    except AitError:
        return None  # a damaged file tells nothing
    size = float(np.linalg.norm(first))
    far = float(np.linalg.norm(last - first)) / size if size else math.nan
    return far if math.isfinite(far) else None
