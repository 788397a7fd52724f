"""The matcher: align the two runs, then say for every tensor which one answers it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ait_llm.core.comparison import TensorRecord
from ait_llm.dumps.model import Tensor
from ait_llm.match.model import (
    Match,
    MatchOptions,
    SideName,
    Source,
    Unmatched,
    matchers,
    record_of,
)
from ait_llm.match.programs.align import Aligner, Pair
from ait_llm.match.programs.counterparts import Counterparts
from ait_llm.match.programs.layout import Layouts
from ait_llm.match.programs.links import Link, Links
from ait_llm.match.programs.plan import Place, plan, same_ids
from ait_llm.match.programs.reasons import WEIGHT, reason_for_atb, reason_for_torch
from ait_llm.match.programs.rotary import RotaryLinks
from ait_llm.match.programs.shapes import Columns, Shape, Views, make_views
from ait_llm.match.programs.tokens import Tokens, find_tokens
from ait_llm.match.programs.weights import WeightLink, WeightLinks
from ait_llm.program.describe import shape_of
from ait_llm.program.digests import digest
from ait_llm.program.flow import Use
from ait_llm.program.program import Side
from ait_llm.program.run import Run

RULE = "atb_torch"
# Both shapes, the columns of each side, and the rows that a tensor was gathered from.
_Sought = tuple[Shape, Shape, Columns | None, Columns | None, tuple[int, ...] | None]


@matchers.register(RULE)
def match_atb_torch(golden: Run, mine: Run, options: MatchOptions) -> Iterable[Match | Unmatched]:
    """Match an ATB run with a torch run by structure; either may be the golden one.

    Args:
        golden, mine: one of kind ``atb`` and one of kind ``torch``; other kinds give nothing.
        options: not looked at.

    Returns:
        A match for each tensor of either run that has a counterpart, by my execution order; then
        the tensors without one, with the reason.
    """
    if {golden.kind, mine.kind} != {"atb", "torch"}:
        return []
    atb = Side(mine if mine.kind == "atb" else golden)
    torch = Side(golden if golden.kind == "torch" else mine)
    return _Matching(atb, torch, golden_is_atb=golden.kind == "atb").matches()


class _Matching:
    def __init__(self, atb: Side, torch: Side, *, golden_is_atb: bool) -> None:
        self._atb = atb
        self._torch = torch
        self._golden_is_atb = golden_is_atb
        self._tokens: Tokens | None = find_tokens(atb, torch)
        self._layouts = Layouts(atb, torch, self._tokens)
        self._links = Links(atb, torch, self._layouts)
        self._weights = WeightLinks(atb, torch, self._layouts)
        self._align()
        self._counterparts = Counterparts(atb, torch, self._links.units)
        self._mentioned: set[tuple[str, int, str, int]] = set()
        self._known_views: dict[_Sought, Views | None] = {}

    def _align(self) -> None:
        aligner = Aligner(self._atb, self._torch, same_ids(self._atb, self._torch, self._tokens))
        aligned: list[tuple[Place, list[Pair]]] = [
            (place, aligner.align(place.atb.units, place.torch.units))
            for place in plan(self._atb, self._torch, aligner)
        ]
        for _, pairs in aligned:
            self._layouts.learn(pairs)
        for place, pairs in aligned:
            self._links.add_pairs(pairs, place.where, place.certainty)
        for place, pairs in aligned:
            self._links.add_sources(pairs, place.where, place.certainty)
        for place, pairs in aligned:
            self._weights.add(pairs, place.where, place.certainty)
            self._links.add_choices(pairs, place.where)
        for place, _ in aligned:
            self._links.add_layer(place.atb, place.torch, place.certainty)
        self._links.add_splits()
        rotary = RotaryLinks(self._atb, self._torch, self._links)
        rotary.add_tables()
        rotary.add_turned()

    def matches(self) -> Iterator[Match | Unmatched]:
        for op, operation in enumerate(self._atb.operations):
            for tensor in (*operation.inputs, *operation.outputs):
                yield from self._matches_of_atb(op, tensor)
        for op, operation in enumerate(self._torch.operations):
            for tensor in (*operation.inputs, *operation.outputs):
                yield from self._matches_of_torch(op, tensor)

    def _matches_of_atb(self, op: int, tensor: Tensor) -> Iterator[Match | Unmatched]:
        value = self._atb.value(op, tensor)
        links = self._links.of_atb.get(value.number, []) if value is not None else []
        found = False
        for link in links if not self._is_stale(op, tensor) else ():
            use = self._counterparts.torch_use(op, tensor, link.torch)
            match = self._match(Use(op, tensor), use, link)
            if match is not None:
                found = True
                yield match
        for weight in self._weights.of_atb.get(value.number, ()) if value is not None else ():
            found = True
            yield self._weight_match(Use(op, tensor), weight)
        if not found:
            yield self._unmatched_atb(op, tensor, links)

    def _matches_of_torch(self, op: int, tensor: Tensor) -> Iterator[Match | Unmatched]:
        if ("torch", op, tensor.role, tensor.index) in self._mentioned:
            return
        value = self._torch.value(op, tensor)
        links = self._links.of_torch.get(value.number, []) if value is not None else []
        whole = [link for link in links if link.torch_columns is None]
        found = False
        for link in whole[:1] or links:
            use = self._counterparts.atb_use(op, tensor, link.atb)
            match = self._match(use, Use(op, tensor), link)
            if match is not None:
                found = True
                yield match
        if not found:
            reason = reason_for_torch(self._torch, op, tensor, self._name(self._atb))
            yield self._unmatched(self._torch, op, tensor, reason)

    def _unmatched_atb(self, op: int, tensor: Tensor, links: list[Link]) -> Unmatched:
        other = self._name(self._torch)
        if links and self._is_stale(op, tensor):
            reason = (
                "it was captured after the operation, when its memory held something else; "
                "dump with -time 2"
            )
        elif links:
            counterpart = self._torch.operations[links[0].torch.uses[0].op].name
            reason = f"its shape cannot be brought to that of its counterpart at {counterpart}"
        else:
            value = self._atb.value(op, tensor)
            reason = reason_for_atb(self._atb, tensor, value, other)
            if reason.startswith(WEIGHT) and not self._torch.run.weights:
                reason += "; dump it with --weights"
        return self._unmatched(self._atb, op, tensor, reason)

    def _is_stale(self, op: int, tensor: Tensor) -> bool:
        """True for an input that was captured after the operation and is no longer what it was."""
        if tensor.role != "in" or tensor.phase != "after":
            return False
        value = self._atb.value(op, tensor)
        writes = value.writes if value is not None else []
        if not writes:
            return False
        before, now = digest(writes[0].tensor), digest(tensor)
        return before is not None and now is not None and before != now

    def _match(self, atb: Use, torch: Use, link: Link) -> Match | None:
        views = self._views(atb.tensor, torch.tensor, link)
        if views is None:
            return None
        self._mentioned.add(("torch", torch.op, torch.role, torch.tensor.index))
        ours = Source(self._record(self._atb, atb), atb.tensor, views.atb)
        theirs = Source(self._record(self._torch, torch), torch.tensor, views.torch)
        confidence, reason = link.confidence, link.reason
        if views.torch and self._tokens is not None and not self._tokens.certain:
            confidence = min(confidence, 0.6)
            reason += f"; tokens {self._tokens.evidence}"
        return Match(
            golden=ours if self._golden_is_atb else theirs,
            mine=theirs if self._golden_is_atb else ours,
            rule=RULE,
            confidence=confidence,
            reason=reason,
            alternatives=tuple(self._torch.operations[other].name for other in link.alternatives),
        )

    def _weight_match(self, use: Use, link: WeightLink) -> Match:
        """The match of a weight with a parameter, which no operation of the torch run shows."""
        module = self._record(self._torch, Use(link.op, link.tensor))
        kind = link.name.rpartition(".")[2]
        parameter = replace(module, name=kind, role="weight", index=0, label=kind)
        ours = Source(self._record(self._atb, use), use.tensor, link.atb_views)
        theirs = Source(parameter, link.tensor, link.torch_views)
        return Match(
            golden=ours if self._golden_is_atb else theirs,
            mine=theirs if self._golden_is_atb else ours,
            rule=RULE,
            confidence=link.confidence,
            reason=link.reason,
        )

    def _views(self, atb: Tensor, torch: Tensor, link: Link) -> Views | None:
        left, right = shape_of(atb), shape_of(torch)
        if left is None or right is None:
            return Views((), ())  # whoever reads it says what is wrong with it
        rows = self._links.rows_of(link.atb)
        key = (left, right, link.atb_columns, link.torch_columns, rows)
        if key not in self._known_views:
            self._known_views[key] = make_views(left, right, self._tokens, *key[2:])
        return self._known_views[key]

    @staticmethod
    def _record(side: Side, use: Use) -> TensorRecord:
        return record_of(side.operations[use.op], use.tensor, side.run.first_order + use.op)

    def _unmatched(self, side: Side, op: int, tensor: Tensor, reason: str) -> Unmatched:
        return Unmatched(self._side_name(side), self._record(side, Use(op, tensor)), reason)

    def _side_name(self, side: Side) -> SideName:
        return "golden" if side.is_atb == self._golden_is_atb else "mine"

    def _name(self, side: Side) -> str:
        return "the golden dump" if self._side_name(side) == "golden" else "my dump"
