"""Which operations answer each other, read off the tensors that do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from ait_llm.core.definition import DefinitionDifference
from ait_llm.dumps.model import Operation
from ait_llm.judge.definition_arguments import counts
from ait_llm.judge.definition_meanings import sort_of
from ait_llm.judge.definitions import (
    differences,
    of_base,
    of_configuration,
    states_configuration,
)
from ait_llm.match.model import Match
from ait_llm.program.one_pass import Pass
from ait_llm.program.operators import kind_of
from ait_llm.program.roles import is_operator

_SURE = 0.5  # a match below it has others that fit as well


class DefinitionsOfPass:
    """Where the definitions of two passes differ.

    Args:
        golden, mine: the passes.
        matches: which of their tensors answer each other.

    Attributes:
        golden: the golden pass.
        counterparts: the golden operation that makes what one of mine makes, by index of mine.
    """

    def __init__(self, golden: Pass, mine: Pass, matches: Iterable[Match]) -> None:
        self.golden = golden
        self._mine = mine
        self._is_whole = golden.share == mine.share == (0, 1)
        self._known: dict[int, tuple[DefinitionDifference, ...]] = {}
        found = self._counterparts(matches)
        self.counterparts = {**self._namesakes(golden, found), **found}

    def _counterparts(self, matches: Iterable[Match]) -> Mapping[int, Operation]:
        """The golden operation that makes what one of mine makes, by index of mine."""
        found: dict[int, tuple[int, Operation]] = {}
        for match in matches:
            ours, theirs = match.mine, match.golden
            if ours.tensor.role != "out" or theirs.tensor.role != "out":
                continue
            if ours.parameter or theirs.parameter or match.confidence < _SURE:
                continue
            rank = _alike(theirs.operation, ours.operation)
            op = ours.order - self._mine.first_order
            if rank and (op not in found or found[op][0] < rank) and not match.is_self_check:
                found[op] = rank, theirs.operation
        return {op: golden for op, (_, golden) in found.items()}

    def _namesakes(self, golden: Pass, found: Mapping[int, Operation]) -> Mapping[int, Operation]:
        """Counterparts of modules whose results no match shows.

        Another call of the module has one; or the module around it has, and what that calls by the
        same name is of the same sort: an activation that was exchanged for another.
        """
        operations = self._mine.operations
        known = {
            operations[op].name: other
            for op, other in found.items()
            if not is_operator(operations[op])
        }
        theirs = {each.name: each for each in golden.operations if not is_operator(each)}
        more: dict[int, Operation] = {}
        for op, operation in enumerate(operations):
            if op in found or is_operator(operation):
                continue
            other = known.get(operation.name)
            around, dot, last = operation.name.rpartition(".")
            if other is None and dot and around in known:
                other = theirs.get(f"{known[around].name}.{last}")
            if other is not None and _alike(other, operation):
                more[op] = other
        return more

    @cached_property
    def counted(self) -> Mapping[int, tuple[DefinitionDifference, ...]]:
        """Operators of mine that choose another number of values than golden's same call.

        Their results have other shapes, so that no match shows that they answer each other.
        """
        theirs = {(each.name, each.call): each for each in self.golden.operations if counts(each)}
        found: dict[int, tuple[DefinitionDifference, ...]] = {}
        for op, mine in enumerate(self._mine.operations if theirs else ()):
            golden = theirs.get((mine.name, mine.call))
            if op in self.counterparts or golden is None or golden.type != mine.type:
                continue
            differ = self._differences(golden, mine)
            if any(each.decides for each in differ):
                found[op] = tuple(differ)
        return found

    def of(self, op: int) -> tuple[DefinitionDifference, ...]:
        """What defines my operation otherwise than its counterpart; read when looked at."""
        known = self._known.get(op)
        if known is None:
            golden = self.counterparts.get(op)
            mine = self._mine.operations[op]
            known = () if golden is None else tuple(self._differences(golden, mine))
            self._known[op] = known
        return known

    def within(self, op: int) -> tuple[DefinitionDifference, ...]:
        """What a module that golden has none of states otherwise than golden does.

        Engines compute attention in a module within that of the model, which gives it its scale,
        and rotate queries and keys in a module that has the base of golden's configuration.
        """
        mine = self._mine.operations[op]
        if op in self.counterparts:
            return ()
        around, _, _ = mine.name.rpartition(".")
        golden = self._of_attention.get(around) if sort_of(mine) == "attention" else None
        if golden is not None:
            return tuple(each for each in self._differences(golden, mine) if each.decides)
        configured, _ = self._configured
        return () if configured is None else tuple(of_base(configured, mine))

    @cached_property
    def _of_attention(self) -> Mapping[str, Operation]:
        """Golden's attention modules by the names of mine that answer them."""
        mine = self._mine.operations
        return {
            mine[op].name: golden
            for op, golden in self.counterparts.items()
            if sort_of(mine[op]) == sort_of(golden) == "attention"
        }

    @cached_property
    def _configured(self) -> tuple[Operation | None, Operation | None]:
        """The modules of golden and mine that state the configurations of the models."""
        golden, mine = (
            next(filter(states_configuration, each), None)
            for each in (self.golden.operations, self._mine.operations)
        )
        return golden, mine

    @cached_property
    def of_configuration(self) -> tuple[DefinitionDifference, ...]:
        """What the configurations of both models state otherwise, whatever library runs them."""
        golden, mine = self._configured
        return () if golden is None or mine is None else tuple(of_configuration(golden, mine))

    def of_modules(self) -> Iterator[DefinitionDifference]:
        """All differences between modules, in execution order."""
        for op in sorted(self.counterparts):
            operation = self._mine.operations[op]
            if operation.definition and not is_operator(operation):
                yield from self.of(op)

    def modules_differ(self) -> bool:
        """True if any module is defined otherwise, activations by their classes included."""
        return any(
            self.of(op) for op in self.counterparts if not is_operator(self._mine.operations[op])
        )

    def _differences(self, golden: Operation, mine: Operation) -> list[DefinitionDifference]:
        if golden.definition is mine.definition and golden.definition:
            return []
        return differences(golden, mine, is_whole=self._is_whole)


def _alike(golden: Operation, mine: Operation) -> int:
    """How much two operations are one thing in two programs; 0 if they are not."""
    if golden.type == mine.type:
        return 2 + (golden.name == mine.name)
    if is_operator(mine) or is_operator(golden):
        return int(is_operator(mine) and is_operator(golden) and kind_of(mine) == kind_of(golden))
    return int(bool(sort_of(mine)) and sort_of(golden) == sort_of(mine))
