"""Attention that the code of a module computes otherwise than golden's, within every tolerance.

What queries, keys and values become before the output projection reads it is computed by no
captured operation. Golden's own values prove what it is, and mine are held to the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ait_llm.compare.origin_run import Key, operation_key, record_key
from ait_llm.compare.roundings import is_of_sums, rounding_of
from ait_llm.core.comparison import Comparison, TensorRecord
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.judge.attention import ASKED, Distance, beyond, distance
from ait_llm.judge.attention_parts import Attention, Recipe, is_part
from ait_llm.judge.attention_proof import MOST_ELEMENTS, proof, rows_of
from ait_llm.judge.definition_meanings import sort_of
from ait_llm.judge.pairs import DISTANCE
from ait_llm.program.flow import parents_of
from ait_llm.program.one_pass import Pass

# What looks may cost: a share of the bytes that were compared, and these in any case; less where
# the error does not grow by more than this factor. One look costs as much as comparing so many
# bytes, and for each element of what it looks at and computes.
_STRIKING, _SHARE, _LESS, _LEAST_BYTES = 1.2, 16, 48, 4 << 20
_BYTES, _BYTES_READ, _BYTES_PER_ELEMENT = 1 << 20, 16, 256
_DIMENSIONS = 3  # requests, tokens and elements


@dataclass(frozen=True, slots=True)
class WrongFormula:
    """What the code of a module makes otherwise than golden's.

    Attributes:
        module: index of my module.
        index: of the comparison of what it made.
        before: the last member that it computes with; ``after`` reads what it made, if any does.
        result: the tensor that it made.
        distance: how far it is off.
        what: golden's is of its own values, as a report calls it.
    """

    module: int
    index: int
    before: str
    after: str
    result: Tensor
    distance: Distance
    what: str = "the attention of its own queries, keys and values"


@dataclass(frozen=True, slots=True)
class _Place:
    """Something that the code of an attention module made.

    Attributes:
        module: index of my module.
        index: of the comparison.
        growth: error over that of what it was made of and of one rounding.
        elements: of it.
    """

    module: int
    index: int
    growth: float
    elements: int


class Attentions:
    """Holds attention in the code of golden's modules against that of mine.

    Args:
        golden, mine: the passes.
        comparisons: all of the report.
        indices: those of my pass, in execution order.
    """

    def __init__(
        self,
        golden: Pass,
        mine: Pass,
        comparisons: Sequence[Comparison],
        indices: Sequence[int],
    ) -> None:
        self._passes = golden, mine
        self._comparisons = comparisons
        self._indices = indices
        self._proved: list[Recipe] = []

    @cached_property
    def _calls(self) -> tuple[_Calls, _Calls]:
        golden, mine = self._passes
        return _Calls(golden), _Calls(mine)

    def wrong(self) -> Iterator[WrongFormula]:
        """Those that differ by more than rounding explains, in execution order."""
        if self._passes[1].left_out is not None:
            return
        for place in sorted(self._affordable(), key=lambda each: each.module):
            try:
                found = self._wrong(place)
            except AitError:
                continue  # a damaged file tells nothing
            if found is not None:
                yield found

    def _wrong(self, place: _Place) -> WrongFormula | None:
        item = self._comparisons[place.index]
        mine, golden = self._calls[1].of(item.mine), self._calls[0].of(item.golden)
        if mine is None or golden is None:
            return None
        if mine.result.shape != golden.result.shape:
            return None
        proved = self._proof(golden)
        given = None if proved is None else mine.given(proved[0], golden)
        if proved is None or given is None:
            return None
        recipe, theirs = proved
        whole = golden.given(recipe)
        if whole is None or given.keys != whole.keys:
            return None  # a cache with room for more: which of it are keys is not known
        given = given.sampled(MOST_ELEMENTS)
        rows = rows_of(given)
        found = distance(given, recipe.formula, rows)
        if found is None or not found.is_beyond(theirs, ASKED):
            return None
        found = beyond(given, whole.sampled(MOST_ELEMENTS), recipe.formula, rows)
        if found is None:
            return None
        record = item.mine
        assert record is not None
        own = record.op == mine.module.name
        start = len(mine.module.name) + 1
        members = [part.member for part in recipe.parts]
        last = max(members, key=mine.order)
        after = "" if own else record.op[start:]
        return WrongFormula(place.module, place.index, last, after, mine.result, found)

    def _proof(self, golden: Attention) -> tuple[Recipe, Distance] | None:
        """What golden's values prove to be its attention, and how far they are from it."""
        found = proof(golden, self._proved)
        if found is not None and found[0] not in self._proved:
            self._proved.append(found[0])
        return found

    def _affordable(self) -> Iterator[_Place]:
        """What is worth a look, as far as it may cost."""
        places, compared = self._places()
        spent = 0.0
        for each in sorted(places, key=lambda place: place.growth, reverse=True):
            computed = min(each.elements, MOST_ELEMENTS)
            spent += _BYTES + each.elements * _BYTES_READ + computed * _BYTES_PER_ELEMENT
            share = _SHARE if each.growth > _STRIKING else _LESS
            if spent > compared / share + _LEAST_BYTES:
                return
            yield each

    def _places(self) -> tuple[list[_Place], int]:
        """What the code of attention modules made otherwise than golden's, and bytes compared."""
        calls = self._calls[1]
        given: dict[int, float] = {}
        found: dict[int, _Place] = {}
        compared = 0
        for index in self._indices:
            item = self._comparisons[index]
            error = item.values.get(DISTANCE)
            if error is None or item.mine is None or item.golden is None:
                continue
            compared += item.mine.byte_count + item.golden.byte_count
            module = calls.attention_at(item.mine)
            if module is None:
                continue
            record = item.mine
            if module not in found and calls.is_made(module, record):
                rounding = max(map(rounding_of, (item.golden, record)))
                growth = error / math.hypot(given.get(module, 0.0), rounding)
                if error and not is_of_sums(item):
                    size = math.prod(record.shape or ())
                    found[module] = _Place(module, index, growth, size)
            elif module not in found and not calls.is_left(module, record):
                given[module] = max(given.get(module, 0.0), error)
        return list(found.values()), compared


class _Calls:
    """The calls of a pass, as far as attention needs them."""

    def __init__(self, run: Pass) -> None:
        self.run = run

    @cached_property
    def places(self) -> Mapping[Key, int]:
        """Index of each call."""
        return {operation_key(each): op for op, each in enumerate(self.run.operations)}

    @cached_property
    def _parents(self) -> tuple[int | None, ...]:
        return parents_of(self.run)

    @cached_property
    def _members(self) -> Mapping[int, list[Operation]]:
        """What lies directly within attention modules."""
        found: dict[int, list[Operation]] = {}
        for op, parent in enumerate(self._parents):
            if parent is not None and sort_of(self.run.operations[parent]) == "attention":
                found.setdefault(parent, []).append(self.run.operations[op])
        return found

    def attention_at(self, record: TensorRecord) -> int | None:
        """The attention module that a record is of, or of a member of it."""
        op = self.places.get(record_key(record))
        if op is None:
            return None
        parent = self._parents[op]
        return next((each for each in (op, parent) if each in self._members), None)

    def is_made(self, module: int, record: TensorRecord) -> bool:
        """True for what may be the attention that a module's code computes.

        It is what the first member behind queries, keys and values reads; a module without such a
        member hands it on.
        """
        if len(record.shape or ()) != _DIMENSIONS:
            return False
        start = len(self.run.operations[module].name) + 1
        names = [each.name[start:] for each in self._members[module]]
        parts = [place for place, name in enumerate(names) if is_part(name)]
        if not parts:
            return False
        behind = names[parts[-1] + 1 :]
        op = self.places[record_key(record)]
        if op == module:
            return record.role == "out" and record.index == 0 and not behind
        return record.role == "in" and self.run.operations[op].name[start:] in behind

    def is_left(self, module: int, record: TensorRecord) -> bool:
        """True for what a module itself returns, which is listed before what its members read."""
        return record.role == "out" and self.places[record_key(record)] == module

    def of(self, record: TensorRecord | None) -> Attention | None:
        """The attention that made what a record is of."""
        module = None if record is None else self.attention_at(record)
        if record is None or module is None:
            return None
        operation = self.run.operations[self.places[record_key(record)]]
        tensors = operation.outputs if record.role == "out" else operation.inputs
        result = next((each for each in tensors if each.index == record.index), None)
        if result is None:
            return None
        whole = self.run.operations
        return Attention(whole[module], self._members[module], whole[0], result)
