"""A finding: where an error started, with its evidence and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ait_llm.compare.origin_recomputing import Recomputing, Results
from ait_llm.compare.origin_values import RunValues
from ait_llm.compare.origin_words import (
    behind_a_choice,
    behind_stages,
    by_recomputation,
    without_failure,
)
from ait_llm.core.comparison import Comparison, Origin
from ait_llm.dumps.model import Operation
from ait_llm.judge.evidence import Introduced, Unknown

# Kinds of causes that are no faults of an operation.
OTHER_WEIGHT, OTHER_DEFINITION = "other weight", "other definition"
OTHER_INPUT, OWN_CODE = "other input", "code between modules"


@dataclass(frozen=True, slots=True)
class Finding:
    """An origin, and whether the error may also have come from an earlier run.

    Attributes:
        origin: where it started.
        step: of the run that it is in.
        op: index of the operation in the run.
        own: the operation itself was seen to go wrong; else a former run may have caused it.
        defined_otherwise: it computes rightly, but not what golden does.
        guilty: the operation, where recomputing it shows an error of its own.
    """

    origin: Origin
    step: int
    op: int
    own: bool
    defined_otherwise: bool = False
    guilty: Operation | None = None


class Telling:
    """Makes findings about one run.

    Args:
        values: my run and what the comparisons say about it.
        comparisons: all of the report.
        recomputing: of the run.
    """

    def __init__(
        self, values: RunValues, comparisons: Sequence[Comparison], recomputing: Recomputing
    ) -> None:
        self.values = values
        self.comparisons = comparisons
        self._recomputing = recomputing

    def finding(self, op: int, evidence: str, certain: bool, others: Iterable[int]) -> Finding:
        """An operation, why, and which others it may be."""
        operation = self.values.run.operations[op]
        index = self.values.comparison_of(op)
        golden = None
        if index is not None and self.values.is_own_output(op, index):
            golden = self.comparisons[index].golden
        measured = self._recomputing.examined.get(op)
        own = isinstance(measured, Introduced) and measured.is_suspect
        return Finding(
            Origin(
                op=operation.name,
                op_id=str(operation.op_id),
                op_type=operation.type,
                step=operation.step,
                device=operation.device,
                pid=operation.pid,
                golden_op=golden.op if golden is not None and golden.role == "out" else "",
                index=index,
                evidence=evidence,
                certain=certain,
                candidates=tuple(self.values.run.operations[other].name for other in others),
                introduced=measured.error if isinstance(measured, Introduced) else None,
                parts=operation.parts,
            ),
            self.values.run.step,
            op,
            own or measured is None or isinstance(measured, Unknown),
            guilty=operation if own else None,
        )

    def stated(
        self,
        op: int,
        text: str,
        kind: str,
        index: int | None,
        others: Iterable[int] = (),
    ) -> Finding:
        """A finding that no recomputation is needed for."""
        others = tuple(others)
        found = self.finding(op, text, not others, others)
        origin = replace(found.origin, kind=kind)
        if index is not None:
            origin = replace(origin, index=index)
        # nothing was inherited, nothing added
        return replace(found, origin=origin, own=False, defined_otherwise=True, guilty=None)

    def recomputed(
        self, guilty: int, results: Results, doubtful: Sequence[int], failed: int | None
    ) -> Finding:
        """An operation whose error no arithmetic explains."""
        measured = results[guilty]
        assert isinstance(measured, Introduced)
        others = [
            op
            for op, each in results.items()
            if op != guilty and isinstance(each, Introduced) and each.is_suspect
        ]
        certain = not doubtful and (measured.is_wrong or not others)
        text = by_recomputation(self.values, guilty, failed, results, self.comparisons)
        return self.finding(guilty, text, certain, [] if certain else sorted({*doubtful, *others}))

    def behind_stages(self, found: Finding, known: Sequence[int]) -> Finding:
        """A finding on a way that was cut off behind what golden makes, too."""
        text = behind_stages(self.values, found.origin.evidence, known)
        return replace(found, origin=replace(found.origin, evidence=text))

    def tolerated(self, found: Finding, index: int | None) -> Finding:
        """A finding that no comparison shows."""
        origin = found.origin
        shown = origin.index if origin.index is not None else index
        is_excused = shown is not None and self.values.is_forgotten(shown)
        text = (behind_a_choice if is_excused else without_failure)(origin.evidence)
        return replace(found, origin=replace(origin, evidence=text, index=shown))
