"""Values that the code of a module adds otherwise than golden's, though within every tolerance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from ait_llm.compare.origin_between import maker
from ait_llm.compare.origin_run import RunStructure
from ait_llm.compare.origin_values import RunValues
from ait_llm.compare.roundings import rounding_of
from ait_llm.core.comparison import Comparison
from ait_llm.dumps.tensors import Tensor
from ait_llm.errors import AitError
from ait_llm.judge.pairs import DISTANCE, ELEMENT
from ait_llm.judge.sums import Stray, fits, is_nearer, is_sum, is_told, stray
from ait_llm.judge.tolerance import ELEMENT_FACTOR

# Values of one module that may be terms, the nearest ones; of sums of three, as parallel attention
# and a residual are, fewer.
_MOST_TERMS, _MOST_OF_THREE = 16, 6
# What looks may cost: a share of the bytes that were compared, and these in any case. A sum costs
# as much as comparing so many bytes of each element, beside those of what is read.
_SHARE, _LEAST_BYTES, _BYTES_PER_ELEMENT = 32, 4 << 20, 64


def _orders(terms: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Two or three of some values, in each order that makes another sum."""
    yield from combinations(terms[-_MOST_TERMS:][::-1], 2)
    for one, other, last in combinations(terms[-_MOST_OF_THREE:], 3):
        yield from ((one, other, last), (one, last, other), (other, last, one))


@dataclass(frozen=True, slots=True)
class WrongSum:
    """A value that is golden's sum of two others, and not mine.

    Attributes:
        module: index of my module whose code adds.
        value: number of the value of mine.
        terms: numbers of what it should be the sum of, in the order of golden's code.
        stray: the worst element.
    """

    module: int
    value: int
    terms: tuple[int, ...]
    stray: Stray


class Sums:
    """Holds sums in the code of golden's modules against those of mine.

    Args:
        values: my run and what the comparisons say about it.
        comparisons: all of the report.
        golden: the golden run.
    """

    def __init__(
        self, values: RunValues, comparisons: Sequence[Comparison], golden: RunStructure
    ) -> None:
        self._values = values
        self._comparisons = comparisons
        self._golden = golden

    def wrong(self, value: int) -> WrongSum | None:
        """Whether the code of a module makes another sum than golden's.

        Args:
            value: number of a value of mine.
        """
        try:
            return self._wrong(value)
        except AitError:
            return None  # a damaged file tells nothing

    def worth_a_look(self) -> list[int]:
        """Values that may be sums and are not golden's in every bit, as far as looks may cost.

        Those where the error grows most come first, that of one element among them: it is lost in
        the errors of many layers. What is affordable is told in execution order.
        """
        compared, found = 0, []
        for index in self._values.indices:
            record, other = self._comparisons[index].mine, self._comparisons[index].golden
            if record is None or other is None or not self._comparisons[index].needed:
                continue
            compared += record.byte_count + other.byte_count
            value = self._values.value_of(index)
            if value is None or not is_told(record.dtype):
                continue
            module = self._module(value)
            if module is not None and value in self._pairs and self._errors.get(value):
                before = [self._errors.get(each, 0.0) for each in self._before(module, value)]
                rounding = max(map(rounding_of, (record, other)))
                growth = self._errors[value] / math.hypot(max(before, default=0.0), rounding)
                cost = math.prod(record.shape or ()) * _BYTES_PER_ELEMENT
                cost += (1 + len(before)) * (record.byte_count + other.byte_count)
                found.append((growth, -value, cost))
        budget = compared / _SHARE + _LEAST_BYTES
        chosen = set()
        for _, negative, cost in sorted(found, reverse=True):
            budget -= cost
            if budget < 0:
                break
            chosen.add(-negative)
        return sorted(chosen)

    def _wrong(self, value: int) -> WrongSum | None:
        module = self._module(value)
        total = self._pairs.get(value)
        if module is None or total is None or not fits(self._tensor(self._golden, total)):
            return None
        shape = self._tensor(self._golden, total).shape
        terms = {
            each: term.nd()
            for each in self._before(module, value)
            if fits(term := self._tensor(self._golden, self._pairs[each])) and term.shape == shape
        }
        made = self._tensor(self._golden, total).nd()
        for chosen in _orders(list(terms)):
            if not is_sum([terms[each] for each in chosen], made):
                continue
            *mine, own = (self._tensor(self._values, each) for each in (*chosen, value))
            found = stray(mine, own) if all(map(fits, (*mine, own))) else None
            if found is None or not is_nearer(found, own.shape, made):
                return None
            return WrongSum(module, value, chosen, found)
        return None

    def _module(self, value: int) -> int | None:
        """The module whose own code makes a value; None where an operation or nobody does."""
        op = self._values.producer(value)
        if op is None:
            return maker(self._values, value)
        return None if self._values.is_leaf(op) else op

    def _before(self, module: int, value: int) -> Iterator[int]:
        """Values that answer golden's and that the code of a module has before it makes one."""
        flow = self._values.flow
        operations = self._values.run.operations
        uses = [(module, tensor) for tensor in operations[module].inputs]
        for op in self._values.members(module):
            if flow.parents[op] == module:
                uses += [(op, tensor) for tensor in operations[op].tensors]
        found = (flow.at(op, tensor.role, tensor.index) for op, tensor in uses)
        numbers = dict.fromkeys(each.number for each in found if each is not None)
        return (each for each in numbers if each < value and each in self._pairs)

    @cached_property
    def _errors(self) -> dict[int, float]:
        """Largest error of each value, of all elements or of the worst, in the former's scale."""
        found: dict[int, float] = {}
        for value, known in self._values.evidence.items():
            for index in (*known.passed, *known.failed):
                needed = self._comparisons[index].needed
                element = needed.get(ELEMENT, 0.0) / ELEMENT_FACTOR
                found[value] = max(found.get(value, 0.0), needed.get(DISTANCE, 0.0), element)
        return found

    @cached_property
    def _pairs(self) -> dict[int, int]:
        """Golden values that answer those of mine, as far as comparisons passed."""
        found: dict[int, int] = {}
        for value, known in self._values.evidence.items():
            for index in () if known.failed else known.passed:
                other = self._golden.value_at(self._comparisons[index].golden)
                if other is not None:
                    found.setdefault(value, other.number)
        return found

    @staticmethod
    def _tensor(run: RunStructure, value: int) -> Tensor:
        return run.flow.values[value].uses[0].tensor
