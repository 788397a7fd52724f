"""Where the error of one run started."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from ait_llm.compare.introduced import Introduced, Unknown, introduced_error
from ait_llm.compare.origin_growth import compared_after, growth
from ait_llm.compare.origin_values import RunValues, Upstream
from ait_llm.compare.origin_words import (
    after_all_cleared,
    by_comparison,
    by_definition,
    by_differing_input,
    by_elimination,
    by_recomputation,
    first_seen_later,
    without_failure,
)
from ait_llm.core.comparison import Comparison, Origin
from ait_llm.dumps.model import Operation

# Operations that are recomputed per failing run unless the user wants all.
_BUDGET = 16
_LOOKS = 4  # places of sudden growth that are looked at in a run without failure
# Errors that go in are amplified like a random change of all inputs; structure may add to that.
_BEYOND_AMPLIFICATION = 3.0


@dataclass(frozen=True, slots=True)
class Finding:
    """An origin, and whether the error may also have come from an earlier run.

    Attributes:
        origin: where it started.
        step: of the run that it is in.
        op: index of the operation in the run.
        own: the operation itself was seen to go wrong; else a former run may have caused it.
        defined_otherwise: it computes rightly, but not what golden does.
        guilty: the operation, where recomputing it shows an error of its own.
    """

    origin: Origin
    step: int
    op: int
    own: bool
    defined_otherwise: bool = False
    guilty: Operation | None = None


class Search:
    """Looks for the origin in one run and remembers what it recomputed.

    Args:
        values: my run and what the comparisons say about it.
        comparisons: all of the report.
        deep: recompute every operation, also where nothing failed.
        earlier: the searches of earlier runs of the same process, the first run first.
        examine: measures what one operation adds.
    """

    def __init__(
        self,
        values: RunValues,
        comparisons: Sequence[Comparison],
        *,
        deep: bool = False,
        earlier: Sequence[Search] = (),
        examine: Callable[..., Introduced | Unknown] = introduced_error,
    ) -> None:
        self.values = values
        self.examined: dict[int, Introduced | Unknown] = {}
        self._comparisons = comparisons
        self._deep = deep
        self._earlier = tuple(earlier)
        self._examine = examine

    def find(self, grown: Iterable[int] = ()) -> Finding | None:
        """The origin; None where nothing went wrong.

        Args:
            grown: comparisons that are worth a look where none failed.
        """
        failed = self.values.first_failure()
        if failed is None:
            return self._among_all() if self._deep else self._among_grown(grown)
        near = self.values.upstream(failed)
        if near.differing:
            return self._differing(near.differing[0])
        found = self._decide(near.operations, failed, near) or self._in_caches(near, failed)
        if found is not None:
            return found
        far = self.values.upstream(failed, through=True)
        if far.differing:
            return self._differing(far.differing[0])
        found = self._upstream(far, near, failed) or self._in_caches(far, failed)
        return found or self._defined_otherwise(failed, near) or self._unexplained(failed, near)

    def introduced(self, op: int) -> Introduced | Unknown:
        """The error that an operation adds, computed once."""
        known = self.examined.get(op)
        if known is None:
            operation = self.values.run.operations[op]
            if self.values.is_leaf(op):
                known = self._examine(operation, in_place=self.values.works_in_place(op))
                known = self._believable(op, known)
            else:
                known = Unknown(f"{operation.type} computes between its members")
            self.examined[op] = known
        return known

    def _believable(self, op: int, result: Introduced | Unknown) -> Introduced | Unknown:
        """Mistrust a golden operator from which both sides are further away than from each other.

        Its definition may lack a variant that the library has.
        """
        if isinstance(result, Introduced) and result.is_wrong and math.isfinite(result.error):
            value = self.values.flow.at(op, "out", result.output)
            known = self.values.evidence.get(value.number) if value is not None else None
            error = self.values.error(value.number) if value is not None else None
            if known and known.is_right and error is not None and result.error > 4 * error:
                kind = self.values.run.operations[op].type
                return Unknown(f"the golden {kind} disagrees with both sides")
        return result

    def _decide(self, candidates: Sequence[int], failed: int, near: Upstream) -> Finding | None:
        """Tell the guilty one of the operations between agreeing values and the first failure."""
        last = self.values.producer(failed)
        chosen = candidates if self._deep else candidates[-_BUDGET:]
        results = {op: self.introduced(op) for op in chosen}
        guilty = _guilty(results)
        unknown = [op for op in candidates if isinstance(results.get(op, _SKIPPED), Unknown)]
        if guilty is not None:
            doubtful = [op for op in unknown if op < guilty]
            return self._recomputed(guilty, results, doubtful, failed)
        if not unknown:
            return None
        first = unknown[0]
        cleared = len(candidates) - len(unknown)
        if len(candidates) == 1 and first == last:
            text = by_comparison(self.values, first, failed, near, self._comparisons)
        else:
            text = by_elimination(self.values, first, failed, unknown, cleared, results)
        return self._finding(first, text, len(unknown) == 1, unknown[1:])

    def _recomputed(
        self,
        guilty: int,
        results: Mapping[int, Introduced | Unknown],
        doubtful: Sequence[int],
        failed: int | None,
    ) -> Finding:
        measured = results[guilty]
        assert isinstance(measured, Introduced)
        others = [
            op
            for op, each in results.items()
            if op != guilty and isinstance(each, Introduced) and each.is_suspect
        ]
        certain = not doubtful and (measured.is_wrong or not others)
        text = by_recomputation(self.values, guilty, failed, results, self._comparisons)
        return self._finding(guilty, text, certain, [] if certain else sorted({*doubtful, *others}))

    def _upstream(self, far: Upstream, near: Upstream, failed: int) -> Finding | None:
        """Look among operations whose outputs pass, where the error grew most first."""
        left = [op for op in far.operations if op not in near.operations and self._has_values(op)]
        # Where nothing tells them apart, as in captures of statistics, the nearest ones first.
        left.sort(key=lambda op: (growth(self.values, op), op), reverse=True)
        chosen = left if self._deep else left[:_BUDGET]
        results = {op: self.introduced(op) for op in chosen}
        guilty = _guilty(results)
        return None if guilty is None else self._recomputed(guilty, results, [], failed)

    def _has_values(self, op: int) -> bool:
        """True if the outputs of an operation were saved, not only their statistics."""
        return all(tensor.has_data for tensor in self.values.run.operations[op].outputs)

    def _in_caches(self, way: Upstream, failed: int) -> Finding | None:
        """Look in earlier runs for what wrote a wrong value into a cache that is read here."""
        writers = self.values.writers_of_state()
        ranks = [rank for rank, op in enumerate(writers) if op in way.operations]
        budget = _BUDGET
        for search in self._earlier:
            there = search.values.writers_of_state()
            candidates = {
                op
                for rank in ranks
                if rank < len(there)
                for value in search.values.outputs(there[rank])
                for op in search.values.upstream(value.number).operations
            }
            chosen = sorted(candidates)[: None if self._deep else budget]
            budget -= len(chosen)
            results = {op: search.introduced(op) for op in chosen}
            guilty = _guilty(results)
            if guilty is not None:
                found = search._recomputed(guilty, results, [], None)
                seen = first_seen_later(self.values, failed)
                origin = replace(found.origin, evidence=f"{found.origin.evidence}; {seen}")
                return replace(found, origin=origin)
        return None

    def _defined_otherwise(self, failed: int, near: Upstream) -> Finding | None:
        """Operations that compute rightly, but not what golden computes.

        What goes in agrees with golden. If what comes out is further away than the operations can
        have amplified that, their parameters or weights differ.
        """
        if any(self.values.works_in_place(op) for op in near.operations):
            return None  # what was in the cache before is not known
        results = [self.examined.get(op) for op in near.operations]
        measured = [each for each in results if isinstance(each, Introduced)]
        error = self.values.error(failed)
        before = [each for n in near.agreeing if (each := self.values.error(n)) is not None]
        if error is None or not before or len(measured) < len(results):
            return None
        factor = math.prod(max(1.0, each.amplification) for each in measured)
        rounding = max(each.permitted for each in measured)
        if not math.isfinite(factor) or error <= _BEYOND_AMPLIFICATION * factor * max(
            *before, rounding
        ):
            return None
        op = self.values.producer(failed)
        assert op is not None
        text = by_definition(self.values, op, failed, max(before), factor, len(results))
        others = [candidate for candidate in near.operations if candidate != op]
        found = self._finding(op, text, not others, others)
        return replace(found, own=not others, defined_otherwise=True)

    def _unexplained(self, failed: int, near: Upstream) -> Finding:
        op = self.values.producer(failed)
        assert op is not None
        text = after_all_cleared(self.values, op, failed, self.examined)
        others = [candidate for candidate in near.operations if candidate != op]
        return replace(self._finding(op, text, False, others), own=False)

    def _among_grown(self, grown: Iterable[int]) -> Finding | None:
        """Operations before a sudden growth of the error, although all comparisons passed."""
        for index in islice(grown, _LOOKS):
            value = self.values.value_of(index)
            if value is None or self.values.producer(value) is None:
                continue
            near = self.values.upstream(value).operations[-_BUDGET:]
            results = {op: self.introduced(op) for op in near}
            guilty = _guilty(results)
            measured = results[guilty] if guilty is not None else None
            if guilty is not None and isinstance(measured, Introduced) and measured.is_wrong:
                found = self._recomputed(guilty, results, [], None)
                return self._tolerated(found, index)
        return None

    def _tolerated(self, found: Finding, index: int | None) -> Finding:
        """A finding that no comparison shows."""
        origin = found.origin
        shown = origin.index if origin.index is not None else index
        text = without_failure(origin.evidence)
        return replace(found, origin=replace(origin, evidence=text, index=shown))

    def _among_all(self) -> Finding | None:
        """Every operation recomputed although all comparisons passed."""
        results = {op: self.introduced(op) for op in self.values.leaves()}
        guilty = _guilty(results)
        if guilty is None:
            return None
        outputs = [value.number for value in self.values.outputs(guilty)]
        after = [self.values.evidence[each] for each in compared_after(self.values, outputs)]
        shown = min((index for each in after for index in each.passed), default=None)
        return self._tolerated(self._recomputed(guilty, results, [], None), shown)

    def _differing(self, value: int) -> Finding:
        readers = [use.op for use in self.values.flow.values[value].reads]
        leaves = [op for op in readers if self.values.is_leaf(op)]
        op = (leaves or readers)[0]
        text = by_differing_input(self.values, op, value, self._comparisons)
        known = self.values.evidence[value]
        found = self._finding(op, text, True, ())
        return replace(found, origin=replace(found.origin, index=min(known.failed)), own=False)

    def _finding(self, op: int, evidence: str, certain: bool, others: Iterable[int]) -> Finding:
        operation = self.values.run.operations[op]
        index = self.values.comparison_of(op)
        golden = None
        if index is not None and self.values.is_own_output(op, index):
            golden = self._comparisons[index].golden
        measured = self.examined.get(op)
        own = isinstance(measured, Introduced) and measured.is_suspect
        return Finding(
            Origin(
                op=operation.name,
                op_id=str(operation.op_id),
                op_type=operation.type,
                step=operation.step,
                device=operation.device,
                pid=operation.pid,
                golden_op=golden.op if golden is not None and golden.role == "out" else "",
                index=index,
                evidence=evidence,
                certain=certain,
                candidates=tuple(self.values.run.operations[other].name for other in others),
                introduced=measured.error if isinstance(measured, Introduced) else None,
                parts=operation.parts,
            ),
            self.values.run.step,
            op,
            own or measured is None or isinstance(measured, Unknown),
            guilty=operation if own else None,
        )


_SKIPPED = Unknown("it is one of too many")


def _guilty(results: Mapping[int, Introduced | Unknown]) -> int | None:
    """The first operation whose error no arithmetic explains, else the worst of the suspects."""
    measured = {op: each for op, each in results.items() if isinstance(each, Introduced)}
    wrong = [op for op, each in measured.items() if each.is_wrong]
    if wrong:
        return min(wrong)
    suspects = [op for op, each in measured.items() if each.is_suspect]
    return max(suspects, key=lambda op: measured[op].strict_excess, default=None)
