"""Tensors without a counterpart: why they have none, and whether they should have one."""

from __future__ import annotations

import re
from sys import intern

from ait_llm.dumps.model import Tensor
from ait_llm.match.model import Unmatched
from ait_llm.match.programs.anchors.ports import key_of
from ait_llm.match.programs.evidence import Evidence
from ait_llm.match.programs.expert_calls import ExpertCalls
from ait_llm.match.programs.link_views import LinkViews
from ait_llm.match.programs.links import Link
from ait_llm.match.programs.reasons import OF_OTHER_TOKENS, WEIGHT, reason_for
from ait_llm.match.programs.sources import source_of
from ait_llm.program.counted_places import (
    PLACES,
    are_places,
    have_same_integers,
    is_function,
)
from ait_llm.program.digests import digest
from ait_llm.program.flow import Use
from ait_llm.program.roles import Role, is_operator

# Arguments and results of modules of transformers, which hold what projections made before.
_CACHE = re.compile(r"past_key_values?(_|$)|layer_past")


class Unanswered:
    """Says of tensors why nothing answers them.

    Args:
        evidence: of the programs.
        views: what brings linked values to one shape.
    """

    def __init__(self, evidence: Evidence, views: LinkViews) -> None:
        self._known = evidence
        self._sides = evidence.left, evidence.right
        self._views = views
        self._expert_calls = ExpertCalls(*self._sides, evidence.tokens)
        self._has_others = evidence.tokens is not None and evidence.tokens.are_others
        self._of_other_tokens: set[tuple[int, int]] = set()  # sides and values

    def left(self, op: int, tensor: Tensor, links: list[Link]) -> Unmatched:
        """Of a tensor of the left side.

        Args:
            op, tensor: where it is.
            links: what its value is linked to, none of which it can be compared with.
        """
        side, right = self._sides
        other, lost = self._known.title(right), bool(links)
        if links and self.is_stale(op, tensor):
            reason = (
                "it was captured after the operation, when its memory held something else; "
                "dump with -time 2"
            )
        elif links and self._views.are_of_other_tokens(links[0], left=tensor, right=None):
            reason, lost = f"{other} {OF_OTHER_TOKENS}", False
        elif links and (
            self._views.are_several_of_each_token(tensor, links[0])
            or self._expert_calls.hold(op, links[0].right)
        ):
            reason = f"{other} has other rows of each token here, in an order of their own"
            lost = False
        elif links and _CACHE.search(tensor.stem):
            reason, lost = f"{other} keeps its key/value cache in another form", False
        elif links and self._has_others and is_function(side.operations[op]):
            reason, lost = f"{other} {OF_OTHER_TOKENS}", False
        elif links:
            counterpart = right.operations[links[0].right.uses[0].op].name
            reason = f"its shape cannot be brought to that of its counterpart at {counterpart}"
        elif key_of(op, tensor) in self._known.ports.left_reasons:
            reason = self._known.ports.left_reasons[key_of(op, tensor)]
        else:
            reason = self._reason(0, op, tensor, other)
            can_save = right.run.traits.parameters and not right.run.weights
            if reason.startswith(WEIGHT) and can_save:
                reason, lost = f"{reason}; dump it with --weights", True
        return self.because(0, op, tensor, reason, lost=lost)

    def right(self, op: int, tensor: Tensor, links: list[Link]) -> Unmatched:
        """The same of a tensor of the right side."""
        other = self._known.title(self._sides[0])
        reason = self._known.ports.right_reasons.get(key_of(op, tensor), "")
        if links and self._views.are_of_other_tokens(links[0], left=None, right=tensor):
            reason = f"{other} {OF_OTHER_TOKENS}"
        return self.because(1, op, tensor, reason or self._reason(1, op, tensor, other))

    def because(
        self, number: int, op: int, tensor: Tensor, reason: str, *, lost: bool = False
    ) -> Unmatched:
        """Of a tensor of which it is known why.

        Args:
            number: of the side, 0 for the left one.
            op, tensor: where it is.
            reason: why.
            lost: it should have a counterpart.
        """
        side = self._sides[number]
        by_nature = (number, key_of(op, tensor)) in self._known.ports.without
        value = side.value(op, tensor)
        if value is not None and reason.endswith(OF_OTHER_TOKENS):
            self._of_other_tokens.add((number, value.number))
        is_call = self._has_others and is_function(side.operations[op])
        if not by_nature and is_call and are_places(tensor):
            reason, lost, by_nature = PLACES, False, True
        source = source_of(side, Use(op, tensor))
        return Unmatched(self._known.side_name(side), source, intern(reason), lost, by_nature)

    def counts_its_own(self, number: int, op: int, tensor: Tensor, links: list[Link]) -> bool:
        """True for other places than those of the other side, beside other rows or padding.

        A function that makes a mask counts all rows and columns of its side, of padding too. What
        it makes of them is compared for the tokens that both have.
        """
        tokens = self._known.tokens
        if tokens is None or not links or not are_places(tensor):
            return False
        keys = tokens.keys
        if tokens.is_plain and (keys is None or keys.left.total == keys.right.total):
            return False
        operation = self._sides[number].operations[op]
        if not is_operator(operation) or self._sides[number].roles[op] is Role.EMBEDDING:
            return False
        value = links[0].left if number else links[0].right
        other = value.uses[0].tensor
        return are_places(other) and not have_same_integers(tensor, other)

    def is_stale(self, op: int, tensor: Tensor) -> bool:
        """True for a left input captured after the operation that is no longer what it was."""
        side = self._sides[0]
        if tensor.role != "in" or tensor.phase != "after":
            return False
        if tensor.identity is None and not side.flow.named:
            return False  # by its numbers alone it is the same
        value = side.value(op, tensor)
        writes = value.writes if value is not None else []
        if not writes:
            return False
        before, now = digest(writes[0].tensor), digest(tensor)
        return before is not None and now is not None and before != now

    def _reason(self, number: int, op: int, tensor: Tensor, other: str) -> str:
        """Why a tensor has none: what it was computed of may have none."""
        side = self._sides[number]
        read = (tensor,) if tensor.role == "in" else side.operations[op].inputs
        values = {value.number for each in read if (value := side.value(op, each)) is not None}
        if any((number, each) in self._of_other_tokens for each in values):
            return f"{other} {OF_OTHER_TOKENS}"
        return reason_for(side, op, tensor, other)
