"""What golden makes within the module whose result fails, held against what mine makes there.

Of an attention that golden captured as one block its own formula tells what is made on the way:
scores, capped and masked ones, their shares. Operators of mine that make the same are right, and so
is what they were made of; the error arose behind them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import ml_dtypes

from ait_llm.compare.origin_golden import MOST_ELEMENTS, stages_within
from ait_llm.compare.origin_run import RunStructure, record_key
from ait_llm.compare.origin_values import RunValues, Upstream
from ait_llm.core import DType
from ait_llm.core.comparison import Comparison, TensorRecord
from ait_llm.dumps.model import Operation
from ait_llm.errors import AitError
from ait_llm.judge.attention_stages import Stage
from ait_llm.program.flow import Value
from ait_llm.program.roles import is_operator
from ait_llm.program.roles_fx import is_view

_MOST_VALUES = 256
_FLOAT32_ROUNDINGS = 64  # long sums of float32 in another order leave so many at most
_GROWTH = 4  # of an error that came in
_CLEARLY = 0.1  # of the error that is looked into; what is closer to it tells nothing
_HANDS_ON = ("aten.alias", "aten.clone", "aten.detach")


@dataclass(frozen=True, slots=True)
class Narrowed:
    """A way back from a failure, cut off where golden makes the same.

    Attributes:
        near: what is left of the way.
        first: the first operation that makes of golden's values something that golden does not;
            None where nobody knows.
        known: values of mine that golden makes, too.
    """

    near: Upstream
    first: int | None
    known: tuple[int, ...]


class Stages:
    """Finds what golden makes within its modules among the values of my run.

    Args:
        values: of my run.
        comparisons: all of the report.
        golden: the golden run.
    """

    def __init__(
        self, values: RunValues, comparisons: Sequence[Comparison], golden: RunStructure
    ) -> None:
        self._values = values
        self._comparisons = comparisons
        self._golden = golden
        self._stages: list[Stage] = []
        self._places: dict[int, tuple[int, float] | None] = {}

    def narrowed(self, near: Upstream, failed: int) -> Narrowed | None:
        """The way back from a failure as far as golden does not make the same.

        Args:
            near: the way back; nothing on it computes wrongly.
            failed: number of the value.
        """
        try:
            return self._narrowed(near, failed)
        except AitError:
            return None  # a damaged file tells nothing

    def _narrowed(self, near: Upstream, failed: int) -> Narrowed | None:
        values = self._values
        error = values.error(failed)
        module = self._module(self._comparisons[values.first_failed(failed)].golden)
        if len(near.operations) < 2 or module is None or error is None:
            return None
        made = [
            value
            for op in near.operations
            if values.is_leaf(op)
            for value in values.outputs(op)
            if value.number not in values.evidence
        ][-_MOST_VALUES:]
        self._stages = list(stages_within(self._golden, module))
        self._places.clear()
        before = max((each for n in near.agreeing if (each := values.error(n))), default=0.0)
        permitted = max(self._permitted(near.operations), _GROWTH * before)
        limit = min(_CLEARLY * error, permitted)
        known = []
        for value in made:
            place, far = self._place(value) or (0, math.inf)
            if far <= limit and not self._repeats(value, place):
                values.accept(value.number, far)
                known.append(value.number)
        if not known:
            return None
        left = values.upstream(failed)
        first = next(filter(self._begins(left, known), left.operations), None)
        first = self._beside(left, known) if first is None else first
        if first is not None:
            handing = set(self._handing_on(first)).difference(left.operations)
            left = replace(left, operations=(*sorted(handing), *left.operations))
        return Narrowed(left, first, tuple(known))

    def _beside(self, left: Upstream, known: Sequence[int]) -> int | None:
        """What makes numbers of no numbers, which an operation puts to what golden makes: a mask.

        Where it is golden's it is known; how it is made of positions is each program's own way.
        """
        values, way = self._values, frozenset(left.operations)
        for op in left.operations:
            read = {value.number for value in values.inputs(op)}
            if not read.intersection(known):
                continue
            for value in sorted(read.difference(known)):
                maker = None if self._whole(value) else values.producer(value)
                if maker not in way or maker is None:
                    continue
                made_of = (each.number for each in values.inputs(maker))
                if all(values.producer(each) is None or self._whole(each) for each in made_of):
                    return maker
        return None

    def _whole(self, value: int) -> bool:
        """True for whole numbers, and for what is true or not."""
        return self._values.is_index(value)

    def _repeats(self, value: Value, place: int) -> bool:
        """True for what an operator makes that should have changed what it reads, and did not."""
        op = self._values.producer(value.number)
        if op is None or is_view(self._values.run.operations[op].type):
            return False
        read = map(self._place, self._values.inputs(op))
        return any(each is not None and each[0] == place for each in read)

    def _handing_on(self, op: int) -> list[int]:
        """What hands on to an operation what it reads: another operator may belong there."""
        values = self._values
        read = (values.producer(value.number) for value in values.inputs(op))
        return [
            each
            for each in read
            if each is not None and values.run.operations[each].type.startswith(_HANDS_ON)
        ]

    def _is_made_of_golden(self, value: int) -> bool:
        """True if all that it is computed of agrees: it needs no numbers to be told by."""
        values = self._values
        op = values.producer(value)
        read = () if op is None else values.inputs(op)
        made = [each.number for each in read if values.producer(each.number) is not None]
        known = [values.evidence.get(each) for each in made]
        return bool(known) and all(each is not None and each.is_right for each in known)

    def _begins(self, left: Upstream, known: Sequence[int]) -> Callable[[int], bool]:
        """Whether an operation computes of numbers that agree, and of nothing on the way."""
        values, way = self._values, frozenset(left.operations)
        agreeing = {each for each in left.agreeing if each in known or not values.is_index(each)}

        def begins(op: int) -> bool:
            read = {value.number for value in values.inputs(op)}
            if not read & agreeing or _moves_all(values.run.operations[op]):
                return False
            return all(value in agreeing or values.producer(value) not in way for value in read)

        return begins

    def _place(self, value: Value) -> tuple[int, float] | None:
        """Which stage a value of mine is closest to, and how far from it; None if to none."""
        if value.number not in self._places:
            self._places[value.number] = self._closest(value)
        return self._places[value.number]

    def _closest(self, value: Value) -> tuple[int, float] | None:
        tensor = value.uses[0].tensor
        try:
            if not tensor.has_data or math.prod(tensor.shape) > MOST_ELEMENTS:
                return None
            array = tensor.nd()
        except AitError:
            return None
        always = self._values.is_index(value.number) and self._is_made_of_golden(value.number)
        found = [
            (error, place)
            for place, stage in enumerate(self._stages)
            if (always or stage.tells) and (error := stage.distance(array)) is not None
        ]
        return min(found)[::-1] if found else None

    def _permitted(self, way: Sequence[int]) -> float:
        """What rounding may have made of a value on the way, some of it in 16 bits perhaps."""
        operations = self._values.run.operations
        tensors = [each for op in way for each in (*operations[op].inputs, *operations[op].outputs)]
        types = {each.dtype for each in tensors if each.dtype.is_floating}
        types |= {DType.FLOAT16 for op in way if operations[op].params.get("inner") == "f16"}
        if not types:
            return 0.0
        coarse = min(types, key=lambda each: each.bits)
        eps = float(ml_dtypes.finfo(coarse.numpy_type).eps)  # type: ignore[no-untyped-call]
        return eps if coarse.bits <= 16 else _FLOAT32_ROUNDINGS * eps

    def _module(self, record: TensorRecord | None) -> int | None:
        """Golden's module around what answers the failing value."""
        golden = self._golden
        op = None if record is None else golden.places.get(record_key(record))
        if op is None or record is None:
            return None
        if record.role == "out" and not golden.is_leaf(op):
            return op
        around = golden.flow.ancestors(op)
        return next((each for each in around if not is_operator(golden.run.operations[each])), None)


def _moves_all(operation: Operation) -> bool:
    """True for what leaves out no element of what it reads, and changes none."""
    if not is_view(operation.type) or not (operation.inputs and operation.outputs):
        return False
    before, after = operation.inputs[0].shape, operation.outputs[0].shape
    return math.prod(before) <= math.prod(after)
