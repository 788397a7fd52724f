"""One dumped operator against its golden operator."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ait_llm.core.comparison import Verdict
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.faults import told, trace_of
from ait_llm.judge.outputs import (
    Judged,
    Produced,
    failure_verdict,
    judge_outputs,
    overwritten,
    remembered,
)
from ait_llm.judge.standards import Standard, standards
from ait_llm.naming import shown
from ait_llm.opcheck.case import Case, NoCase
from ait_llm.opcheck.cases import (
    REFUSALS,
    case_of,
    evaluate,
    first_line,
    is_filled,
    needs_state_before,
    results_of,
    values_of,
)
from ait_llm.opcheck.outcome import Checked, Rerun
from ait_llm.opcheck.ranks import Ranks, compute_group, needs_ranks
from ait_llm.opcheck.rerun import NO_RERUN, Backend
from ait_llm.opcheck.selection import Target

if TYPE_CHECKING:
    import torch

    from ait_llm.opcheck.golden import Arithmetic, GoldenOp, Result

_BEFORE_ONLY = "the dump has only what was there before it ran; dump with -time 2, or give --rerun"
OnFailure = Callable[[Target, Sequence["torch.Tensor | None"], Judged], None]


@dataclass(frozen=True)
class Checker:
    """How operators are checked.

    Attributes:
        standard: name of the standard.
        metrics: optional columns.
        backend: runs each operator again; None to trust the dump alone.
        soc: the chip that ran it; None to go by what the dump says.
        ranks: finds the calls of other ranks; None if they are not looked for.
        on_failure: gets the tensors of each output that failed.
    """

    standard: str = "contract"
    metrics: Sequence[str] = ()
    backend: Backend | None = None
    soc: str | None = None
    ranks: Callable[[], Ranks] | None = None
    on_failure: OnFailure | None = None

    def check(self, target: Target) -> list[Checked]:
        """Check one operator; whatever is wrong with it becomes its verdict."""
        inputs, judged = self.examine(target)
        for item in judged:
            if item.checked.verdict is Verdict.FAIL and self.on_failure is not None:
                self.on_failure(target, inputs, item)
        return [item.checked for item in judged]

    def not_checked(self, target: Target, verdict: Verdict, reason: str) -> Checked:
        """What stands for an operator that was not looked at."""
        return replace(self._base(target), verdict=verdict, reason=reason)

    def examine(self, target: Target) -> tuple[list[torch.Tensor | None], list[Judged]]:
        """The same with its tensors: the inputs, and each output with its verdict."""
        base = self._base(target)
        if target.missing or target.operation is None:
            reason = target.missing or "its tensors are not in the dump"
            return [], [Judged(replace(base, reason=reason))]
        if target.is_graph:
            reason = "it is a graph whose operators were not captured; dump with -child true"
            return [], [Judged(replace(base, reason=reason))]
        case = case_of(target.operation, whole=True)
        if isinstance(case, NoCase):
            return [], [Judged(replace(base, reason=f"there is no golden {target.type}"))]
        base = replace(base, stamp=stamp_of(target.operation))
        try:
            return self._read_and_check(target, target.operation, case, base)
        except AitError as error:
            failed = replace(base, verdict=failure_verdict(error), reason=str(error))
        except REFUSALS as error:
            reason = f"the golden {target.type} refuses its inputs ({first_line(error)})"
            failed = replace(base, verdict=Verdict.ERROR, reason=reason)
        except Exception as error:  # noqa: BLE001  it costs this operator, not the others
            failed = replace(base, verdict=Verdict.ERROR, reason=told(error), fault=trace_of(error))
        return [], [Judged(failed)]

    def _base(self, target: Target) -> Checked:
        operation = target.operation
        return Checked(
            op_id=target.op_id,
            op_type=target.type,
            verdict=Verdict.SKIPPED,
            step=target.step,
            device=target.device,
            pid=target.pid,
            params=json.dumps(dict(target.params), separators=(",", ":")),
            path="" if operation is None else shown(str(operation.path)),
            standard=self.standard,
        )

    def _read_and_check(
        self, target: Target, operation: Operation, case: Case, base: Checked
    ) -> tuple[list[torch.Tensor | None], list[Judged]]:
        """The inputs and the judged outputs; one without tensors where it cannot be checked."""
        from ait_llm.opcheck.golden.products import shared_products
        from ait_llm.opcheck.golden.soc import SOC

        if reason := _described(operation.inputs):
            return [], [Judged(replace(base, reason=reason))]
        inputs = case.read()
        soc = self.soc or target.soc
        if soc and case.golden.by_soc:
            target = replace(target, params={**target.params, SOC: soc})
        with shared_products(inputs):
            return inputs, self._check(target, operation, case, base, inputs)

    def _check(
        self,
        target: Target,
        operation: Operation,
        case: Case,
        base: Checked,
        inputs: Sequence[torch.Tensor | None],
    ) -> list[Judged]:
        golden = case.golden
        run = self._run(golden, operation, inputs, target.params)
        if "after" not in operation.phases:
            if self.backend is None:
                return [Judged(replace(base, reason=_BEFORE_ONLY))]
            produced = Produced({}, {}, _BEFORE_ONLY)
        else:
            if reason := _described(operation.outputs):
                return [Judged(replace(base, reason=reason))]
            produced = Produced(results_of(case), _InputsAfter(operation), shaped=True)
        written = overwritten(golden, inputs, target.params, produced, run)
        before = "before" in operation.phases
        reused = target.overwritten - written
        if needs_state_before(operation, bool(written)) or (reused and not before):
            reason = (
                f"{target.type} works in place here and its inputs were only saved after it ran; "
                "dump with -time 2"
            )
            return [Judged(replace(base, reason=reason))]
        if written and not before:
            base = replace(
                base,
                note="its inputs were saved after it ran, so what it must leave as it was is not "
                "checked; dump with -time 2 for that",
            )
        standard = standards.get(self.standard)
        judged = judge_outputs(
            golden,
            inputs,
            target.params,
            produced,
            standard,
            base,
            metrics=self.metrics,
            run=run,
        )
        if self.backend is not None:
            judged = self._again(self.backend, target, golden, inputs, judged, standard, base, run)
        return judged

    def _run(
        self,
        golden: GoldenOp,
        operation: Operation,
        inputs: Sequence[torch.Tensor | None],
        params: Mapping[str, Any],
    ) -> Callable[[Mapping[str, Any], Arithmetic], Result]:
        if self.ranks is not None and needs_ranks(golden, params):
            group = self.ranks().group(operation)
            return remembered(
                partial(compute_group, golden, group, operation), standards.get(self.standard)
            )
        return remembered(partial(evaluate, golden, inputs), standards.get(self.standard))

    def _again(
        self,
        backend: Backend,
        target: Target,
        golden: GoldenOp,
        inputs: Sequence[torch.Tensor | None],
        judged: Sequence[Judged],
        standard: Standard,
        base: Checked,
        run: Callable[[Mapping[str, Any], Arithmetic], Result],
    ) -> list[Judged]:
        """Run the operator again and compare golden, rerun and dump."""
        from ait_llm.opcheck.golden import UnverifiableError
        from ait_llm.opcheck.golden.soc import SOC

        params = next((item.params for item in judged if item.params is not None), target.params)
        given = {name: value for name, value in params.items() if name != SOC}
        try:
            if needs_ranks(golden, target.params):
                raise UnverifiableError("one process cannot run a collective")
            again = backend.run(target.type, given, inputs)
            rejudged = judge_outputs(golden, inputs, params, again, standard, base, run=run)
        except (AitError, *REFUSALS) as error:
            reason = first_line(error)
            cause = reason if reason == NO_RERUN else f"not run again: {reason}"
            rerun = Rerun(backend.name, Verdict.SKIPPED, cause=cause)
            return [replace(i, checked=replace(i.checked, rerun=rerun)) for i in judged]
        answers = {item.checked.output: item for item in rejudged}
        return [_three_way(item, answers.get(item.checked.output), backend.name) for item in judged]


def _three_way(item: Judged, again: Judged | None, backend: str) -> Judged:
    """What follows from golden, dump and rerun of one output."""
    checked = item.checked
    if again is None or again.output is None:
        reason = "" if again is None else again.checked.reason
        cause = f"not run again: {reason or 'the rerun has no such output'}"
        rerun = Rerun(backend, Verdict.SKIPPED, cause=cause)
        return replace(item, checked=replace(checked, rerun=rerun))
    same = None
    if item.output is not None:
        same = _agree(item, again)
    fails = again.checked.verdict is Verdict.FAIL
    verdict, reason, cause = checked.verdict, checked.reason, ""
    if verdict is Verdict.FAIL and not fails:
        cause = "the rerun is right and the dump is not: stale or overwritten memory"
    elif verdict is Verdict.FAIL and same:
        cause = "the rerun is wrong in the same way: the kernel"
    elif verdict is Verdict.FAIL:
        cause = "the rerun is wrong too, in another way: the kernel, and it is not reproducible"
    elif fails:
        cause = "the rerun is wrong: the kernel"
        reason = f"{cause}, {again.checked.reason}"
        verdict = Verdict.FAIL
    elif verdict is Verdict.SKIPPED and item.output is None:
        verdict, reason = again.checked.verdict, ""
        cause = "only the rerun was checked; the dump has no output"
    if cause and cause not in reason and checked.verdict is Verdict.FAIL:
        reason = f"{reason}; {cause}"
    rerun = Rerun(
        backend, again.checked.verdict, same, cause, again.checked.rate, again.checked.max_relative
    )
    kept = item if item.output is not None else again
    return replace(kept, checked=replace(checked, verdict=verdict, reason=reason, rerun=rerun))


def _agree(item: Judged, again: Judged) -> bool:
    """Whether dump and rerun hold the same, by the manual's levels."""
    import torch

    assert item.output is not None
    assert again.output is not None
    mine, rerun = item.output.mine, again.output.mine
    if mine.shape != rerun.shape or mine.dtype != rerun.dtype:
        return False
    try:
        return standards.get("classic")(replace(item.output, golden=rerun)).passed
    except AitError:  # a type that the manual does not know
        return torch.equal(mine, rerun)


class _InputsAfter(Mapping[int, "torch.Tensor"]):
    """Inputs as they were saved after an operation, read when they are asked for.

    Few operators overwrite any, and weights are large.
    """

    def __init__(self, operation: Operation) -> None:
        self._tensors = {
            tensor.index: tensor
            for tensor in operation.tensors
            if tensor.role == "in"
            and tensor.phase == "after"
            and tensor.has_data
            and is_filled(tensor)
        }

    def __getitem__(self, index: int) -> torch.Tensor:
        return values_of(self._tensors[index])

    def __iter__(self) -> Iterator[int]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def _described(tensors: Sequence[Tensor]) -> str:
    """Why values cannot be read that were never saved; empty where they were."""
    for tensor in tensors:
        if is_filled(tensor) and not tensor.has_data:
            return f"{tensor.name} was only described, without values; dump with --type tensor"
    return ""


def stamp_of(operation: Operation) -> tuple[int, int] | None:
    """Bytes of all files of an operator and their last change in ns; None where one is gone."""
    try:
        stats = [tensor.path.stat() for tensor in operation.tensors]
    except OSError:
        return None
    return sum(s.st_size for s in stats), max((s.st_mtime_ns for s in stats), default=0)
