"""What the operations of one run add to the error, each computed once more at most once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ait_llm.compare.origin_values import RunValues
from ait_llm.dumps.model import Operation
from ait_llm.judge.evidence import Gain, Introduced, Unknown, gain_of, introduced_error
from ait_llm.judge.plainly import is_plainly_right

Results = Mapping[int, Introduced | Unknown]
# Operations that are recomputed per failing run unless the user wants all.
BUDGET = 16
_EARLIER = 8  # times as many, where none of those is wrong
SKIPPED = Unknown("it is one of too many")


class Recomputing:
    """Recomputes operations of one run and remembers what came of it.

    Args:
        values: my run and what the comparisons say about it.
        deep: recompute every operation that is asked for.
        examine: measures what one operation adds.
        run: whether an operation, run once as it is, makes what was dumped.

    Attributes:
        examined: what the operations add that were recomputed, by their index.
    """

    def __init__(
        self,
        values: RunValues,
        *,
        deep: bool = False,
        examine: Callable[..., Introduced | Unknown] = introduced_error,
        run: Callable[[Operation], bool | None] = is_plainly_right,
    ) -> None:
        self.values = values
        self.run = run
        self.deep = deep
        self.examine = examine
        self.examined: dict[int, Introduced | Unknown] = {}

    def introduced(self, op: int) -> Introduced | Unknown:
        """The error that an operation adds, computed once."""
        known = self.examined.get(op)
        if known is None:
            operation = self.values.run.operations[op]
            if self.values.is_leaf(op):
                known = self.examine(operation, in_place=self.values.works_in_place(op))
                known = self._believable(op, known)
            else:
                known = Unknown(f"{operation.type} computes between its members")
            self.examined[op] = known
        return known

    def is_right(self, op: int) -> bool:
        """True if recomputing it showed no error of its own."""
        known = self.examined.get(op)
        return isinstance(known, Introduced) and not known.is_suspect

    def plain(self, op: int) -> Introduced | Unknown | None:
        """What an operation adds, where running it once as it is shows that it adds nothing.

        None where that shows nothing, and the operation has to be recomputed.
        """
        if op not in self.examined and self.values.is_leaf(op):
            operation = self.values.run.operations[op]
            if not self.values.works_in_place(op) and self.run(operation):
                self.examined[op] = Introduced(0.0, 0.0, 0, "")
        return self.examined.get(op)

    def of_golden(self, op: int, golden: Operation | None) -> Introduced | None:
        """The error that golden's operation adds, where that is wrong and mine is right."""
        mine = self.examined.get(op)
        if golden is None or not isinstance(mine, Introduced) or mine.is_suspect:
            return None
        if self.values.works_in_place(op) or golden.type != self.values.run.operations[op].type:
            return None
        found = self.examine(golden)
        return found if isinstance(found, Introduced) and found.is_wrong else None

    def _believable(self, op: int, result: Introduced | Unknown) -> Introduced | Unknown:
        """Mistrust a golden operator from which both sides are further away than from each other.

        Its definition may lack a variant that the library has. Where an operation hands on what it
        got, that this agrees says nothing of it.
        """
        if isinstance(result, Introduced) and result.is_wrong and math.isfinite(result.error):
            value = self.values.flow.at(op, "out", result.output)
            known = self.values.evidence.get(value.number) if value is not None else None
            error = self.values.error(value.number) if value is not None else None
            if value is not None and self.values.producer(value.number) != op:
                return result
            if known and known.is_right and error is not None and result.error > 4 * error:
                kind = self.values.run.operations[op].type
                return Unknown(f"the golden {kind} disagrees with both sides")
        return result

    def results(self, candidates: Sequence[int]) -> dict[int, Introduced | Unknown]:
        """The last ones of some operations, all of them where the search is deep.

        Earlier ones follow where those are right, so that none is suspected for not having been
        looked at.
        """
        first = 0 if self.deep else max(len(candidates) - BUDGET, 0)
        found = {op: self.introduced(op) for op in candidates[first:]}
        if first and guilty_of(found) is None:
            earlier = candidates[max(first - _EARLIER * BUDGET, 0) : first]
            found = {op: self.introduced(op) for op in earlier} | found
        return found

    def gain(self, operations: Sequence[int]) -> Gain | None:
        """What some operations together do to errors; None where one was not recomputed.

        An error passes one operation after another: those of other branches do not amplify it.

        Args:
            operations: in the order in which they end: a module behind its members.
        """
        if any(self.values.works_in_place(op) or self._reads_earlier(op) for op in operations):
            return None  # what was in the cache before is not known to be golden's
        if not all(isinstance(self.examined.get(op), Introduced) for op in operations):
            return None
        largest: dict[int, float] = {}
        permitted = 0.0
        for op in operations:
            makers = (self.values.producer(value.number) for value in self.values.inputs(op))
            before = max((largest.get(made, 1.0) for made in makers if made is not None), default=1)
            own = gain_of(self.values.run.operations[op])
            if isinstance(own, Gain):
                largest[op] = before * max(1.0, own.amplification)
                permitted = max(permitted, own.permitted)
            else:
                largest[op] = before
        return Gain(max(largest.values(), default=1.0), permitted)

    def _reads_earlier(self, op: int) -> bool:
        """True for attention that reads what earlier passes computed."""
        return any(one.before for one in self.values.run.operations[op].attended)


def guilty_of(results: Results) -> int | None:
    """The first operation whose error no arithmetic explains, else the worst of the suspects."""
    measured = {op: each for op, each in results.items() if isinstance(each, Introduced)}
    wrong = [op for op, each in measured.items() if each.is_wrong]
    if wrong:
        return min(wrong)
    suspects = [op for op, each in measured.items() if each.is_suspect]
    return max(suspects, key=lambda op: measured[op].excess, default=None)
