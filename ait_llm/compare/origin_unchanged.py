"""Results of members that a module hands on as they are, where golden's module changes them first.

A cap of logits or a factor that is left out behind the last member may move values by less than
their limits. Yet both captures say what was done: golden's module makes another value of its
member's result, and mine returns that of its own to the bit. So the difference of the two modules'
results is golden's change, unless their members differ by as much already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ait_llm.compare.origin_run import RunStructure, operation_key, record_key
from ait_llm.compare.origin_values import RunValues
from ait_llm.compare.roundings import rounding_of
from ait_llm.core.comparison import Comparison, TensorRecord
from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.judge.pairs import DISTANCE
from ait_llm.program.describe import is_float, size_of
from ait_llm.program.flow import Value, parents_of
from ait_llm.program.one_pass import Pass

_MOST = 1 << 24  # elements that are looked at
_FAR = 2.0  # of what the members differ by


@dataclass(frozen=True, slots=True)
class Unchanged:
    """A result of a member that a module hands on, and golden's changes first.

    Attributes:
        module, member: indices of my operations.
        index: of the comparison of the module's results.
        distance: of golden's change, as a relative Euclidean distance.
    """

    module: int
    member: int
    index: int
    distance: float


def unchanged(
    values: RunValues, comparisons: Sequence[Comparison], golden: RunStructure
) -> Iterator[Unchanged]:
    """What modules of my run hand on as it is, and those of golden do not, in execution order.

    Only modules that are the same in both programs, by path and class, are told.

    Args:
        values: my run and what the comparisons say about it.
        comparisons: all of the report.
        golden: the golden run.
    """
    for value, known in sorted(values.evidence.items()):
        member = values.producer(value)
        if member is None or known.failed or len(known.passed) < 2:
            continue
        own = next((each for each in known.passed if values.is_own_output(member, each)), None)
        if own is None:
            continue
        made = golden.value_at(comparisons[own].golden)
        around = {*values.flow.ancestors(member)}
        for index in known.passed:
            module, item = values.place_of(index), comparisons[index]
            other = golden.value_at(item.golden)
            if module not in around or made is None or other in (None, made):
                continue
            assert other is not None
            if not (_are_results(item) and _is_same(values, golden, module, item.golden)):
                continue
            if not _is_same(values, golden, member, comparisons[own].golden):
                continue
            distance = _change(item, comparisons[own], made, other)
            if distance is not None:
                yield Unchanged(module, member, index, distance)


def may_hand_on(run: Pass, comparisons: Sequence[Comparison], indices: Sequence[int]) -> bool:
    """True if the results of a module are further from golden than those of its last member.

    Args:
        run: my run.
        comparisons: all of the report.
        indices: those of the run.
    """
    places = {operation_key(operation): op for op, operation in enumerate(run.operations)}
    errors: dict[int, dict[object, float]] = {}
    for index in indices:
        item = comparisons[index]
        if item.mine is None or not _are_results(item) or DISTANCE not in item.values:
            continue
        op = places.get(record_key(item.mine))
        if op is not None:
            made = errors.setdefault(op, {})
            made[item.mine.shape] = max(item.values[DISTANCE], made.get(item.mine.shape, 0.0))
    last: dict[tuple[int, object], float] = {}
    for op, around in enumerate(parents_of(run)):
        if around is not None:
            last |= {(around, shape): error for shape, error in errors.get(op, {}).items()}
    return any(
        error > _FAR * last.get((op, shape), error)
        for op, made in errors.items()
        for shape, error in made.items()
    )


def _are_results(item: Comparison) -> bool:
    return all(each is not None and each.role == "out" for each in (item.golden, item.mine))


def _is_same(values: RunValues, golden: RunStructure, op: int, record: TensorRecord | None) -> bool:
    """True if golden's operation at a record is mine, by name and class."""
    mine, other = values.run.operations[op], golden.operation_at(record)
    return other is not None and (mine.name, mine.type) == (other.name, other.type)


def _change(whole: Comparison, part: Comparison, made: Value, other: Value) -> float | None:
    """How much golden's module changes; None if roundings, or its member, may explain it."""
    error = whole.values.get(DISTANCE, 0.0)
    if error <= _FAR * part.values.get(DISTANCE, error):
        return None
    records = [each for each in (whole.golden, whole.mine) if each is not None]
    distance = _distance(made.uses[0].tensor, other.uses[0].tensor)
    return distance if distance is not None and distance > max(map(rounding_of, records)) else None


def _distance(one: Tensor, other: Tensor) -> float | None:
    """How far two tensors are apart; None if that is not known."""
    if not (one.has_data and other.has_data and is_float(one) and is_float(other)):
        return None
    if size_of(one) != size_of(other) or size_of(one) > _MOST:
        return None
    try:
        first, last = (np.asarray(each.nd(), np.float64).reshape(-1) for each in (one, other))
    except AitError:
        return None  # a damaged file tells nothing
    size = float(np.linalg.norm(last))
    return float(np.linalg.norm(last - first)) / size if size else None
