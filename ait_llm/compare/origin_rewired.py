"""Where my program computes a value by other operations than golden does.

Two operators answer each other, both compute rightly, and their results differ: then one of them
reads something else. The ways back from both are walked side by side, until what mine reads was
made by another operation than what golden reads. No number is judged for it; only the order of
operations is, which a bug in the code of a module changes: a residual that is not added, a mask
that is left out, a mean of something else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ait_llm.compare.origin_run import RunStructure, operation_key, path_of
from ait_llm.compare.origin_values import RunValues
from ait_llm.core.comparison import Comparison
from ait_llm.dumps.model import Operation
from ait_llm.judge.definition_arguments import is_attention
from ait_llm.program.flow import Value
from ait_llm.program.operators import is_moving, kind_of
from ait_llm.program.roles import is_operator

# They change the type of values at most, which runs of another precision do at other places.
_CASTS = frozenset({"_to_copy", "copy_", "lift_fresh_copy"})
_SYMMETRIC = frozenset({"add", "mul"})
_LONGEST = 6  # operators that a code may lack one after the other
_TURNING = frozenset({"permute", "t", "transpose"})


@dataclass(frozen=True, slots=True)
class Rewired:
    """Operators that answer each other and read what other operations make.

    Attributes:
        op: index of mine.
        reads: index of the operator of mine that makes what it reads.
        should_read: the golden operator that makes what golden's reads.
        moves, should_move: kinds of what moves the elements on the way, the nearest first.
        lacks: golden operators between the two that mine does not run, in their order.
    """

    op: int
    reads: int
    should_read: Operation
    moves: tuple[str, ...]
    should_move: tuple[str, ...]
    lacks: tuple[Operation, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An operator of golden's code that mine lacks: what it reads is handed on as it is.

    Attributes:
        module: index of my module whose code lacks it.
        op: index of my operator that makes what is handed on.
        lacks: the golden operators, in the order in which they run.
    """

    module: int
    op: int
    lacks: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class _Source:
    op: int
    moves: tuple[str, ...]


class Wiring:
    """Holds my operators and golden's that answer them side by side.

    Args:
        values: my run and what the comparisons say about it.
        comparisons: all of the report.
        golden: the golden run.
        counterparts: golden operations by index of mine.
    """

    def __init__(
        self,
        values: RunValues,
        comparisons: Sequence[Comparison],
        golden: RunStructure,
        counterparts: Mapping[int, Operation],
    ) -> None:
        self._values = values
        self._comparisons = comparisons
        self._golden = golden
        self._counterparts = counterparts
        self._known = {
            place
            for other in counterparts.values()
            if (place := golden.places.get(operation_key(other))) is not None
        }

    def differs(self, op: int) -> Rewired | None:
        """Where the way to an operator parts from golden's; None if it does not, as far as seen.

        Args:
            op: index of an operator of mine whose result is not that of golden.
        """
        other = self._counterparts.get(op)
        if other is None or not is_operator(other):
            return None
        place = self._golden.places.get(operation_key(other))
        if place is None:
            return None
        pending, seen = deque([(op, place)]), {op}
        while pending:
            mine, golden = pending.popleft()
            if not self._is_of_one_code(mine, golden):
                continue
            for one, two in self._sources(mine, golden):
                if self._parts(one, two):
                    operations = self._golden.run.operations
                    chain = [] if two.op in self._known else self._behind(one.op, two.op)
                    lacks = tuple(operations[each] for each in chain)
                    right = operations[two.op]
                    return Rewired(mine, one.op, right, one.moves, two.moves, lacks)
                if one.op not in seen and not self._answers(one.op):
                    seen.add(one.op)
                    pending.append((one.op, two.op))
        return None

    def leaves_out(self, op: int, index: int) -> LeftOut | None:
        """What golden's code does with the result of an operator before handing it on.

        Args:
            op: index of an operator of mine.
            index: of a comparison of its result with that of an operator of another kind.
        """
        place = self._made_by(index)
        if place is None:
            return None
        chain = self._behind(op, place)
        if not chain:
            return None
        module = self._answering(self._golden.owner(place))
        if module is None and self._are_alone(op, place):
            module = op
        lacks = tuple(self._golden.run.operations[each] for each in chain)
        return None if module is None else LeftOut(module, op, lacks)

    def adds(self, op: int, index: int) -> tuple[int, ...]:
        """What mine does with a value before handing it on, and golden's code does not.

        Args:
            op: index of an operator of mine.
            index: of a comparison of its result.

        Returns:
            Indices of my operators in their order, of which the first reads the golden value that
            the result of the last is compared with; none where that is not so.
        """
        right = self._golden.value_at(self._comparisons[index].golden)
        chain = [op]
        while right is not None and len(chain) <= _LONGEST:
            operation = self._values.run.operations[chain[0]]
            if not is_operator(operation) or is_moving(operation) or kind_of(operation) in _CASTS:
                return ()
            if any(self._agrees(each.number, right) for each in self._values.inputs(chain[0])):
                return tuple(chain)
            made = [each.op for each in _made(self._values, chain[0]) if each is not None]
            if len(made) != 1:
                return ()
            chain.insert(0, made[0])
        return ()

    def _agrees(self, number: int, right: Value) -> bool:
        """True if a value of mine agrees with this one of golden's."""
        known = self._values.evidence.get(number)
        if known is None or not known.is_right:
            return False
        values = (self._golden.value_at(self._comparisons[index].golden) for index in known.passed)
        return any(value is right for value in values)

    def _behind(self, op: int, place: int) -> list[int]:
        """Golden operators up to one that read, one after the other, what an operator makes.

        Empty where it is not known to make what the first of them reads.
        """
        chain = [place]
        while len(chain) <= _LONGEST:
            reads = [each.op for each in _made(self._golden, chain[0]) if each is not None]
            if any(self._makes(op, each, place) for each in reads):
                return chain
            if len(reads) != 1 or reads[0] in self._known:
                return []  # mine makes it too, or it takes other values as well
            chain.insert(0, reads[0])
        return []

    def _makes(self, op: int, golden: int, instead: int) -> bool:
        """True if an operator of mine is a golden one, and not the one that it is compared with."""
        if golden == instead or kind_of(self._values.run.operations[op]) != kind_of(
            self._golden.run.operations[golden]
        ):
            return False
        if golden in self._answers(op):
            return True
        if not self._is_of_one_code(op, golden):
            return False
        if kind_of(self._golden.run.operations[golden]) != kind_of(
            self._golden.run.operations[instead]
        ):
            return True
        return self._reads_alike(op, golden) and not self._reads_alike(op, instead)

    def _reads_alike(self, op: int, golden: int) -> bool:
        """True if all that two operators read comes from the same, some of it from operators."""
        ours, theirs = _made(self._values, op), _made(self._golden, golden)
        ways = list(self._sources(op, golden))
        if len(ours) != len(theirs) or ours.count(None) != theirs.count(None):
            return False
        is_whole = len(ways) == len(ours) - ours.count(None)
        return bool(ways) and is_whole and not any(self._parts(*each) for each in ways)

    def lacking_before(self, found: Rewired) -> LeftOut | None:
        """What the code lacks that makes what the code of another module reads.

        A router that does not divide its weights hands them on as they are. The experts read what
        they are handed, and are right.
        """
        operations = self._values.run.operations
        reader, maker = (path_of(operations[op]) for op in (found.op, found.reads))
        if reader == maker or not self._is_of_one_place(found):
            return None
        key = operation_key(found.should_read)
        if any(operation_key(other) == key for other in self._counterparts.values()):
            return None  # mine makes it, too, and another value is read
        answer = self._counterparts.get(found.reads)
        place = None if answer is None else self._golden.places.get(operation_key(answer))
        if place is None or not self._comes_of(self._golden.places[key], place):
            return None
        return LeftOut(self._values.owner(found.reads), found.reads, (found.should_read,))

    def _is_of_one_place(self, found: Rewired) -> bool:
        """True if golden's module that makes what is read answers mine, as its operators say."""
        answer = self._counterparts.get(found.reads)
        return answer is not None and path_of(answer) == path_of(found.should_read)

    def _comes_of(self, op: int, before: int) -> bool:
        """True if a golden operator reads what an earlier one makes, in the code of one module."""
        operations = self._golden.run.operations
        pending, seen = deque([op]), {op}
        while pending:
            for each in _made(self._golden, pending.popleft()):
                if each is None or each.op in seen:
                    continue
                if each.op == before:
                    return True
                if path_of(operations[each.op]) == path_of(operations[op]):
                    seen.add(each.op)
                    pending.append(each.op)
        return False

    def _answering(self, golden: int) -> int | None:
        """My module that a golden one answers."""
        key = operation_key(self._golden.run.operations[golden])
        found = (op for op, other in self._counterparts.items() if operation_key(other) == key)
        return next((op for op in found if not is_operator(self._values.run.operations[op])), None)

    def _is_of_one_code(self, mine: int, golden: int) -> bool:
        """True for one operator in modules of one class, so that their codes should be one.

        Operators that were captured without modules are of the module in their names.
        """
        one, two = self._values.run.operations[mine], self._golden.run.operations[golden]
        if kind_of(one) != kind_of(two):
            return False
        codes = self._values.code_of(mine), self._golden.code_of(golden)
        return codes[0] == codes[1] if all(codes) else path_of(one) == path_of(two)

    def _are_alone(self, mine: int, golden: int) -> bool:
        """True if the operators of one side were captured without their modules."""
        return not (self._values.code_of(mine) and self._golden.code_of(golden))

    def _sources(self, mine: int, golden: int) -> Iterator[tuple[_Source, _Source]]:
        """What makes the inputs of two operators, as far as operators of the passes do."""
        ours, theirs = _made(self._values, mine), _made(self._golden, golden)
        if len(ours) != len(theirs):
            return
        if len(ours) == 2 and kind_of(self._values.run.operations[mine]) in _SYMMETRIC:
            fits = [self._fit(ours, order) for order in (theirs, theirs[::-1])]
            theirs = theirs if fits[0] >= fits[1] else theirs[::-1]
        for one, two in zip(ours, theirs, strict=True):
            if one is not None and two is not None:
                yield one, two

    def _fit(self, ours: list[_Source | None], theirs: list[_Source | None]) -> int:
        pairs = zip(ours, theirs, strict=True)
        return sum(
            (one is None) == (two is None)
            and (one is None or two is None or not self._parts(one, two))
            for one, two in pairs
        )

    def _parts(self, one: _Source, two: _Source) -> bool:
        """True if two operators are not one, or their results go another way to who reads them."""
        mine, golden = self._values.run.operations[one.op], self._golden.run.operations[two.op]
        if is_attention(mine) != is_attention(golden):
            return False  # two implementations of one thing
        known = self._answers(one.op)
        if known:
            return two.op not in known or _turns(one.moves) != _turns(two.moves)
        return kind_of(mine) != kind_of(golden)

    def _made_by(self, index: int) -> int | None:
        """The operator that computed golden's value of a comparison."""
        value = self._golden.value_at(self._comparisons[index].golden)
        source = None if value is None else _source(self._golden, value)
        return None if source is None else source.op

    def _answers(self, op: int) -> set[int]:
        """Golden operators whose results those of one of mine agree with."""
        found: set[int] = set()
        for value in self._values.outputs(op):
            known = self._values.evidence.get(value.number)
            for index in known.passed if known is not None else ():
                place = self._made_by(index)
                if place is not None:
                    found.add(place)
        return found


def _turns(moves: tuple[str, ...]) -> int:
    """How often elements change places on a way; views and copies leave them in order."""
    return sum(each in _TURNING for each in moves)


def _made(run: RunStructure, op: int) -> list[_Source | None]:
    """What made the inputs of an operator; None for those that came from outside."""
    values = (run.flow.at(op, "in", tensor.index) for tensor in run.run.operations[op].inputs)
    return [None if value is None else _source(run, value) for value in values]


def _source(run: RunStructure, value: Value) -> _Source | None:
    """The operator that computed a value, before its elements were moved."""
    moves: list[str] = []
    while True:
        op = run.producer(value.number)
        if op is None or not is_operator(run.run.operations[op]):
            return None
        operation = run.run.operations[op]
        if not is_moving(operation) and kind_of(operation) not in _CASTS:
            return _Source(op, tuple(moves))
        moves.append(kind_of(operation))
        before = [run.flow.at(op, "in", tensor.index) for tensor in operation.inputs]
        if not before or before[0] is None or before[0] is value:
            return None
        value = before[0]
