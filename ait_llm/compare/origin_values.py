"""What the comparisons say about each value of one of my runs, and what it was computed from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ait_llm.compare.origin_run import RunStructure, record_key
from ait_llm.core.comparison import Comparison, Verdict
from ait_llm.dumps.model import Role
from ait_llm.judge.pairs import DISTANCE
from ait_llm.program.one_pass import Pass
from ait_llm.program.operators import is_uninitialised


@dataclass(slots=True)
class Evidence:
    """What is known of one value.

    Attributes:
        passed, failed: indices of comparisons of it.
        agrees: it is golden's in what counts, though nothing compared it: a mask of another form.
        near: by which relative error, where that is known.
        is_explained: comparisons of it failed, by no more than what it was computed from explains.
    """

    passed: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    agrees: bool = False
    near: float | None = None
    is_explained: bool = False

    @property
    def is_right(self) -> bool:
        """True if it agrees, and all comparisons of it passed."""
        return (self.agrees or bool(self.passed)) and not self.failed


@dataclass(frozen=True, slots=True)
class Upstream:
    """What a value was computed from, back to values that agree with golden.

    Attributes:
        operations: indices of the operations on the way, in execution order.
        agreeing: values at which the way back ended because they agree.
        differing: values from outside of the run that do not agree.
        unknown: values from outside of the run that were not compared.
    """

    operations: tuple[int, ...]
    agreeing: tuple[int, ...]
    differing: tuple[int, ...]
    unknown: tuple[int, ...]


class RunValues(RunStructure):
    """One of my runs with what was found out about its values.

    Args:
        run: my run.
        comparisons: all of the report; those of other runs are left out. :meth:`settle` changes
            them.
        indices: which of them have a tensor of this run on my side.

    Attributes:
        indices: the same.
    """

    def __init__(self, run: Pass, comparisons: list[Comparison], indices: Sequence[int]) -> None:
        super().__init__(run)
        self._comparisons = comparisons
        self.indices = indices
        self._forgotten: dict[int, Evidence] = {}

    @property
    def evidence(self) -> Mapping[int, Evidence]:
        """What is known, by number of the value."""
        return self._evidence

    @cached_property
    def _evidence(self) -> dict[int, Evidence]:
        found: dict[int, Evidence] = {}
        for index in self.indices:
            verdict = self._comparisons[index].verdict
            if (
                verdict in (Verdict.PASS, Verdict.FAIL)
                and (value := self.value_of(index)) is not None
            ):
                known = found.setdefault(value, Evidence())
                (known.passed if verdict is Verdict.PASS else known.failed).append(index)
        return found

    def value_of(self, index: int) -> int | None:
        """Number of the value that a comparison is about, on my side."""
        record = self._comparisons[index].mine
        if record is None or record.role not in ("in", "out"):
            return None
        op = self.places.get(record_key(record))
        if op is None:
            return None
        role: Role = "in" if record.role == "in" else "out"
        if role == "in" and record.index in self.overwritten.get(op, ()):
            return None  # its file holds what the operation left there
        value = self.flow.at(op, role, record.index)
        return value.number if value is not None else None

    def first_failure(self) -> int | None:
        """The first computed value that does not agree with golden, in execution order."""
        computed = (value for value in self.failed() if self.producer(value) is not None)
        return next(computed, None)

    def upstream(self, value: int, *, through: bool = False) -> Upstream:
        """What a value was computed from.

        Args:
            value: number of the value.
            through: do not stop at values that agree.
        """
        seen = {value}
        pending = [value]
        operations: dict[int, int] = {}
        agreeing, differing, unknown = [], [], []
        while pending:
            number = pending.pop()
            known = self.evidence.get(number)
            op = self.producer(number)
            if known and known.is_right and number != value:
                agreeing.append(number)
                if not through:
                    continue
            if op is None:
                if known and known.failed:
                    differing.append(number)
                elif not (known and known.is_right):
                    unknown.append(number)
                continue
            if number != value and is_uninitialised(self.run.operations[op]):
                continue  # fresh memory computes nothing, and who writes it all makes a new value
            operations[op] = max(number, operations.get(op, 0))
            for before in self.inputs(op):
                if before.number not in seen:
                    seen.add(before.number)
                    pending.append(before.number)
        ordered = sorted(operations, key=lambda op: operations[op])
        return Upstream(
            tuple(ordered), tuple(sorted(agreeing)), tuple(sorted(differing)), tuple(unknown)
        )

    def error(self, value: int) -> float | None:
        """Largest relative error in the comparisons of a value; None if it was not compared."""
        known = self.evidence.get(value)
        if known is None:
            return None
        found = [
            self._comparisons[index].values[DISTANCE]
            for index in (*known.failed, *known.passed)
            if DISTANCE in self._comparisons[index].values
        ]
        return max(found, default=known.near)

    def first_failed(self, value: int) -> int:
        """The failing comparison of the first that wrote or read a value, in execution order.

        A module is listed before its members, and writes after them.
        """
        uses = self.flow.values[value].uses
        order: dict[object, int] = {
            (use.op, use.role, use.tensor.index): at for at, use in enumerate(uses)
        }

        def when(index: int) -> tuple[int, int]:
            record, op = self._comparisons[index].mine, self.place_of(index)
            use = None if record is None else (op, record.role, record.index)
            return order.get(use, len(uses)), index

        return min(self.evidence[value].failed, key=when)

    def needed(self, values: Iterable[int]) -> dict[str, float]:
        """The limits that all comparisons of some values would just pass, by name."""
        found: dict[str, float] = {}
        for value in values:
            known = self.evidence.get(value, Evidence())
            for index in (*known.failed, *known.passed):
                for name, number in self._comparisons[index].needed.items():
                    found[name] = max(number, found.get(name, 0.0))
        return found

    def failures(self, value: int) -> list[Comparison]:
        """The failing comparisons of a value."""
        known = self.evidence.get(value, Evidence())
        return [self._comparisons[index] for index in known.failed]

    def failed(self) -> list[int]:
        """Values that do not agree with golden, in execution order."""
        return sorted(value for value, known in self.evidence.items() if known.failed)

    def forget(self, value: int) -> list[int]:
        """From now on a value counts as not compared; the comparisons that failed."""
        known = self._evidence.pop(value, Evidence())
        self._forgotten[value] = known
        return known.failed

    def settle(self, value: int, agreeing: Mapping[int, Comparison]) -> None:
        """From now on a value is known by these comparisons in place of those that failed.

        Args:
            value: number of the value.
            agreeing: comparisons of a part of it, each of which passed, by index; where there are
                none the value counts as not compared.
        """
        if not agreeing:
            self.forget(value)
            return
        for index, comparison in agreeing.items():
            self._comparisons[index] = comparison
        known = self.evidence[value]
        known.passed += agreeing
        known.failed.clear()

    def is_forgotten(self, index: int) -> bool:
        """True for a comparison of a value that counts as not compared."""
        return any(index in known.failed for known in self._forgotten.values())

    def clear(self, value: int) -> list[int]:
        """From now on a value counts as one that agrees; the comparisons that failed."""
        known = self.evidence[value]
        cleared = list(known.failed)
        known.passed += cleared
        known.failed.clear()
        known.is_explained = True
        return cleared

    def accept(self, value: int, error: float | None = None) -> None:
        """From now on a value counts as one that agrees, unless a comparison of it fails.

        Args:
            value: number of the value.
            error: by which relative error, where that is known.
        """
        known = self._evidence.setdefault(value, Evidence())
        known.agrees, known.near = True, error

    def trouble(self, value: int) -> str:
        """How a value that fails is off, in a few words; empty if it is not known."""
        known = self.evidence.get(value)
        for index in known.failed if known is not None else ():
            item = self._comparisons[index]
            if item.first_bad is not None and item.my_summary is not None:
                return f"{item.my_summary.nan} NaN, {item.my_summary.inf} Inf"
        error = self.error(value)
        return f"{error:.2g} relative error" if error is not None else ""

    def place_of(self, index: int) -> int | None:
        """The operation whose input or output a comparison is about, on my side."""
        record = self._comparisons[index].mine
        return None if record is None else self.places.get(record_key(record))

    def comparison_of(self, op: int) -> int | None:
        """The comparison that shows an operation's outputs best, None if they were not compared.

        One that failed before one that passed; then one of the tensor as this operation wrote it
        before one of the same value as another operation reads it. Those of a value that counts as
        not compared are shown where there is nothing else.
        """
        numbers = [value.number for value in self.outputs(op)]
        known = [self.evidence[each] for each in numbers if each in self.evidence]
        known = known or [self._forgotten[each] for each in numbers if each in self._forgotten]
        ranked = [
            (verdict, not self.is_own_output(op, index), index)
            for each in known
            for verdict, indices in enumerate((each.failed, each.passed))
            for index in indices
        ]
        return min(ranked)[2] if ranked else None

    def is_own_output(self, op: int, index: int) -> bool:
        """True for a comparison of a tensor that was dumped as an output of the operation."""
        mine = self._comparisons[index].mine
        return mine is not None and mine.role == "out" and self.places.get(record_key(mine)) == op
