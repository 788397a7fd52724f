"""Origins that both captures state: other inputs, weights and definitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ait_llm.compare.origin_between import maker, source
from ait_llm.compare.origin_finding import (
    OTHER_DEFINITION,
    OTHER_INPUT,
    OTHER_WEIGHT,
    OWN_CODE,
    Finding,
    Telling,
)
from ait_llm.compare.origin_inputs import other_input
from ait_llm.compare.origin_operators import by_other_operators
from ait_llm.compare.origin_places import (
    one_sided_positions,
    other_frequencies,
    outermost,
    padded_otherwise,
    shows_places,
    told_difference,
)
from ait_llm.compare.origin_stated import StatedDifferences
from ait_llm.compare.origin_values import Upstream
from ait_llm.compare.origin_words import (
    by_differing_input,
    by_other_definition,
    by_other_weight,
    is_parameter,
    title_of,
)
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.judge.definition_meanings import is_depth
from ait_llm.program.operators import kind_of
from ait_llm.program.prompt_difference import prompt_difference

_INPUTS = "inputs differ already: "
# Operators of single elements, of which all kernels make the same.
_EXACT = frozenset({"add", "clamp", "div", "masked_fill", "mul", "neg", "relu", "sub", "where"})


class Statements:
    """Looks for what my run states otherwise than golden's.

    Args:
        tell: makes findings about my run.
        stated: what differs.
        is_later: other steps of the process ran before, which may have left caches.
    """

    def __init__(self, tell: Telling, stated: StatedDifferences, *, is_later: bool = False) -> None:
        self.values = tell.values
        self.stated = stated
        self._comparisons = tell.comparisons
        self._tell = tell
        self._is_later = is_later

    def given_otherwise(self, wrong: Sequence[int]) -> Finding | None:
        """Token ids, positions or masks that the program was given and golden's was not.

        Args:
            wrong: the first values that do not agree.
        """
        found = other_input(self.values, self.stated.counterparts)
        if found is None:
            prompt = self._other_prompt(wrong)
            return prompt or self._given_at_other_places(wrong, padded_otherwise)
        value = self.values.flow.at(found.op, "in", found.tensor.index)
        known = self.values.evidence.get(value.number) if value is not None else None
        index = min(known.failed, default=None) if known is not None else None
        text = f"{_INPUTS}{found.text}"
        return self._tell.stated(found.op, text, OTHER_INPUT, index)

    def _other_prompt(self, wrong: Sequence[int]) -> Finding | None:
        """Tokens that the program was given and golden's was not, if these are not all at the end.

        What comes before further tokens does not depend on them.
        """
        golden = self.stated.golden
        found = None if golden is None else prompt_difference(golden.run, self.values.run)
        programs = outermost(self.values, self.stated.counterparts)
        if found is None or found.is_beginning or programs is None or not wrong:
            return None
        index = self.values.first_failed(wrong[0])
        text = f"{_INPUTS}not the same prompt, {found.text}"
        return self._tell.stated(programs[0], text, OTHER_INPUT, index)

    def counted_from_elsewhere(self, wrong: Sequence[int]) -> Finding | None:
        """Positions that differ, and that only one of the programs was given."""
        indices = [each for each in wrong if self.values.is_index(each)]
        return self._given_at_other_places(indices, one_sided_positions)

    def _given_at_other_places(
        self, wrong: Sequence[int], told: Callable[[Operation, Operation], str]
    ) -> Finding | None:
        """The same tokens at other places, where positions or a mask are the first to show it."""
        shown = (each for each in wrong if shows_places(self.values, each, self._comparisons))
        failed = next(shown, None)
        if failed is None:
            return None
        programs = outermost(self.values, self.stated.counterparts)
        text = told(programs[1], self.values.run.operations[programs[0]]) if programs else ""
        if not text or programs is None:
            return None
        index = self.values.first_failed(failed)
        first = title_of(self.values, failed)
        if difference := told_difference(self._comparisons[index]):
            text += f"; {first} is the first value that differs, {difference}"
        return self._tell.stated(programs[0], f"{_INPUTS}{text}", OTHER_INPUT, index)

    def other_frequencies(self, near: Upstream) -> Finding | None:
        """A table of rotary frequencies that no capture names, and that is not golden's."""
        for value in near.differing:
            index = self.values.first_failed(value)
            text = other_frequencies(self.values, value, self._comparisons[index])
            if text:
                op = self.values.owner(self.values.flow.values[value].reads[0].op)
                return self._tell.stated(op, text, OTHER_WEIGHT, index)
        return None

    def from_outside(self, way: Upstream) -> Finding | None:
        """What was given to the program, not made by it."""
        sources = (source(self.values, each) for each in way.differing)
        outside = (each for each in sources if maker(self.values, each) is None)
        first = next(outside, None)
        return None if first is None else self._differing(first)

    def _differing(self, value: int) -> Finding:
        readers = [use.op for use in self.values.flow.values[value].reads]
        leaves = [op for op in readers if self.values.is_leaf(op)]
        op = (leaves or readers)[0]
        text = by_differing_input(self.values, op, value, self._comparisons)
        known = self.values.evidence[value]
        operation = self.values.run.operations[op]
        names = [
            use.tensor.ir_name or "" for use in self.values.flow.values[value].reads if use.op == op
        ]
        if any(is_parameter(operation, each) for each in names):
            return self._tell.stated(op, text, OTHER_WEIGHT, min(known.failed))
        found = self._tell.stated(op, text, OTHER_INPUT, min(known.failed))
        if self._may_be_made(op, value):
            text = f"{text.removeprefix(_INPUTS)}; no call that was captured made it"
            return replace(found, origin=replace(found.origin, certain=False, evidence=text))
        if not self._is_later or self.values.is_index(value) or self.values.is_weight(value):
            return found
        origin = found.origin
        text = f"{origin.evidence}; an earlier step may have left it so"
        return replace(found, origin=replace(origin, certain=False, evidence=text))

    def _may_be_made(self, op: int, value: int) -> bool:
        """True for numbers in the middle of calls: those between them are not all captured."""
        run = self.values.run
        if not run.traits.finished or self.values.is_index(value) or self.values.is_weight(value):
            return False
        return any(each.outputs for each in run.operations[:op])

    def other_weight(self, ops: Sequence[int], failed: int) -> Finding | None:
        """A weight that is not that of golden."""
        found = self.stated.weight(ops)
        if found is None:
            return None
        item = self._comparisons[found.index]
        text = by_other_weight(self.values, item, failed, self.stated.remarks_on(item))
        return self._tell.stated(found.op, text, OTHER_WEIGHT, found.index)

    def weight_of_code(self, near: Upstream, failed: int) -> Finding | None:
        """A weight of the module whose own code made the first wrong value."""
        return self.other_weight(self._makers(near), failed)

    def _makers(self, near: Upstream) -> list[int]:
        """Modules whose own code made wrong values, or such that were not compared."""
        wrong = (source(self.values, each) for each in near.differing)
        found = (maker(self.values, each) for each in (*wrong, *near.unknown))
        return [each for each in found if each is not None]

    def other_definition(self, near: Upstream, failed: int) -> Finding | None:
        """What computes the first wrong value is defined otherwise than golden's."""
        ops = dict.fromkeys((*self._makers(near), *near.operations))
        found = self.stated.definition(ops)
        if found is None:
            return None
        text = by_other_definition(self.values, found.differences, failed)
        others = () if found.decides else [op for op in near.operations if op != found.op]
        return self._tell.stated(found.op, text, OTHER_DEFINITION, None, others)

    def defined_before(self, far: Upstream, failed: int) -> Finding | None:
        """An operation further up is defined otherwise, and its error grew to what fails."""
        for op in far.operations:
            found = self.stated.definition([op])
            if found is None or not found.decides or not self._is_off(found.user):
                continue
            text = by_other_definition(self.values, found.differences, failed, before=True)
            last = self.values.producer(failed)
            others = () if last is None or last == found.op else (last,)
            return self._tell.stated(found.op, text, OTHER_DEFINITION, None, others)
        return None

    def counted_otherwise(self, failed: int) -> Finding | None:
        """An operator further up chooses another number of values, such as experts of a token.

        Nothing of what it makes can be compared, up to where it comes together again.
        """
        if not self.stated.counts_otherwise:
            return None
        found = self.stated.counted(self.values.upstream(failed, through=True).operations)
        if found is None:
            return None
        text = by_other_definition(self.values, found.differences, failed)
        return self._tell.stated(found.op, text, OTHER_DEFINITION, None)

    def of_other_depth(self, found: Finding) -> Finding:
        """A finding that a layer left out may explain, of which nothing was proven."""
        if found.guilty is not None or found.defined_otherwise:
            return found
        differences = (each for each in self.stated.elsewhere() if is_depth(each.name))
        depth = next(differences, None)
        if depth is None:
            return found
        text = f"{found.origin.evidence}; the models have other numbers of layers: {depth.text}"
        return replace(found, origin=replace(found.origin, certain=False, evidence=text))

    def _has_effect(self, op: int) -> bool:
        """True if what an operation makes is further from golden than what it is given."""
        operation = self.values.run.operations[op]
        made, given = (
            max((self._error_at(op, each) for each in tensors), default=0.0)
            for tensors in (operation.outputs, operation.inputs)
        )
        return made > given

    def _is_off(self, op: int) -> bool:
        """True if what an operation makes is not to the bit what golden makes."""
        outputs = self.values.run.operations[op].outputs
        return any(self._error_at(op, each) > 0 for each in outputs)

    def _is_first_off(self, op: int) -> bool:
        """True if the first value that is not golden's to the bit is of a module's own operators.

        That has to be of one that makes the same bits of the same bits on every machine.
        """
        values = self.values
        off = (value for value in sorted(values.evidence) if values.error(value))
        makers = (values.producer(value) for value in off)
        first = next((each for each in makers if each is not None and values.is_leaf(each)), None)
        if first is None or values.owner(first) != op or first == op:
            return False
        before = values.upstream(values.outputs(first)[0].number).agreeing
        exact = bool(before) and all(values.error(each) == 0 for each in before)
        return exact and kind_of(values.run.operations[first]) in _EXACT

    def _error_at(self, op: int, tensor: Tensor) -> float:
        value = self.values.flow.at(op, tensor.role, tensor.index)
        return 0.0 if value is None else self.values.error(value.number) or 0.0

    def alone(self) -> Finding | None:
        """What is stated otherwise, and moves values by less than their limits."""
        found = self.stated.any_weight()
        if found is not None:
            item = self._comparisons[found.index]
            text = by_other_weight(self.values, item, None, self.stated.remarks_on(item))
            return self._tell.stated(found.op, text, OTHER_WEIGHT, found.index)
        for op in self.stated.modules():
            other = self.stated.definition([op])
            if other is not None and (
                self._has_effect(other.user) or any(each.multiplies for each in other.differences)
            ):
                text = by_other_definition(self.values, other.differences, None)
                finding = self._tell.stated(other.op, text, OTHER_DEFINITION, None)
                return self._tell.tolerated(finding, self._shown(other.op))
        for code in self.stated.operators():
            if self._has_effect(code.op) and (code.peers or self._is_first_off(code.op)):
                name = self.values.run.operations[code.op].name
                text = by_other_operators(name, code)
                finding = self._tell.stated(code.op, text, OWN_CODE, None)
                return self._tell.tolerated(finding, self._shown(code.op))
        return None

    def _shown(self, op: int) -> int | None:
        """The comparison of a result of a module, which an operator in it made."""
        outputs = self.values.run.operations[op].outputs
        values = [self.values.flow.at(op, "out", tensor.index) for tensor in outputs]
        known = [self.values.evidence.get(each.number) for each in values if each is not None]
        found = [index for each in known if each is not None for index in each.passed]
        return min(found, key=lambda index: not self.values.is_own_output(op, index), default=None)
