"""Operators that the code of one side alone calls: another formula, not another result.

Where all operators that both sides have compute rightly, one that golden's code does not call, or
that only golden's calls, is the difference. Views and casts decide nothing, and where each side has
operators of its own in one place, the same may be written in another way. Where both call the same,
one may compute in a coarser type than golden's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from ait_llm.bisect.coarser_code import coarser_code
from ait_llm.bisect.origins import origin_at
from ait_llm.compare.origin_finding import OWN_CODE
from ait_llm.compare.origin_words import INHERITED
from ait_llm.core.comparison import Origin
from ait_llm.dumps.model import Operation
from ait_llm.program.calls import CallGraph
from ait_llm.program.operators import kind_of

_MOST = 3  # operators in one place that are one difference
_TOLD = 4


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the operators of two codes part.

    Attributes:
        mine, golden: what each calls there.
        after: what mine calls next; None at the end.
    """

    mine: Sequence[Operation]
    golden: Sequence[Operation]
    after: Operation | None


def other_code(
    golden: Sequence[Operation],
    mine: Sequence[Operation],
    inner: Origin | None,
    *,
    is_wrong: bool,
    parts: bool = False,
) -> Origin | None:
    """The operator at which the codes part; None if they call the same, or part in many places.

    Args:
        golden, mine: the operators that the code of a module calls, in execution order.
        inner: what the comparison takes for the origin; None where nothing failed.
        is_wrong: the code is known to make something else of equal values.
        parts: the compared values part in this code, as far as told.
    """
    if inner is not None and inner.kind:
        return None
    if parts and (rounded := coarser_code(golden, mine)) is not None:
        return _origin(*rounded, certain=True)
    places = _places([*_computing(golden)], [*_computing(mine)])
    if len(places) != 1:
        return None
    (place,) = places
    if place.mine and place.golden:
        return None
    seen = next((each for each in place.mine if inner and str(each.op_id) == inner.op_id), None)
    if inner is not None and inner.certain and seen is None:
        return None
    shown = "" if inner is None else _without_guess(inner.evidence)
    known = is_wrong or inner is not None
    certain = known and len(place.mine) + len(place.golden) <= _MOST
    if place.mine:
        first, *more = place.mine
        what = "calls no such operator" if not more else f"does not call {_listed(place.mine)}"
        return _origin(seen or first, f"golden's code {what}{shown}", certain=certain)
    named = place.after or (mine[-1] if mine else None)
    if named is None:
        return None
    where = "before it" if place.after is not None else "behind it"
    text = f"golden's code also calls {_listed(place.golden)} {where}{shown}"
    return _origin(named, text, certain=certain, golden=place.golden[-1].name)


def _places(golden: Sequence[Operation], mine: Sequence[Operation]) -> list[_Place]:
    theirs, ours = ([kind_of(each) for each in side] for side in (golden, mine))
    matcher = SequenceMatcher(None, theirs, ours, autojunk=False)
    return [
        _Place(mine[start:end], golden[first:last], mine[end] if end < len(mine) else None)
        for tag, first, last, start, end in matcher.get_opcodes()
        if tag != "equal"
    ]


def _computing(operations: Sequence[Operation]) -> Sequence[Operation]:
    return [each for each in operations if not CallGraph.is_passing(kind_of(each), order=True)]


def _origin(operation: Operation, evidence: str, *, certain: bool, golden: str = "") -> Origin:
    return origin_at(operation, evidence, kind=OWN_CODE, certain=certain, golden=golden)


def _without_guess(evidence: str) -> str:
    """What a comparison saw, without where it thinks that the error came from."""
    seen = (part for part in evidence.split("; ") if INHERITED not in part)
    return "".join(f"; {part}" for part in seen)


def _listed(operations: Sequence[Operation]) -> str:
    types = Counter(each.type for each in operations)
    told = [name if count == 1 else f"{name} ({count} times)" for name, count in types.items()]
    more = len(told) - _TOLD
    return ", ".join(told[:_TOLD]) + (f" and {more} more" if more > 0 else "")
