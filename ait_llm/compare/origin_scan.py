"""Scans that the code of a Mamba mixer computes otherwise than golden's, within every tolerance.

No captured operation computes what becomes of the projections of a mixer. Where golden's own values
prove that it is the selective scan, or the convolution before it, mine are held to the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, reduce

from ait_llm.compare.origin_attention import WrongFormula
from ait_llm.compare.origin_run import Key, operation_key, record_key
from ait_llm.compare.roundings import is_of_sums, rounding_of
from ait_llm.core.comparison import Comparison, TensorRecord
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.judge.attention import Distance
from ait_llm.judge.pairs import DISTANCE
from ait_llm.judge.scan import BIASES, WEIGHTS, Mixer, distances
from ait_llm.program.flow import parents_of
from ait_llm.program.lineage import coarsest
from ait_llm.program.one_pass import Pass

# Members of a mixer, in execution order; what the last two read is made by its code.
_MEMBERS = _INNER, _PARTS, _LAST = "in_proj", "x_proj", "out_proj"
_WHATS = {
    _PARTS: "the convolution of its own values",
    _LAST: "the selective scan of its own values",
}
# What looks may cost: a share of the bytes that were compared, and these in any case. A look costs
# as much as comparing so many bytes.
_SHARE, _LEAST_BYTES, _BYTES = 48, 16 << 20, 4 << 20


class Scans:
    """Holds the code of golden's mixers against that of mine.

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
        self._calls = _Mixers(golden), _Mixers(mine)
        self._comparisons = comparisons
        self._indices = indices

    def wrong(self) -> Iterator[WrongFormula]:
        """What differs by more than rounding explains, in execution order."""
        golden, mine = self._calls
        if mine.run.left_out is not None or not (golden.run.weights and mine.run.weights):
            return
        for module, places in sorted(self._affordable()):
            try:
                yield from self._wrong(module, places)
            except AitError:
                continue  # a damaged file tells nothing

    def _wrong(self, module: int, places: Mapping[str, int]) -> Iterator[WrongFormula]:
        golden, mine = self._calls
        own = mine.distances(module)
        records = [self._comparisons[index].golden for index in places.values()]
        others = {golden.at(record) for record in records if record is not None}
        (other,) = others if len(others) == 1 else (None,)
        theirs = None if other is None else golden.distances(other)
        if own is None or theirs is None:
            return
        for name, one, two in zip((_PARTS, _LAST), own, theirs, strict=True):
            if name in places and two.is_proved and one.is_beyond(two):
                before = _MEMBERS[_MEMBERS.index(name) - 1]
                result = mine.result(module, name)
                yield WrongFormula(module, places[name], before, name, result, one, _WHATS[name])

    def _affordable(self) -> Iterator[tuple[int, Mapping[str, int]]]:
        """Mixers that are worth a look, and the comparisons of what their code made."""
        mine = self._calls[1]
        made: dict[int, dict[str, int]] = {}
        growths: dict[int, float] = {}
        given: dict[int, float] = {}
        compared = 0
        for index in self._indices:
            item = self._comparisons[index]
            error = item.values.get(DISTANCE)
            if error is None or item.mine is None or item.golden is None:
                continue
            compared += item.mine.byte_count + item.golden.byte_count
            module = mine.at(item.mine)
            if module is None:
                continue
            name = mine.name(item.mine)
            is_made = name in _WHATS and item.mine.role == "in"
            if is_made and error and not is_of_sums(item):
                rounding = max(map(rounding_of, (item.golden, item.mine)))
                growth = error / math.hypot(given.get(module, 0.0), rounding)
                made.setdefault(module, {})[name] = index
                growths[module] = max(growth, growths.get(module, 0.0))
            given[module] = max(error, given.get(module, 0.0))
        count = int((compared / _SHARE + _LEAST_BYTES) / _BYTES)
        for module in sorted(made, key=lambda each: growths[each], reverse=True)[:count]:
            yield module, made[module]


class _Mixers:
    """The mixers of a pass."""

    def __init__(self, run: Pass) -> None:
        self.run = run

    @cached_property
    def _places(self) -> Mapping[Key, int]:
        return {operation_key(each): op for op, each in enumerate(self.run.operations)}

    @cached_property
    def _members(self) -> Mapping[int, Mapping[str, Operation]]:
        """The members of each mixer by their names."""
        found: dict[int, dict[str, Operation]] = {}
        operations = self.run.operations
        for op, parent in enumerate(parents_of(self.run)):
            if parent is not None and f"{operations[parent].name}.A_log" in self.run.weights:
                start = len(operations[parent].name) + 1
                found.setdefault(parent, {})[operations[op].name[start:]] = operations[op]
        return {op: each for op, each in found.items() if each.keys() >= {*_MEMBERS}}

    @cached_property
    def _owners(self) -> Mapping[int, int]:
        return {op: parent for op, parent in enumerate(parents_of(self.run)) if parent is not None}

    def at(self, record: TensorRecord) -> int | None:
        """The mixer that a record is of a member of."""
        op = self._places.get(record_key(record))
        parent = None if op is None else self._owners.get(op)
        return parent if parent in self._members else None

    def name(self, record: TensorRecord) -> str:
        """The name of a member within its mixer."""
        return record.op.rpartition(".")[2]

    def result(self, module: int, member: str) -> Tensor:
        """What the code of a mixer made, that a member reads."""
        return self._members[module][member].inputs[0]

    def distances(self, module: int) -> tuple[Distance, Distance] | None:
        """How far a mixer is from its formulas; None where they cannot be computed."""
        inner, parts, last = (self._members[module][name] for name in _MEMBERS)
        name = self.run.operations[module].name
        weights = {
            each: self.run.weights[f"{name}.{each}"]
            for each in (*WEIGHTS, *BIASES)
            if f"{name}.{each}" in self.run.weights
        }
        tensors = [*inner.outputs[:1], *parts.inputs[:1], *parts.outputs[:1], *last.inputs[:1]]
        if len(tensors) < 4 or not weights.keys() >= {*WEIGHTS}:
            return None
        if not all(each.has_data for each in (*tensors, *weights.values())):
            return None
        arrays = [each.nd() for each in tensors]
        held = {name: each.nd() for name, each in weights.items()}
        first, second = (
            reduce(coarsest, (each.dtype for each in read), None) for read in (tensors[:2], tensors)
        )
        if first is None or second is None:
            return None
        widened = frozenset(name for name, each in weights.items() if each.dtype.bits > first.bits)
        inner_made, source, made, result = arrays
        return distances(Mixer(inner_made, source, made, result, held, (first, second), widened))
