"""Origins in the code of modules, of which a capture shows no operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

from ait_llm.compare.origin_attention import Attentions
from ait_llm.compare.origin_between import Between, between, maker, misread, source, within
from ait_llm.compare.origin_code_words import (
    by_added,
    by_left_out,
    by_other_formula,
    by_other_mask,
    by_other_sum,
    by_other_wiring,
    by_own_code,
    by_unchanged,
)
from ait_llm.compare.origin_finding import OWN_CODE, Finding, Telling
from ait_llm.compare.origin_masks import mask_difference, other_mask
from ait_llm.compare.origin_places import told_difference
from ait_llm.compare.origin_rewired import Wiring
from ait_llm.compare.origin_scan import Scans
from ait_llm.compare.origin_stated import StatedDifferences
from ait_llm.compare.origin_sums import Sums
from ait_llm.compare.origin_unchanged import unchanged
from ait_llm.compare.origin_values import Upstream
from ait_llm.match.model import Match
from ait_llm.program.roles import is_operator

_MOST_SUMS = 4  # places of sudden growth that are looked at in a run without failure


class OwnCode:
    """Looks for values that the code of a module made wrongly.

    Args:
        tell: makes findings about my run.
        stated: what answers what, and the golden pass.
    """

    def __init__(self, tell: Telling, stated: StatedDifferences) -> None:
        self.values = tell.values
        self._comparisons = tell.comparisons
        self._tell = tell
        self._stated = stated
        self._golden, self._counterparts = stated.golden, stated.counterparts
        self._wiring = (
            None
            if self._golden is None
            else Wiring(tell.values, tell.comparisons, self._golden, self._counterparts)
        )
        self._sums = (
            None if self._golden is None else Sums(tell.values, tell.comparisons, self._golden)
        )

    def other_mask(self, failed: int) -> Finding | None:
        """An attention that hides other places than golden's."""
        op = self.values.producer(failed)
        op = maker(self.values, failed) if op is None else op
        if op is None or self._golden is None:
            return None
        found = other_mask(self.values, self._golden, self._counterparts, op)
        if found is None:
            return None
        index = min(self.values.evidence[failed].failed)
        text = by_other_mask(self.values, found.op, found.text, failed)
        finding = self._tell.stated(found.op, text, OWN_CODE, index)
        return replace(finding, origin=replace(finding.origin, certain=found.certain))

    def with_mask(self, found: Finding, failed: int, matches: Mapping[int, Match]) -> Finding:
        """A finding with the places that only one side hides, where a mask is what fails."""
        if " hides " in found.origin.evidence:
            return found
        for index in self.values.evidence[failed].failed:
            match = matches.get(index)
            if match is None or not (match.golden.tensor.has_data and match.mine.tensor.has_data):
                continue
            places = mask_difference(match.golden.tensor, match.mine.tensor)
            if not places:
                continue
            owner = self.values.owner(found.op)
            others = {*found.origin.candidates} - {self.values.run.operations[owner].name}
            if found.defined_otherwise and owner != found.op and not others:
                text = by_other_mask(self.values, owner, f"the mask hides {places}", failed)
                return self._tell.stated(owner, text, OWN_CODE, index)
            text = f"{found.origin.evidence}; the mask hides {places}"
            return replace(found, origin=replace(found.origin, evidence=text))
        return found

    def rewired(self, failed: int, *, exact: tuple[int, ...] | None = None) -> Finding | None:
        """An operator that reads what another operation makes than in golden's code, or lacks one.

        Args:
            failed: number of the value.
            exact: values that must be golden's to the bit, and be some; None where they need not.
        """
        op = self.values.producer(failed)
        if self._wiring is None or op is None or not is_operator(self.values.run.operations[op]):
            return None
        if exact is not None and not (
            exact and all(self.values.error(each) == 0 for each in exact)
        ):
            return None
        index = self.values.first_failed(failed)
        lacking = self._wiring.leaves_out(op, index)
        if lacking is not None:
            text = by_left_out(self.values, lacking, failed)
            return self._tell.stated(lacking.module, text, OWN_CODE, index)
        added = self._wiring.adds(op, index)
        if added:
            text = by_added(self.values, added, failed)
            return self._tell.stated(added[0], text, OWN_CODE, index)
        found = self._wiring.differs(op)
        if found is None:
            return None
        lacking = self._wiring.lacking_before(found)
        if lacking is not None:
            text = by_left_out(self.values, lacking, failed)
            return self._tell.stated(lacking.module, text, OWN_CODE, index)
        text = by_other_wiring(self.values, found, failed)
        return self._tell.stated(self.values.owner(found.op), text, OWN_CODE, index)

    def other_sum(self, grown: Iterable[int] | None = None) -> Finding | None:
        """A sum of values that is golden's to the last bit and not mine, within tolerance.

        Args:
            grown: comparisons where the error grows suddenly; None for all that are worth a look.
        """
        if self._sums is None:
            return None
        if grown is None:
            values = self._sums.worth_a_look()
        else:
            known = map(self.values.value_of, islice(grown, _MOST_SUMS))
            values = [each for each in known if each is not None]
        for value in values:
            found = self._sums.wrong(value)
            if found is not None:
                index = min(self.values.evidence[value].passed)
                text = by_other_sum(self.values, found)
                return self._tell.tolerated(
                    self._tell.stated(found.module, text, OWN_CODE, index), index
                )
        return None

    def other_formula(self, indices: Sequence[int]) -> Finding | None:
        """Attention, or a scan, that golden's values prove to be another, within tolerance.

        Args:
            indices: comparisons of the run, in execution order.
        """
        if self._golden is None:
            return None
        passes = self._golden.run, self.values.run, self._comparisons, indices
        for found in chain(Attentions(*passes).wrong(), Scans(*passes).wrong()):
            stated = self._stated.definition([found.module])
            if stated is not None and stated.decides:
                return None  # another number explains it
            text = by_other_formula(self.values, found)
            finding = self._tell.stated(found.module, text, OWN_CODE, found.index)
            return self._tell.tolerated(finding, found.index)
        return None

    def hands_on(self) -> Finding | None:
        """A result that a module of one side alone hands on as it is, within tolerance."""
        if self._golden is None:
            return None
        for found in unchanged(self._golden, self.values, self._comparisons):
            text = by_unchanged(self.values, found)
            finding = self._tell.stated(found.module, text, OWN_CODE, found.index)
            return self._tell.tolerated(finding, found.index)
        return None

    def misread(self, failed: int) -> Finding | None:
        """A value that agrees where it was made, and is not what golden's reader of it reads."""
        op, known = self.values.producer(failed), self.values.evidence[failed]
        if op is None or not any(self._is_of(op, each) for each in known.passed):
            return None
        index = self.values.first_failed(failed)
        place, record = self.values.place_of(index), self._comparisons[index].mine
        if place is None or record is None or place == op:
            return None
        if record.role == "out":  # a module hands on what its member made, and golden's does not
            return self._own_code(within(self.values, place, failed))
        found = misread(self.values, failed, op, place)
        return None if found is None else self._own_code(found)

    def _is_of(self, op: int, index: int) -> bool:
        """True if a comparison is of a result of an operation, or of a module that hands it on."""
        place, record = self.values.place_of(index), self._comparisons[index].mine
        if place is None or record is None or record.role != "out":
            return False
        return place in (op, *self.values.flow.ancestors(op))

    def between_members(self, near: Upstream) -> Finding | None:
        """A value that the code of a module made wrongly, between its members."""
        sources = (source(self.values, value) for value in near.differing)
        places = (between(self.values, value) for value in sources)
        found = next((each for each in places if each is not None), None)
        return None if found is None else self._own_code(found)

    def behind_members(self, near: Upstream, failed: int) -> Finding | None:
        """A result that the code of a module made wrongly of those of its members."""
        last = self.values.producer(failed)
        if last is None or near.operations != (last,) or self.values.is_leaf(last):
            return None
        return self._own_code(within(self.values, last, failed))

    def _own_code(self, found: Between) -> Finding:
        known = self.values.evidence[found.value]
        index = min(known.failed)
        text = by_own_code(self.values, found, told_difference(self._comparisons[index]))
        finding = self._tell.stated(found.op, text, OWN_CODE, index)
        # statistics that agree are no proof, and neither is nothing
        errors = [self.values.error(each) for each in found.agreeing]
        certain = bool(errors) and None not in errors and not found.kept
        return replace(finding, origin=replace(finding.origin, certain=certain))
