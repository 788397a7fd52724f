"""Origins that recomputing operations shows, or that are left where all others are right."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from ait_llm.compare.origin_finding import Finding, Telling
from ait_llm.compare.origin_growth import compared_after, growth
from ait_llm.compare.origin_looks import Look, Looks
from ait_llm.compare.origin_peers import Peers, like
from ait_llm.compare.origin_recomputing import BUDGET, SKIPPED, Recomputing, guilty_of
from ait_llm.compare.origin_stated import StatedDifferences
from ait_llm.compare.origin_values import Upstream
from ait_llm.compare.origin_words import (
    after_all_cleared,
    by_comparison,
    by_definition,
    by_elimination,
    by_golden,
    by_other_ranks,
    first_seen_later,
    has_own,
    only_one_is_given,
)
from ait_llm.judge.evidence import Introduced, Unknown
from ait_llm.program.roles_fx import is_view

# Bytes of operations that are recomputed where nothing failed, after the first; each is read and
# evaluated several times, mostly in float64.
_MOST_RECOMPUTED = 4 << 20
LOOKS = 4  # places of sudden growth that are looked at in a run without failure


class Operations:
    """Looks for operations that compute wrongly.

    Args:
        tell: makes findings about my run.
        recomputing: of the run.
        stated: what my run states otherwise than golden's.
        earlier: those of earlier runs of the same process, the first run first.
    """

    def __init__(
        self,
        tell: Telling,
        recomputing: Recomputing,
        stated: StatedDifferences,
        earlier: Sequence[Operations] = (),
    ) -> None:
        self.values = tell.values
        self.stated = stated
        self._comparisons = tell.comparisons
        self._tell = tell
        self._recomputing = recomputing
        self._earlier = tuple(earlier)

    def wrong(self, near: Upstream, failed: int) -> Finding | None:
        """An operation whose own error no arithmetic explains."""
        chosen = near.operations if self._recomputing.deep else near.operations[-BUDGET:]
        results = {op: self._recomputing.introduced(op) for op in chosen}
        guilty = guilty_of(results)
        measured = results[guilty] if guilty is not None else None
        if isinstance(measured, Introduced) and measured.is_wrong:
            return self.by_own_error(near.operations, failed)
        return None

    def by_own_error(self, candidates: Sequence[int], failed: int) -> Finding | None:
        """The one of some operations that computes wrongly."""
        results = self._recomputing.results(candidates)
        guilty = guilty_of(results)
        if guilty is None:
            return None
        unknown = [op for op in candidates if isinstance(results.get(op, SKIPPED), Unknown)]
        doubtful = [op for op in unknown if op < guilty]
        return self._tell.recomputed(guilty, results, doubtful, failed)

    def handed_on(self, near: Upstream, failed: int) -> Finding | None:
        """An operation that hands a value on as it is, and should have changed it.

        By its bytes it computed nothing, so that no way leads through it: queries that were not
        rotated, or rotated by nothing.
        """
        values = self.values
        around = dict.fromkeys(
            use.op
            for op in near.operations
            for value in values.inputs(op)
            for use in values.flow.values[value.number].uses
            if use.role == "out" and use.op != values.producer(value.number)
        )
        chosen = [op for op in around if op not in near.operations and values.is_leaf(op)]
        results = {op: self._recomputing.introduced(op) for op in chosen[:BUDGET]}
        guilty = guilty_of(results)
        measured = results[guilty] if guilty is not None else None
        if guilty is None or not isinstance(measured, Introduced) or not measured.is_wrong:
            return None
        return self._tell.recomputed(guilty, results, [], failed)

    def by_elimination(
        self, candidates: Sequence[int], failed: int, near: Upstream
    ) -> Finding | None:
        """The first operation that cannot be recomputed, where all others are right."""
        last = self.values.producer(failed)
        results = self._recomputing.results(candidates)
        unknown = [op for op in candidates if isinstance(results.get(op, SKIPPED), Unknown)]
        if not unknown:
            return None
        first = unknown[0]
        cleared = len(candidates) - len(unknown)
        if len(candidates) == 1 and first == last:
            text = by_comparison(self.values, first, failed, near, self._comparisons)
        else:
            text = by_elimination(self.values, first, failed, unknown, cleared, results)
        return self._tell.finding(first, text, len(unknown) == 1, unknown[1:])

    def upstream(self, far: Upstream, near: Upstream, failed: int) -> Finding | None:
        """Look among operations whose outputs pass, where the error grew most first."""
        left = [op for op in far.operations if op not in near.operations and self._has_values(op)]
        # Where nothing tells them apart, as in captures of statistics, the nearest ones first.
        left.sort(key=lambda op: (growth(self.values, op), op), reverse=True)
        chosen = left if self._recomputing.deep else left[:BUDGET]
        results = {op: self._recomputing.introduced(op) for op in chosen}
        guilty = guilty_of(results)
        return None if guilty is None else self._tell.recomputed(guilty, results, [], failed)

    def _has_values(self, op: int) -> bool:
        """True if the outputs of an operation were saved, not only their statistics."""
        return all(tensor.has_data for tensor in self.values.run.operations[op].outputs)

    def in_caches(self, way: Upstream, failed: int) -> Finding | None:
        """Look in earlier runs for what wrote a wrong value into a cache that is read here."""
        writers = self.values.writers_of_state()
        ranks = [rank for rank, op in enumerate(writers) if op in way.operations]
        budget = BUDGET
        for search in self._earlier:
            there = search.values.writers_of_state()
            candidates = {
                op
                for rank in ranks
                if rank < len(there)
                for value in search.values.outputs(there[rank])
                for op in search.values.upstream(value.number).operations
            }
            chosen = sorted(candidates)[: None if self._recomputing.deep else budget]
            budget -= len(chosen)
            results = {op: search._recomputing.introduced(op) for op in chosen}
            guilty = guilty_of(results)
            if guilty is not None:
                found = search._tell.recomputed(guilty, results, [], None)
                seen = first_seen_later(self.values, failed)
                origin = replace(found.origin, evidence=f"{found.origin.evidence}; {seen}")
                return replace(found, origin=origin)
        return None

    def defined_otherwise(
        self, failed: int, near: Upstream, first: int | None = None
    ) -> Finding | None:
        """Operations that compute rightly, but not what golden computes.

        What goes in agrees with golden. If what comes out is further away than the operations can
        have amplified that, their parameters or weights differ.

        Args:
            failed: number of the value.
            near: the way back from it.
            first: the operation that is known to make something else first.
        """
        error = self.values.error(failed)
        before = [each for n in near.agreeing if (each := self.values.error(n)) is not None]
        gain = self._recomputing.gain(near.operations)
        if error is None or not before or gain is None or not math.isfinite(gain.amplification):
            return None
        op = self.values.producer(failed)
        assert op is not None
        if self.values.run.operations[op].peers and self._recomputing.is_right(op):
            found = self._tell.finding(op, by_other_ranks(self.values, failed), False, ())
            return replace(found, own=False)
        count = len(near.operations)
        known = (self.values.evidence.get(value) for value in near.agreeing)
        explained = any(each is not None and each.is_explained for each in known)
        text = by_definition(
            self.values,
            op,
            failed,
            max(before),
            gain.amplification,
            count,
            explained=explained,
        )
        answer = self.stated.counterparts.get(op)
        if count == 1 and answer is not None:
            text += only_one_is_given(answer, self.values.run.operations[op])
        op = self._with_numbers(op, near.operations) if first is None else first
        others = [candidate for candidate in near.operations if candidate != op]
        wrong = self._recomputing.of_golden(op, self.stated.counterparts.get(op))
        if wrong is not None:
            text = by_golden(self.values, op, self.stated.counterparts[op], wrong)
            return replace(self._tell.finding(op, text, False, ()), own=False, guilty=None)
        module = self.values.owner(op)
        owners = {self.values.owner(candidate) for candidate in near.operations}
        if others and owners == {module} and module != op:
            op, others = module, list(near.operations)  # golden's module comes by it otherwise
        if not others and module != op and self.values.run.weights:
            others = [module]  # weights and arguments are golden's: it may be given another value
        found = self._tell.finding(op, text, not others, others)
        return replace(found, own=not others, defined_otherwise=True)

    def _with_numbers(self, op: int, near: Sequence[int]) -> int:
        """The first operation with numbers of its own where this one has nothing such.

        What moves elements, or multiplies what it reads, has nothing that could be another than
        golden's.
        """
        operations = self.values.run.operations
        if not is_view(operations[op].type) and has_own(self.values, op):
            return op
        named = (each for each in near if any(map(_is_number, operations[each].params.items())))
        return next(named, op)

    def unexplained(self, failed: int, near: Upstream) -> Finding:
        op = self.values.producer(failed)
        assert op is not None
        text = after_all_cleared(self.values, op, failed, self._recomputing.examined)
        others = [candidate for candidate in near.operations if candidate != op]
        return replace(self._tell.finding(op, text, False, others), own=False)

    def among_grown(self, grown: Iterable[int]) -> Finding | None:
        """Operations before a sudden growth of the error, although all comparisons passed."""
        for index in islice(grown, LOOKS):
            value = self.values.value_of(index)
            if value is None or self.values.producer(value) is None:
                continue
            near = self.values.upstream(value).operations[-BUDGET:]
            results = {op: self._recomputing.introduced(op) for op in near}
            guilty = guilty_of(results)
            measured = results[guilty] if guilty is not None else None
            if guilty is not None and isinstance(measured, Introduced) and measured.is_wrong:
                found = self._tell.recomputed(guilty, results, [], None)
                return self._tell.tolerated(found, index)
        return None

    def among_looks(self, looks: Looks) -> Finding | None:
        """Operations run again although all comparisons passed.

        Those that make what the operator itself makes here are right, and cost little. They, and
        those that make golden's bits, show in which arithmetic operators of their type compute.
        """
        reproduced = Counter(looks.alike)
        operations = self.values.run.operations
        left: dict[int, Look] = {}
        for look in looks.at:
            op = self.values.place_of(look.index)
            if op is None or op in left or not self.values.is_leaf(op):
                continue
            known = self._recomputing.plain(op)
            if known is None or (isinstance(known, Introduced) and known.is_suspect):
                left[op] = look
            elif isinstance(known, Introduced):
                reproduced[like(operations[op])] += 1
        peers = Peers(reproduced, (operations[op] for op in left))
        spent = 0.0
        for op, look in [*left.items()][:BUDGET]:
            if spent and spent + look.cost > _MOST_RECOMPUTED:
                continue
            spent += look.cost
            measured = self._recomputing.introduced(op)
            if not isinstance(measured, Introduced) or not measured.is_suspect:
                continue
            if measured.is_wrong or peers.show(operations[op]):
                found = self._tell.recomputed(op, {op: measured}, [], None)
                return self._tell.tolerated(found, look.index)
        return None

    def among_all(self) -> Finding | None:
        """Every operation recomputed although all comparisons passed."""
        recomputing = self._recomputing
        results = {
            op: recomputing.plain(op) or recomputing.introduced(op) for op in self.values.leaves()
        }
        guilty = guilty_of(results)
        if guilty is None:
            return None
        outputs = [value.number for value in self.values.outputs(guilty)]
        after = [self.values.evidence[each] for each in compared_after(self.values, outputs)]
        shown = min((index for each in after for index in each.passed), default=None)
        return self._tell.tolerated(self._tell.recomputed(guilty, results, [], None), shown)


def _is_number(parameter: tuple[str, Any]) -> bool:
    """True for a number that an operator is given by its name, as ``base`` or ``scale``."""
    name, value = parameter
    return not name.isdigit() and isinstance(value, float)
