"""Failures that what came in explains, without a fault of any operation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from ait_llm.compare.origin_between import Between, between
from ait_llm.compare.origin_recomputing import Recomputing
from ait_llm.compare.origin_stated import StatedDifferences
from ait_llm.compare.origin_values import Evidence, RunValues, Upstream
from ait_llm.compare.origin_words import inherited, lost_in_terms
from ait_llm.core.comparison import Comparison, TensorRecord
from ait_llm.dumps.model import Operation
from ait_llm.judge.evidence import Introduced
from ait_llm.judge.gain import (
    bounded_gain,
    is_amplified,
    may_be_cancelled,
    may_be_inherited,
)
from ait_llm.match.model import Match
from ait_llm.program.flow import Value
from ait_llm.program.operators import kind_of

_OVER_ALL = frozenset(
    {
        *("_softmax", "softmax", "_log_softmax", "log_softmax", "logsumexp", "cumsum", "cumprod"),
        *("sum", "mean", "var", "std", "norm", "linalg_vector_norm", "prod", "amax", "amin", "max"),
        *("min", "argmax", "argmin", "topk", "sort", "mm", "bmm", "matmul", "addmm", "baddbmm"),
        *("native_layer_norm", "layer_norm", "rms_norm", "native_group_norm"),
        *("_scaled_dot_product_flash_attention_for_cpu", "scaled_dot_product_attention"),
        *("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"),
    }
)
"""Operators that make one element of many."""
_TAKING = frozenset({"select", "slice"})
"""Of integers, those that take some out; of activations they take the newest, of padding too."""


class Explaining:
    """Tells failures that were inherited from those that started somewhere.

    Args:
        values: my run and what the comparisons say about it.
        comparisons: all of the report.
        recomputing: of the run.
        stated: weights that differ.
        matches: of the comparisons that failed, by their index.

    Attributes:
        explained: comparisons that failed and that what came in explains, with the words for it.
    """

    def __init__(
        self,
        values: RunValues,
        comparisons: Sequence[Comparison],
        recomputing: Recomputing,
        stated: StatedDifferences,
        matches: Mapping[int, Match],
    ) -> None:
        self.values = values
        self.explained: dict[int, str] = {}
        self._comparisons = comparisons
        self._recomputing = recomputing
        self._stated = stated
        self._matches = matches

    def near(self, failed: int) -> Upstream:
        """The way back from a failure to values that agree, or that follow from such."""
        while True:
            near = self.values.upstream(failed)
            cleared = [value for value in near.differing if self.follows(value)]
            if not cleared:
                return near

    def clear(self, failed: int, near: Upstream) -> None:
        """From now on a failure counts as one that agrees."""
        text = inherited(self.values, near.agreeing)
        self.explained |= dict.fromkeys(self.values.clear(failed), text)

    def follows(self, value: int) -> bool:
        """True if what goes into the code that made a value explains its error; it is cleared."""
        found = between(self.values, value)
        if found is None:
            return False
        before = self.values.needed(found.agreeing)
        bound = bounded_gain([self.values.run.operations[found.op]])
        failures = self.values.failures(value)
        if all(may_be_inherited(each.needed, each.tolerance, before, bound) for each in failures):
            text = inherited(self.values, found.agreeing)
        elif (smaller := self._lost_in_terms(found)) is not None:
            text = lost_in_terms(smaller)
        else:
            return False
        self.explained |= dict.fromkeys(self.values.clear(value), text)
        return True

    def _lost_in_terms(self, found: Between) -> float | None:
        """By how much a value is smaller than what it is computed from, if that explains its error.

        Code of a module may add values that nearly cancel. What is left keeps the rounding of its
        terms. Nobody saw the sum, so that this explains only an error that changes nothing: the
        results of all that reads the value agree.
        """
        readers = {use.op for use in self.values.flow.values[found.value].reads}
        results = [each.number for op in readers for each in self.values.outputs(op)]
        known = [self.values.evidence.get(each) for each in results]
        if not known or not all(_agrees(each) for each in known):
            return None
        failures = self.values.failures(found.value)
        size = min((_size_of(each) for each in failures), default=0.0)
        largest = max(
            (
                _size_of(self._comparisons[index])
                for each in self._made(found)
                for index in self.values.evidence[each].passed
            ),
            default=0.0,
        )
        if not 0.0 < size < largest:
            return None
        smaller = largest / size
        fits = all(may_be_cancelled(each.needed, each.tolerance, smaller) for each in failures)
        return smaller if fits else None

    def _made(self, found: Between) -> Sequence[int]:
        """Of what the code of a module computes with, what its members made, if they made any."""
        flow, producer = self.values.flow, self.values.producer
        made = [
            each
            for each in found.agreeing
            if (op := producer(each)) is not None and found.op in flow.ancestors(op)
        ]
        return made or found.agreeing

    def is_explained(self, failed: int, near: Upstream) -> bool:
        """True where the error that came in makes the one that is seen, without a fault."""
        before = self.values.needed(near.agreeing)
        failures = self.values.failures(failed)
        bound = bounded_gain(self.values.run.operations[op] for op in near.operations)
        if all(may_be_inherited(each.needed, each.tolerance, before, bound) for each in failures):
            return True
        if len(near.operations) == 1 and self._is_golden_alike(near.operations[0], failed):
            return True
        gain = self._recomputing.gain(near.operations)
        return gain is not None and all(
            is_amplified(each.needed, before, gain.amplification, gain.permitted)
            for each in failures
        )

    def _is_golden_alike(self, op: int, failed: int) -> bool:
        """True if golden's operation is the same one, both are right, and all it reads agrees.

        Then the results differ by what goes in, by how much soever: lowest numbers of a mask, say,
        make an error in the scores beside them look small.
        """
        mine, own = self.values.run.operations[op], self._recomputing.examined.get(op)
        if not isinstance(own, Introduced) or own.is_suspect:
            return False
        for index in self.values.evidence[failed].failed:
            match = self._matches.get(index)
            if match is None or match.mine.tensor.role != "out":
                continue
            if (match.mine.operation.name, match.mine.operation.call) != (mine.name, mine.call):
                continue
            golden = match.golden.operation
            if golden.type != mine.type or dict(golden.params) != dict(mine.params):
                return False
            if not self._stated.are_weights_alike(golden, mine):
                return False
            read = self.values.inputs(op)
            if not read or len(mine.inputs) != len(golden.inputs):
                return False  # one of them reads a weight instead
            times = _times(match.golden.tensor.shape, match.mine.tensor.shape)
            if not all(self._reads_alike(op, golden, value, times) for value in read):
                return False
            result = self._recomputing.examine(golden)
            return isinstance(result, Introduced) and not result.is_suspect
        return False

    def _reads_alike(self, op: int, golden: Operation, value: Value, times: Fraction) -> bool:
        """True if an input agrees with that of golden's operation, not with another value of it.

        Args:
            op: mine.
            golden: golden's.
            value: the input.
            times: how often mine has as many results as golden's.
        """
        known = self.values.evidence.get(value.number)
        mine = self.values.run.operations[op].name
        if known is None or not known.is_right:
            return False
        for index in known.passed:
            one, other = self._comparisons[index].golden, self._comparisons[index].mine
            if one is None or other is None or (one.role, other.role) != ("in", "in"):
                continue
            if (one.op, other.op) == (golden.name, mine) and one.name == other.name:
                return not _goes_over_all(golden) or _is_all_read(one, other, times)
        return False


def _goes_over_all(operation: Operation) -> bool:
    kind = kind_of(operation)
    return kind in _OVER_ALL or (
        kind in _TAKING and not any(tensor.dtype.is_floating for tensor in operation.inputs)
    )


def _times(golden: Sequence[int], mine: Sequence[int]) -> Fraction:
    return Fraction(math.prod(mine) or 1, math.prod(golden) or 1)


def _is_all_read(golden: TensorRecord, mine: TensorRecord, times: Fraction) -> bool:
    """False where one side makes the same of more: of columns of padding, or of other requests.

    All that both sides have agrees then, and an operation that goes over it makes something else.
    """
    shapes = golden.shape or (), mine.shape or ()
    return shapes[0][-1:] == shapes[1][-1:] and _times(*shapes) in (1, times)


def _agrees(known: Evidence | None) -> bool:
    """True for a value that agrees by its own numbers, and not only by what explains them."""
    return known is not None and known.is_right and not known.is_explained


def _size_of(item: Comparison) -> float:
    """Root mean square of golden's tensor in a comparison; 0 where it is not known."""
    record, summary = item.golden, item.golden_summary
    if record is None or record.shape is None or summary is None or not summary.norm:
        return 0.0
    return summary.norm / math.sqrt(math.prod(record.shape))
