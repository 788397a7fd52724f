"""The order in which the causes of an error are looked for in one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ait_llm.compare.origin_caps import Caps
from ait_llm.compare.origin_experts import Experts
from ait_llm.compare.origin_explaining import Explaining
from ait_llm.compare.origin_finding import Finding, Telling
from ait_llm.compare.origin_handing import Handing
from ait_llm.compare.origin_looks import Looks
from ait_llm.compare.origin_operations import LOOKS, Operations
from ait_llm.compare.origin_own_code import OwnCode
from ait_llm.compare.origin_recomputing import Recomputing
from ait_llm.compare.origin_stages import Stages
from ait_llm.compare.origin_stated import StatedDifferences
from ait_llm.compare.origin_statements import Statements
from ait_llm.compare.origin_values import RunValues, Upstream
from ait_llm.core.comparison import Comparison
from ait_llm.judge.evidence import Introduced, Unknown, introduced_error
from ait_llm.match.model import Match

_MOST_FAILURES = 512  # of one run that what came in may explain

_NO_LOOKS = Looks()


class Search:
    """Looks for the origin in one run and remembers what it recomputed.

    Args:
        values: my run and what the comparisons say about it.
        comparisons: all of the report.
        stated: where weights and definitions of my run and of golden's differ.
        deep: recompute every operation, also where nothing failed.
        earlier: the searches of earlier runs of the same process, the first run first.
        examine: measures what one operation adds.
        matches: of the comparisons that failed, by their index.

    Attributes:
        examined: what the operations add that were recomputed, by their index.
        operations: looks for operations of the run that compute wrongly.
    """

    def __init__(
        self,
        values: RunValues,
        comparisons: Sequence[Comparison],
        stated: StatedDifferences,
        *,
        deep: bool = False,
        earlier: Sequence[Search] = (),
        examine: Callable[..., Introduced | Unknown] = introduced_error,
        matches: Mapping[int, Match] | None = None,
    ) -> None:
        self.values = values
        recomputing = Recomputing(values, deep=deep, examine=examine)
        tell = Telling(values, comparisons, recomputing)
        self.examined: Mapping[int, Introduced | Unknown] = recomputing.examined
        self._deep = deep
        self._matches = matches or {}
        self._explaining = Explaining(values, comparisons, recomputing, stated, self._matches)
        self._statements = Statements(tell, stated, is_later=bool(earlier))
        self._code = OwnCode(tell, stated)
        self._telling = tell
        self._stages = None if stated.golden is None else Stages(values, comparisons, stated.golden)
        self._handing = Handing(tell, stated.golden)
        self._caps = Caps(tell, stated.golden)
        self._experts = Experts(tell, stated.golden)
        before = [each.operations for each in earlier]
        self.operations: Operations = Operations(tell, recomputing, stated, before)

    @property
    def explained(self) -> Mapping[int, str]:
        """Comparisons that failed and that what came in explains, with the words for it."""
        return self._explaining.explained

    def find(self, grown: Iterable[int] = (), looks: Looks = _NO_LOOKS) -> Finding | None:
        """The origin; None where nothing went wrong.

        Args:
            grown: comparisons where the error grows suddenly, worth a look where none failed.
            looks: operations that are worth running again then.
        """
        for number in range(_MOST_FAILURES):
            failed = self.values.first_failure()
            if failed is None:
                return self._within_tolerance(list(grown), looks) or self._of_what_code_made()
            found = self._of_failure(failed, deeply=number < LOOKS)
            found = self._handing.instead_of(found, failed)
            if found is not None:
                found = self._statements.of_other_depth(found)
                return self._code.with_mask(found, failed, self._matches)
        return None

    def _of_what_code_made(self) -> Finding | None:
        """What fails alone among what no captured operation made: a mask, say."""
        left = tuple(each for each in self.values.failed() if not self._explaining.follows(each))
        way = Upstream((), (), left, ())
        return (
            self._statements.given_otherwise(left)
            or self._statements.from_outside(way)
            or self._statements.counted_from_elsewhere(left)
            or self._code.between_members(way)
        )

    def _within_tolerance(self, grown: Sequence[int], looks: Looks) -> Finding | None:
        """What is wrong although nothing fails."""
        found = (
            self.operations.among_all() if self._deep else self.operations.among_grown(grown)
        ) or self._code.other_sum(grown)
        if found is None and not self._deep:
            found = self.operations.among_looks(looks)
        return (
            found
            or self._code.other_sum()
            or self._code.other_formula(self.values.indices)
            or self._statements.alone()
            or self._code.hands_on()
        )

    def _of_failure(self, failed: int, *, deeply: bool) -> Finding | None:
        """Where a failure started; None where what came in explains it."""
        near = self._explaining.near(failed)
        found = (
            self._statements.given_otherwise((failed, *near.differing))
            or self._statements.other_weight(near.operations, failed)
            or self._statements.weight_of_code(near, failed)
            or self._experts.other_weight(near, failed)
            or self._statements.other_frequencies(near)
            or self._statements.from_outside(near)
            or self._statements.counted_from_elsewhere((failed, *near.differing))
            or self.operations.wrong(near, failed)
            or self._statements.other_definition(near, failed)
            or self._caps.other(near, failed)
            or self._statements.counted_otherwise(failed)
            or self.operations.by_own_error(near.operations, failed)
            or self.operations.handed_on(near, failed)
            or self.operations.in_caches(near, failed)
            or self._code.other_mask(failed)
        )
        if found is not None:
            return found
        near = self._explaining.near(failed)  # a mask of another form may agree by now
        found = self._code.rewired(failed, exact=near.agreeing)
        if found is not None:
            return found
        if deeply or not self._explaining.is_explained(failed, near):
            far = self.values.upstream(failed, through=True)
            found = (
                self._statements.other_weight(far.operations, failed)
                or self._statements.defined_before(far, failed)
                or self._statements.from_outside(far)
                or self._code.between_members(near)
                or self._code.misread(failed)
                or self._code.rewired(failed)
                or self.operations.upstream(far, near, failed)
                or self.operations.in_caches(far, failed)
            )
        if found is None and self._explaining.is_explained(failed, near):
            self._explaining.clear(failed, near)
            return None
        found = found or self._code.behind_members(near, failed)
        if found is not None:
            return found
        less = None if self._stages is None else self._stages.narrowed(near, failed)
        near, first = (near, None) if less is None else (less.near, less.first)
        found = (
            self.operations.by_elimination(near.operations, failed, near)
            or self.operations.defined_otherwise(failed, near, first)
            or self.operations.unexplained(failed, near)
        )
        return found if less is None else self._telling.behind_stages(found, less.known)
