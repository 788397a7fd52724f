"""One dumped operation computed again from its own inputs, and its outputs judged.

Everybody who asks about an operation gets the same evaluation: it is made once and remembered while
others are likely to ask again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from math import prod

from ait_llm.core.comparison import Verdict
from ait_llm.core.optional import import_optional
from ait_llm.dumps.model import Operation
from ait_llm.errors import AitError, MissingDependencyError
from ait_llm.judge.outputs import Judged, Produced, judge_outputs, overwritten, remembered
from ait_llm.opcheck.case import NoCase
from ait_llm.opcheck.cases import (
    REFUSALS,
    case_of,
    evaluate,
    first_line,
    needs_state_before,
    results_of,
)
from ait_llm.opcheck.outcome import Checked

STANDARD = "contract"
# Larger inputs are not recomputed: they would be widened, and more than once.
MOST_BYTES = 256 << 20
# Their results are drawn, or depend on what they are not told.
_RANDOM = frozenset({"MultinomialOperation", "ToppsampleOperation", "TopkToppSamplingOperation"})
_REMEMBERED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Unknown:
    """An operation that could not be evaluated.

    Attributes:
        reason: why, as a clause.
    """

    reason: str


Answer = tuple[Judged, ...] | Unknown


def recomputed(operation: Operation, *, in_place: bool = False) -> Answer:
    """The outputs of an operation, judged by the contract of its arithmetic.

    Args:
        operation: an operator, no graph, with dumped inputs and outputs.
        in_place: an output of it is the memory of one of its inputs.
    """
    known = _memory.find(operation, in_place)
    if known is None:
        known = _evaluated(operation, in_place)
        _memory.keep(operation, in_place, known)
    return known


def _evaluated(operation: Operation, in_place: bool) -> Answer:
    try:
        import_optional("torch", "recomputing an operation")
        return _judged(operation, in_place)
    except (AitError, MissingDependencyError) as error:
        return Unknown(str(error))
    except REFUSALS as error:
        return Unknown(f"the golden {operation.type} refuses its inputs ({first_line(error)})")


def _judged(operation: Operation, in_place: bool) -> Answer:
    from ait_llm.judge.standards import standards
    from ait_llm.opcheck.golden.products import shared_products

    case = case_of(operation, whole=True)
    if isinstance(case, NoCase):
        return Unknown(case.lost or f"there is no golden {operation.type}")
    if case.missing:
        return Unknown(case.missing)
    if operation.type in _RANDOM:
        return Unknown(f"{operation.type} draws its result")
    size = _bytes_of(operation)
    if size > MOST_BYTES:
        return Unknown(
            f"its inputs take {size >> 20} MiB, and at most {MOST_BYTES >> 20} are recomputed"
        )
    golden, params, inputs = case.golden, case.params, case.read()
    produced = Produced(results_of(case), {})
    if not produced.outputs:
        return Unknown("none of its outputs were saved")
    base = Checked(str(operation.op_id), operation.type, Verdict.SKIPPED, standard=STANDARD)
    run = remembered(partial(evaluate, golden, inputs))
    with shared_products(inputs):
        written = overwritten(golden, inputs, params, produced, run)
        if needs_state_before(operation, bool(written) or in_place):
            return Unknown(
                f"{operation.type} works in place and its inputs were only saved after it ran; "
                "dump with -time 2"
            )
        standard = standards.get(STANDARD)
        found = judge_outputs(
            golden, inputs, params, produced, standard, base, metrics=None, run=run
        )
    return tuple(each for each in found if not _is_input(each))


def _is_input(judged: Judged) -> bool:
    return judged.output is not None and judged.output.is_input


def _bytes_of(operation: Operation) -> int:
    return sum(tensor.dtype.byte_count(prod(tensor.shape)) for tensor in operation.inputs)


class _Memory:
    """The latest evaluations, as far as their operations are small."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[int, bool], tuple[Operation, Answer, int]] = OrderedDict()
        self._bytes = 0

    def find(self, operation: Operation, in_place: bool) -> Answer | None:
        with self._lock:
            entry = self._known.get((id(operation), in_place))
            if entry is None:
                return None
            self._known.move_to_end((id(operation), in_place))
            return entry[1]

    def keep(self, operation: Operation, in_place: bool, answer: Answer) -> None:
        """The operation is kept with its answer, so that its ``id`` stays its own."""
        key = id(operation), in_place
        with self._lock:
            if key in self._known:
                return
            size = 0 if isinstance(answer, Unknown) else 4 * _bytes_of(operation)
            self._known[key] = operation, answer, size
            self._bytes += size
            while self._bytes > _REMEMBERED_BYTES and len(self._known) > 1:
                _, (_, _, oldest) = self._known.popitem(last=False)
                self._bytes -= oldest


_memory = _Memory()
