"""What is known of the two programs after some captures, and where they differ first."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ait_llm.compare import compare
from ait_llm.compare.origin_reasons import comparisons_by_run
from ait_llm.compare.origin_run import operation_key
from ait_llm.compare.origin_values import RunValues
from ait_llm.compare.origin_words import own_error
from ait_llm.core.comparison import Comparison, Origin, Report, Verdict
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.faults import FaultElsewhereError
from ait_llm.judge.evidence import Introduced, Unknown, introduced_error
from ait_llm.match.model import Match
from ait_llm.program.one_pass import Pass

_EXACT = tuple(f"{name}_stat_absolute_error" for name in ("max", "min", "mean", "l2norm"))


def has_values(operation: Operation, roles: Iterable[str] = ("in", "out")) -> bool:
    """True if the values of these tensors of an operation were captured."""
    wanted = set(roles)
    return all(
        tensor.has_data
        for tensor in (*operation.inputs, *operation.outputs)
        if tensor.role in wanted
    )


@dataclass(frozen=True, slots=True)
class Partner:
    """A golden tensor that answers one of mine.

    Attributes:
        operation: its operation.
        tensor: the tensor.
    """

    operation: Operation
    tensor: Tensor


class Place:
    """The run of mine in which the first difference is.

    Args:
        golden, mine: the runs that answer each other.
        matches: what answers what.
        comparisons: all of the report.
        indices: those of this run.
    """

    def __init__(
        self,
        golden: Pass,
        mine: Pass,
        matches: Sequence[Match],
        comparisons: Sequence[Comparison],
        indices: Sequence[int],
    ) -> None:
        self.golden = golden
        self.mine = mine
        self.values = RunValues(mine, list(comparisons), indices)
        self._matches = matches
        self._comparisons = comparisons
        self._indices = indices

    @cached_property
    def failed(self) -> int | None:
        """The first computed value that does not agree with golden."""
        return self.values.first_failure()

    @cached_property
    def first_unequal(self) -> int | None:
        """The first computed value that is not equal to golden's to the bit, as far as told.

        It means something only where most values are equal: two kernels that round differently
        differ everywhere.
        """
        unequal = [
            value
            for value, known in self.values.evidence.items()
            if self.values.producer(value) is not None
            and any(not self._equal(index) for index in (*known.passed, *known.failed))
        ]
        return min(unequal, default=None)

    def _equal(self, index: int) -> bool:
        item = self._comparisons[index]
        if item.verdict is not Verdict.PASS:
            return False
        errors = [item.values[name] for name in _EXACT if name in item.values]
        errors += [item.values[name] for name in ("max_absolute_error",) if name in item.values]
        return all(error == 0 for error in errors)

    @cached_property
    def partners(self) -> Mapping[tuple[int, str, int], Partner]:
        """Golden tensors by index of my operation, role and index of its tensor."""
        ours = {operation_key(each): op for op, each in enumerate(self.mine.operations)}
        theirs = {operation_key(each): each for each in self.golden.operations}
        found: dict[tuple[int, str, int], Partner] = {}
        for match in self._matches:
            record, other = match.mine.record, match.golden.record
            op = ours.get((record.op, record.op_id, record.step, record.call))
            operation = theirs.get((other.op, other.op_id, other.step, other.call))
            if op is not None and operation is not None:
                key = (op, record.role, record.index)
                if key not in found or other.role == "out":
                    found[key] = Partner(operation, match.golden.tensor)
        return found

    def partners_of(self, ops: Iterable[int], roles: Iterable[str]) -> list[Partner]:
        """Golden tensors that answer inputs or outputs of some operations."""
        wanted, sides = set(ops), set(roles)
        return [
            partner
            for (op, role, _), partner in self.partners.items()
            if op in wanted and role in sides
        ]

    def find(self, origin: Origin) -> int | None:
        """Index of the operation that a comparison blames; None if it ran elsewhere."""
        wanted = (origin.op, origin.op_id, origin.step, origin.device, origin.pid)
        for op, each in enumerate(self.mine.operations):
            if (each.name, str(each.op_id), each.step, each.device, each.pid) == wanted:
                return op
        return None

    @property
    def is_alike(self) -> bool:
        """True if both programs compute with the same, so that equal operators give equal bits."""
        return self.golden.kind == self.mine.kind

    def producers(self, ops: Iterable[int]) -> list[int]:
        """The operations that computed the inputs of some operations, in execution order."""
        found = {
            producer
            for op in ops
            for value in self.values.inputs(op)
            if (producer := self.values.producer(value.number)) is not None
        }
        return sorted(found - set(ops))


@dataclass(frozen=True, slots=True)
class Picture:
    """A comparison of what was captured so far.

    Attributes:
        report: the comparison.
        places: the earliest run with a failure; if nothing failed, the runs that may differ
            nevertheless, the earliest first.
        earlier: runs of the same process before a failure; they may have left it in a cache.
        runs: all, the earliest first.
    """

    report: Report
    places: tuple[Place, ...]
    earlier: tuple[Place, ...] = ()
    runs: tuple[Place, ...] = ()

    @property
    def failed(self) -> bool:
        """True if a tensor fails."""
        return any(place.failed is not None for place in self.places)

    @property
    def origin(self) -> Origin | None:
        """What the comparison takes for the origin, the earliest step first."""
        return min(self.report.origins, key=lambda each: each.step, default=None)

    def examined(self, origin: Origin) -> Introduced | Unknown | None:
        """The recomputation of the operation that is blamed; None if its values are not there."""
        for place in (*self.places, *self.earlier):
            op = place.find(origin)
            if op is not None and has_values(operation := place.mine.operations[op]):
                if not place.values.is_leaf(op):
                    return Unknown(f"{operation.type} computes between its members")
                return introduced_error(operation, in_place=place.values.works_in_place(op))
        return None

    def inherits(self, origin: Origin) -> bool:
        """True if an input of the operation that is blamed does not agree with golden already."""
        wanted = (origin.op, origin.op_id, origin.step, origin.device, origin.pid)
        return any(
            item.verdict is Verdict.FAIL
            and (record := item.mine) is not None
            and record.role == "in"
            and (record.op, record.op_id, record.step, record.device, record.pid) == wanted
            for item in self.report.comparisons
        )

    def wrong_before(self) -> Origin | None:
        """The first operation of earlier runs that is wrong by its own inputs, among those of which
        values were captured: what it wrote into a cache is read after the failure.
        """
        for place in self.earlier:
            for op in place.values.leaves():
                each = place.mine.operations[op]
                if not each.tensors or not has_values(each):
                    continue
                found = introduced_error(each, in_place=place.values.works_in_place(op))
                if isinstance(found, Introduced) and found.is_wrong:
                    return Origin(
                        each.name,
                        str(each.op_id),
                        each.type,
                        each.step,
                        each.device,
                        each.pid,
                        evidence=f"{own_error(found)}; a later step reads what it wrote",
                        introduced=found.error if math.isfinite(found.error) else None,
                    )
        return None

    def is_compared(self, origin: Origin) -> bool:
        """True if the outputs of the operation that is blamed were compared by their values."""
        for place in (*self.places, *self.earlier):
            op = place.find(origin)
            if op is not None:
                known = [each.tensor.has_data for each in place.partners_of([op], ("out",))]
                return bool(known) and all(known)
        return False


Looker = Callable[[Path, Path], Picture]


def look(golden: Path, mine: Path, stop: threading.Event | None = None) -> Picture:
    """Compare two dumps that hold the statistics of all tensors and the values of some.

    Raises:
        AitError: they cannot be compared.
        FaultElsewhereError: an exception that nobody foresaw cost one of its results.
    """
    found: list[tuple[Pass, Pass, Sequence[Match]]] = []
    report = compare(golden, mine, stop=stop, on_matches=found.extend)
    for trace in report.faults.values():  # what it leads to is not to be trusted
        raise FaultElsewhereError(trace)
    runs = [mine_run for _, mine_run, _ in found]
    by_run = comparisons_by_run(report.comparisons, runs)
    places = [
        Place(golden_run, my_run, matches, report.comparisons, by_run.get(place, ()))
        for place, (golden_run, my_run, matches) in enumerate(found)
    ]
    places.sort(key=lambda place: place.mine.step)
    failing = [place for place in places if place.failed is not None]
    if failing:
        run = failing[0].mine
        earlier = (
            place
            for place in places
            if (place.mine.device, place.mine.pid) == (run.device, run.pid)
            and place.mine.step < run.step
        )
        return Picture(report, (failing[0],), tuple(earlier), tuple(places))
    unsure = (place for place in places if not place.is_alike or place.first_unequal is not None)
    return Picture(report, tuple(unsure), runs=tuple(places))
