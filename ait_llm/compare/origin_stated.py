"""What both captures state of themselves and do not share: weights, and what defines operations.

A weight that is another one, or a scale of 1 instead of 0.25, explains everything behind it, and no
operator is to blame for it. Both are read from the captures, and no value has to be judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ait_llm.compare.origin_operators import OtherOperators, other_operators
from ait_llm.compare.origin_run import RunStructure
from ait_llm.compare.origin_values import RunValues
from ait_llm.compare.weight_likeness import likeness
from ait_llm.core import DType
from ait_llm.core.comparison import Comparison, Verdict
from ait_llm.core.definition import DefinitionDifference
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.judge.definition_meanings import sort_of
from ait_llm.judge.definition_pairs import DefinitionsOfPass
from ait_llm.program.one_pass import Pass
from ait_llm.program.roles import is_operator

_MANY, _AS_MANY = 0.5, 4  # share and number of weights that are not golden's
_FREQUENCIES, _UNITS = "inv_freq", "max_ulp_error"
# What an entry of a configuration is about, by words in its name.
_ABOUT = (
    ("rotary", ("rope", "rotary")),
    ("activation", ("hidden_act", "activation_function", "hidden_activation")),
    ("norm", ("eps", "epsilon")),
    ("attention", ("query_pre_attn_scalar", "attn_logit_softcapping", "sliding_window")),
)


@dataclass(frozen=True, slots=True)
class OtherWeight:
    """A weight that is not that of golden.

    Attributes:
        op: index of the operation that has it.
        index: of the comparison that shows it.
    """

    op: int
    index: int


@dataclass(frozen=True, slots=True)
class OtherDefinition:
    """What defines an operation of mine otherwise than golden's.

    Attributes:
        op: index of the operation that states it.
        differences: those that are known to decide values come first.
        user: index of the operation that computes with it, or is handed what was computed so.
    """

    op: int
    differences: tuple[DefinitionDifference, ...]
    user: int

    @property
    def decides(self) -> bool:
        """True if one of them is known to decide values."""
        return self.differences[0].decides


class StatedDifferences:
    """What one of my passes states otherwise than golden's.

    Args:
        values: my pass.
        comparisons: of the whole report.
        definitions: of the pass; None where nobody knows them.
    """

    def __init__(
        self,
        values: RunValues,
        comparisons: Sequence[Comparison],
        definitions: DefinitionsOfPass | None,
    ) -> None:
        self._values = values
        self._comparisons = comparisons
        self._definitions = definitions

    @property
    def counterparts(self) -> Mapping[int, Operation]:
        """Golden operations by index of mine."""
        return {} if self._definitions is None else self._definitions.counterparts

    @cached_property
    def golden(self) -> RunStructure | None:
        """The golden run; None where nobody knows it."""
        return None if self._definitions is None else RunStructure(self._definitions.golden)

    @property
    def any(self) -> bool:
        """True if a weight or a definition is not golden's, whatever values they lead to."""
        return self.any_weight() is not None or next(self.modules(), None) is not None

    def operators(self) -> Iterator[OtherOperators]:
        """Modules that alone of their class run other operators than golden's."""
        if self._definitions is not None:
            golden, mine = self._definitions.golden, self._values.run
            yield from other_operators(golden, mine, self.counterparts)

    def counted(self, ops: Iterable[int]) -> OtherDefinition | None:
        """The first operator that chooses another number of values, in execution order."""
        known = {} if self._definitions is None else self._definitions.counted
        found = next((op for op in ops if op in known), None)
        return None if found is None else OtherDefinition(found, known[found], found)

    @property
    def counts_otherwise(self) -> bool:
        """True if an operator of mine chooses another number of values than golden's."""
        return self._definitions is not None and bool(self._definitions.counted)

    def weight(self, ops: Iterable[int]) -> OtherWeight | None:
        """The first weight that is not that of golden, of operations in execution order."""
        if not self._weights:
            return None
        operations = self._values.run.operations
        for op in ops:
            named = {_name_of(each) for each in operations[op].weights.values()}
            modules = {operations[at].name for at in (op, self._values.owner(op))}
            for name, index in self._weights.items():
                if name in named or name.rpartition(".")[0] in modules:
                    return OtherWeight(self._holder(name, op), index)
        return None

    def are_weights_alike(self, golden: Operation, mine: Operation) -> bool:
        """True if an operation of mine reads the weights that golden's reads, as far as told."""
        for name, other in _read_by(golden, mine):
            if name in self._right_weights:
                continue
            ours, theirs = mine.parameters.get(name), golden.parameters.get(other)
            if ours is None or theirs is None or not _are_equal(ours, theirs):
                return False
        return True

    def any_weight(self) -> OtherWeight | None:
        """The first weight that is not that of golden, of all operations of the pass."""
        return self.weight(range(len(self._values.run.operations))) if self._weights else None

    def remarks_on(self, item: Comparison) -> tuple[str, ...]:
        """What a weight is that is not golden's, as clauses."""
        others, right = len(self._weights), len(self._right_weights)
        if others > _MANY * (others + right) and others >= _AS_MANY:
            return (
                f"so are {others - 1} of {others + right - 1} other weights, as of another "
                "checkpoint",
            )
        if item.mine is None or item.golden is None or self.golden is None:
            return ()
        names = [f"{record.op}.{record.name}" for record in (item.mine, item.golden)]
        mine = _parameter(self._values.run, names[0])
        if mine is None:
            return ()
        text = likeness(
            names[0], mine, self.golden.run.weights, names[1], _parameter(self.golden.run, names[1])
        )
        return (text,) if text else ()

    def modules(self) -> Iterator[int]:
        """Modules that are defined otherwise in what is known to decide values, in order."""
        if self._definitions is not None:
            for op in sorted(self._definitions.counterparts):
                operation = self._values.run.operations[op]
                # activations say by their class what they compute
                says = operation.definition or sort_of(operation) == "activation"
                if not says or is_operator(operation):
                    continue
                if any(each.decides for each in self._own(op)):
                    yield op

    def _holder(self, name: str, op: int) -> int:
        """The module whose weight it is, if it was captured and contains the operation."""
        module = name.rpartition(".")[0]
        around = (op, *self._values.flow.ancestors(op))
        return next((at for at in around if self._values.run.operations[at].name == module), op)

    @cached_property
    def _weights(self) -> dict[str, int]:
        """Comparisons of weights that are not golden's, by the name of the weight."""
        return self._compared_weights(others=True)

    @cached_property
    def _right_weights(self) -> Mapping[str, int]:
        """Comparisons of weights that are golden's, by the name of the weight.

        Of a weight that was compared in parts, such as those of experts, all of them are.
        """
        right = self._compared_weights(others=False)
        return {name: index for name, index in right.items() if name not in self._weights}

    def _compared_weights(self, *, others: bool) -> dict[str, int]:
        run = self._values.run
        found: dict[str, int] = {}
        for index, item in enumerate(self._comparisons):
            record = item.mine
            if record is None or record.role != "weight":
                continue
            is_other = item.verdict is Verdict.FAIL or _are_other_frequencies(item)
            if is_other is not others or (not others and item.verdict is not Verdict.PASS):
                continue
            if (record.device, record.pid) == (run.device, run.pid):
                found.setdefault(f"{record.op}.{record.name}", index)
        return found

    def definition(self, ops: Iterable[int]) -> OtherDefinition | None:
        """The first operation that is defined otherwise, of operations in execution order."""
        for op in dict.fromkeys(at for each in ops for at in (self._values.owner(each), each)):
            known = self._of(op)
            if known:
                ordered = tuple(sorted(known, key=lambda each: not each.decides))
                return OtherDefinition(self._stating(op, ordered), ordered, op)
        return None

    def _stating(self, op: int, known: Sequence[DefinitionDifference]) -> int:
        """The operation to name: the model, where only its configuration is another.

        An attention that itself states the window of golden is handed a mask that code around it
        made by the configuration.
        """
        operations = self._values.run.operations
        own = operations[op].definition
        if not all(_is_of_config(each) and each.name.rpartition(".")[2] in own for each in known):
            return op
        return next((at for at, each in enumerate(operations) if each.name == known[0].op), op)

    def _of(self, op: int) -> Sequence[DefinitionDifference]:
        """What may explain a failure of an operation."""
        found = self._own(op)
        if found or self._definitions is None:
            return found
        sort = sort_of(self._values.run.operations[op])
        return self._definitions.within(op) or [*_about(sort, self._definitions.of_configuration)]

    def _own(self, op: int) -> Sequence[DefinitionDifference]:
        """What is stated otherwise by modules that answer each other."""
        if self._definitions is None:
            return ()
        own = [each for each in self._definitions.of(op) if not _is_of_config(each)]
        return own or [*_about(sort_of(self._values.run.operations[op]), self._of_config)]

    @cached_property
    def _of_config(self) -> list[DefinitionDifference]:
        assert self._definitions is not None
        return [each for each in self._definitions.of_modules() if _is_of_config(each)]

    def elsewhere(self) -> list[DefinitionDifference]:
        """All differences between modules of the pass."""
        return [] if self._definitions is None else list(self._definitions.of_modules())


def _parameter(run: Pass, name: str) -> Tensor | None:
    """A saved parameter by name, also one that was saved as that of another module."""
    module = name.rpartition(".")[0]
    tied = (each.parameters.get(name) for each in run.operations if each.name == module)
    return run.weights.get(name) or next(tied, None)


def _about(
    sort: str, differences: Iterable[DefinitionDifference]
) -> Iterator[DefinitionDifference]:
    """Entries of the model's configuration about operations of a sort."""
    for each in differences if sort else ():
        if any(word in each.name for word in dict(_ABOUT).get(sort, ())):
            yield each


def _are_other_frequencies(item: Comparison) -> bool:
    """True for frequencies of 16 bits of which one is more than a rounding of each side apart.

    They are powers of one base, each as exact as its type, so that the smallest of them tell, too.
    Those of float32 on the other side are held to the same.
    """
    golden, mine = item.golden, item.mine
    if golden is None or mine is None or not mine.name.endswith(_FREQUENCIES):
        return False
    # The small ones of float16 are coarser than those of bfloat16, and the large ones finer.
    types = {golden.dtype, mine.dtype} - {DType.FLOAT32}
    narrow = len(types) == 1 and types <= {DType.FLOAT16, DType.BFLOAT16}
    return narrow and item.values.get(_UNITS, 0.0) > 1


def _is_of_config(difference: DefinitionDifference) -> bool:
    return difference.name.startswith("config.")


def _are_equal(one: Tensor, other: Tensor) -> bool:
    """True if two saved parameters are equal element by element."""
    try:
        return np.array_equal(one.numpy(), other.numpy())
    except AitError:
        return False  # who compares them tells what is wrong


def _read_by(golden: Operation, mine: Operation) -> Iterator[tuple[str, str]]:
    """Names of the weights that two operations read, as far as known: a module reads its own."""
    if mine.weights:
        for stem, record in mine.weights.items():
            yield _name_of(record), _name_of(golden.weights.get(stem))
        return
    for name in mine.parameters:
        yield name, golden.name + name.removeprefix(mine.name)


def _name_of(weight: object) -> str:
    """The dotted name of a parameter that an operator reads."""
    name = weight.get("name") if isinstance(weight, dict) else None
    return name if isinstance(name, str) else ""
