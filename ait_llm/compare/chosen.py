"""Failures that follow from a choice that both runs made rightly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ait_llm.compare.origin_values import RunValues
from ait_llm.core import DType
from ait_llm.judge.choices import Chosen, OtherChoice, other_choice
from ait_llm.judge.tolerance import tolerance_for
from ait_llm.match.model import Match, Source
from ait_llm.match.views import Rows
from ait_llm.program.token_ids import TokenIds, token_ids


@dataclass(slots=True)
class OtherChoices:
    """The choices of one process that both runs made rightly, and differently.

    Later steps of the same requests read from their caches what was computed from such a choice.

    Attributes:
        name, words: the first module of a generation that chose otherwise, and how.
        read: the tokens that its pass read.
    """

    name: str = ""
    words: str = ""
    read: TokenIds | None = None

    def excuse(
        self, values: RunValues, matches: Mapping[int, Match]
    ) -> tuple[dict[int, str], list[str]]:
        """Comparisons of a run that cannot be held to golden, because other experts were chosen.

        Each failing choice is looked at, in execution order, with what was computed from it. What
        is excused counts as not compared from then on.

        Args:
            values: of the run; runs come in their order.
            matches: of the comparisons that failed, by their index.

        Returns:
            The reasons by index of the comparison, and a sentence for each choice.
        """
        reasons: dict[int, str] = {}
        told: list[str] = []
        ids = token_ids(values.run)
        if self.name and self._goes_on(ids):
            start = _first_result(values, self.name)
            late = [value for value in values.failed() if start is not None and value >= start]
            for value in late:
                reasons |= dict.fromkeys(values.forget(value), f"{self.name}: {self.words} before")
            if late:
                told.append(
                    f"step {values.run.step}: what {self.name} chose otherwise before is in the "
                    "caches; what differs behind it is not compared"
                )
        else:
            self.name = ""
        failed = values.failed()
        for place, value in enumerate(failed):
            known = values.evidence.get(value)
            match = (
                next((matches[i] for i in known.failed if i in matches), None) if known else None
            )
            found = None if match is None else _other_choice(match)
            if match is None or found is None:
                continue
            name = match.mine.operation.name
            words = _words(found)
            told.append(
                f"step {values.run.step}: {name}: {words}; what differs after it is not compared, "
                "and --deep computes it again from its own inputs"
            )
            for number in failed[place:]:
                reasons |= dict.fromkeys(values.forget(number), f"{name}: {words}")
            self._keep(values, name, words, ids)
        return reasons, told

    def _keep(self, values: RunValues, name: str, words: str, ids: TokenIds | None) -> None:
        """Remember a choice, if it comes before the one that is remembered."""
        start = _first_result(values, self.name)
        if start is None or (_first_result(values, name) or start) < start:
            self.name, self.words, self.read = name, words, ids

    def _goes_on(self, ids: TokenIds | None) -> bool:
        """True if a pass that reads these tokens is a later step of the same requests."""
        return ids is not None and self.read is not None and ids.goes_on_from(self.read)


def _first_result(values: RunValues, name: str) -> int | None:
    """The first value that a module of a run writes."""
    numbers = [
        value.number
        for op, operation in enumerate(values.run.operations)
        if operation.name == name
        for value in values.outputs(op)
    ]
    return min(numbers, default=None)


def _other_choice(match: Match) -> OtherChoice | None:
    sides = _chosen(match.golden), _chosen(match.mine)
    if sides[0] is None or sides[1] is None:
        return None
    return other_choice(sides[0], sides[1], match.rounded_to or _rounded_to(match))


def _chosen(side: Source) -> Chosen | None:
    """A choice of all rows, or of those that are tokens; None for any other part of it."""
    if not side.views:
        return Chosen(side.operation, side.tensor)
    view = side.views[0]
    if len(side.views) > 1 or not isinstance(view, Rows) or view.axis:
        return None
    return Chosen(side.operation, side.tensor, view.indices)


def _rounded_to(match: Match) -> DType | None:
    """The coarsest type of what both operations read and return; scores may be widened to float32.

    Whole numbers, as a choice is, say nothing of it.
    """
    types = [
        tensor.dtype
        for side in (match.golden, match.mine)
        for tensor in side.operation.tensors
        if tensor.dtype.is_floating
    ]
    return max(types, key=lambda each: tolerance_for(each, each).relative_euclidean, default=None)


def _words(found: OtherChoice) -> str:
    what = f"{found.rows} of {found.total} rows chose otherwise"
    if not found.golden:
        return f"{what} in another order, by equal scores within rounding"
    one, other = (", ".join(map(str, side)) for side in (found.golden, found.mine))
    return (
        f"{what}, row {found.row} {other} instead of {one}, whose scores are {found.margin:.2g} "
        "apart; all scores agree, and each side took its highest"
    )
