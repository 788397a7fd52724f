"""Operations of a run without failures that are worth running again.

An error within every tolerance may still be more than an operator's arithmetic permits, and only
running the operator again tells. That costs about as much as comparing what it reads, so not all
are run again unless the user asks for it: none where all leave no more error than they got and than
roundings add, else first those that do, then the others, which show how this machine computes, and
no more than a share of what the comparison has read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ait_llm.compare.origin_peers import Like, like
from ait_llm.compare.origin_run import Key, operation_key, record_key
from ait_llm.compare.roundings import is_coarse, is_of_sums, noise_of
from ait_llm.core.comparison import Comparison, TensorRecord
from ait_llm.judge.pairs import DISTANCE
from ait_llm.program.flow import parents_of
from ait_llm.program.one_pass import Pass
from ait_llm.program.operators import is_moving

# Bytes that may be read again: a sixteenth of what was compared, and these in any case.
_SHARE, _LEAST_BYTES = 16, 4 << 20
# A processor multiplies and adds so often in the time in which it compares one byte.
_PRODUCTS_PER_BYTE = 8
# Error that an operation leaves over that of its inputs and of what roundings add.
_STRIKING = 1.2


@dataclass(slots=True)
class _Seen:
    """What the comparisons say of one operation.

    Attributes:
        given, left: largest error of its inputs, and of its results.
        item: the comparison of the result with that error.
        index: of the comparison of it.
        reads: the records of its inputs.
        made: elements of its results.
    """

    given: float = 0.0
    left: float = 0.0
    item: Comparison | None = None
    index: int = -1
    reads: list[TensorRecord] = field(default_factory=list)
    made: int = 0

    @property
    def differs(self) -> bool:
        """True if its results are further from golden's than sums in another order are."""
        return self.item is not None and not is_of_sums(self.item)

    def growth(self, *, coarse: bool) -> float:
        """Error that it leaves over that of its inputs and of what roundings add.

        Args:
            coarse: the run rounds to 16 bits somewhere.
        """
        if self.item is None:
            return 0.0
        noise = noise_of(self.item, self.given, of_coarse=coarse)
        return self.left / math.hypot(self.given, noise)


@dataclass(frozen=True, slots=True)
class Looks:
    """What is worth a look, and what needs none.

    Attributes:
        at: operations to be run again, the most striking first.
        alike: operations that made golden's very bits of golden's very bits, counted by what one
            kernel computes.
    """

    at: Sequence[Look] = ()
    alike: Mapping[Like, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Look:
    """An operation to be run again.

    Attributes:
        index: of the comparison of the result that is furthest from golden.
        cost: bytes that it reads and makes; products count as if they were bytes.
    """

    index: int
    cost: float


def worth_a_look(run: Pass, comparisons: Sequence[Comparison], indices: Sequence[int]) -> Looks:
    """Operations to be run again.

    Args:
        run: my run.
        comparisons: all of the report.
        indices: those of the run.
    """
    if run.traits.library:
        return Looks()  # its operators cannot be run here, and recomputing them costs too much
    places = {operation_key(operation): op for op, operation in enumerate(run.operations)}
    seen, compared = _seen(run, comparisons, indices)
    coarse = any(each.item is not None and is_coarse(each.item) for each in seen.values())
    growths = {key: each.growth(coarse=coarse) for key, each in seen.items() if each.left}
    striking = [key for key, growth in growths.items() if growth > _STRIKING]
    if not striking:
        return Looks()
    striking.sort(key=lambda key: growths[key], reverse=True)
    others = [
        key
        for key, growth in growths.items()
        if growth <= _STRIKING and seen[key].differs and not is_moving(run.operations[places[key]])
    ]
    alike = Counter(
        like(run.operations[places[key]])
        for key, each in seen.items()
        if each.reads and each.made and not each.given and not each.left
    )
    wanted = (seen[key] for key in (*striking, *others))
    affordable = _affordable(wanted, compared // _SHARE + _LEAST_BYTES)
    return Looks(list(affordable), alike)


def _seen(
    run: Pass, comparisons: Sequence[Comparison], indices: Sequence[int]
) -> tuple[dict[Key, _Seen], int]:
    """What is known by operation without members, and how many bytes were compared."""
    around = {parent for parent in parents_of(run) if parent is not None}
    graphs = {operation_key(run.operations[op]) for op in around}
    found: dict[Key, _Seen] = {}
    compared = 0
    for index in indices:
        item = comparisons[index]
        error = item.values.get(DISTANCE)
        if error is None or item.mine is None or item.golden is None:
            continue
        compared += item.mine.byte_count + item.golden.byte_count
        key = record_key(item.mine)
        if key in graphs:
            continue
        seen = found.setdefault(key, _Seen())
        if item.mine.role == "in":
            seen.given = max(seen.given, error)
            seen.reads.append(item.mine)
        elif item.mine.role == "out":
            seen.made += _elements_of(item.mine)
            if error > seen.left:
                seen.left, seen.index, seen.item = error, index, item
    return found, compared


def _affordable(seen: Iterable[_Seen], budget: float) -> Iterator[Look]:
    for each in seen:
        cost = _cost(each)
        budget -= cost
        if budget < 0:
            return
        yield Look(each.index, cost)


def _cost(seen: _Seen) -> float:
    """Bytes to be read, and products as if they were bytes; each input may be a factor."""
    read = sum(each.byte_count for each in seen.reads)
    longest = max((each.shape[-1] for each in seen.reads if each.shape), default=1)
    return read + seen.made * (4 + longest / _PRODUCTS_PER_BYTE)


def _elements_of(record: TensorRecord) -> int:
    return math.prod(record.shape or (0,))
