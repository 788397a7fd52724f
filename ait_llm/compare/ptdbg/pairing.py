"""Which call of a golden dump answers which of mine, and their items."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from ait_llm.dumps.ptdbg_records import PtdbgCall, PtdbgValue


@dataclass(frozen=True, slots=True)
class CallPair:
    """Two calls that belong together, or one without an answer.

    Attributes:
        mine, golden: the calls; None where a side has none.
    """

    mine: PtdbgCall | None
    golden: PtdbgCall | None

    def items(self) -> Iterator[tuple[PtdbgValue | None, PtdbgValue | None]]:
        """Items of the same place, in my order; then those that only golden has."""
        mine = self.mine.values if self.mine is not None else ()
        golden = {
            value.label: value for value in (self.golden.values if self.golden is not None else ())
        }
        for value in mine:
            yield value, golden.pop(_sole(value, golden), None)
        for value in golden.values():
            yield None, value


def _sole(value: PtdbgValue, others: dict[str, PtdbgValue]) -> str:
    """The label of the same item: ``output`` and ``output.0`` are one for a single result."""
    label = value.label
    if label in others:
        return label
    other = {"output": "output.0", "output.0": "output"}.get(label, label)
    return other if other in others else label


def pair_calls(
    mine: Iterable[PtdbgCall], golden: Iterable[PtdbgCall], *, fuzzy: bool = False
) -> Iterator[CallPair]:
    """Calls of equal names; the calls without an answer stand where they ran, golden's at the end.

    Args:
        mine, golden: in the order of their files.
        fuzzy: numbers of calls may differ; calls of a function with equal shapes then belong
            together in their order.
    """
    waiting: dict[Hashable, deque[PtdbgCall]] = defaultdict(deque)
    left: dict[int, PtdbgCall] = {}
    for call in golden:
        waiting[_key(call, fuzzy)].append(call)
        left[id(call)] = call
    for call in mine:
        answers = waiting.get(_key(call, fuzzy))
        answer = answers.popleft() if answers else None
        if answer is not None:
            del left[id(answer)]
        yield CallPair(call, answer)
    for call in left.values():
        yield CallPair(None, call)


def _key(call: PtdbgCall, fuzzy: bool) -> Hashable:
    if not fuzzy:
        return call.name
    shapes = tuple((value.label, str(value.array.get("shape"))) for value in call.values)
    return call.parsed.prefix, call.parsed.api, call.direction, shapes
