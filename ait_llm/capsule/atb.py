"""Cases from dumps of the acceleration library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ait_llm.capsule.case import Call, Case, Origin
from ait_llm.capsule.environment import environment_of
from ait_llm.capsule.sizes import check_size
from ait_llm.core import OpId
from ait_llm.core.comparison import Verdict
from ait_llm.dumps import open_dump
from ait_llm.errors import UsageError
from ait_llm.judge.outputs import Judged
from ait_llm.opcheck.cases import inputs_of, library_operator
from ait_llm.opcheck.checker import Checker
from ait_llm.opcheck.ranks import Ranks, needs_ranks
from ait_llm.opcheck.rerun import host_inputs
from ait_llm.opcheck.selection import Selection, Target, Wanted

if TYPE_CHECKING:
    from torch import Tensor


def atb_case(
    path: Path,
    op: str,
    *,
    step: int | None,
    device: int | None,
    output: str | None,
    max_bytes: int,
) -> Origin:
    """The case of one operator of a dump.

    Args:
        path: the dump or a folder in it.
        op: id, ``2_1_3``.
        step: execution count; None for the first one that fails, else the first.
        device: device number; None likewise.
        output: ``outtensor1``, or ``intensor2`` of an overwritten input; None for the first one
            that fails, else the first.
        max_bytes: of the operator's tensors.

    Raises:
        UsageError: there is no such operator, or it cannot be computed.
        FormatError: no dump, or it is damaged.
    """
    selection = Selection(path, None, Wanted((OpId.parse(op),)))
    targets = [each for each in selection.targets() if each.op_id == str(OpId.parse(op))]
    if not targets:
        raise UsageError(_unknown(path, op, selection.targets()))
    chosen = [
        each
        for each in targets
        if (step is None or each.step == step) and (device is None or each.device == device)
    ]
    if not chosen:
        places = ", ".join(f"step {each.step} of device {each.device}" for each in targets[:8])
        raise UsageError(f"{path}: {op} ran at {places}; choose with --step and --device")

    @cache
    def ranks() -> Ranks:
        return Ranks(open_dump(selection.dump.root).operations())

    checker = Checker("contract", ranks=ranks)
    target, inputs, judged = _first_failing(checker, chosen, output, max_bytes)
    process = next(
        (each for each in selection.dump.processes if each.pid == target.pid),
        None,
    )
    case = _case(target, inputs, judged, ranks)
    return Origin(case, environment_of(process), _library(case))


def _unknown(path: Path, op: str, inside: Sequence[Target]) -> str:
    if inside:
        names = ", ".join(f"{each.op_id} {each.type}" for each in inside[:6])
        return f"{path}: {op} is a graph; give one operator of it, such as {names}"
    return f"{path}: there is no operator {op} in the dump; ait llm show DIR lists what is there"


def _first_failing(
    checker: Checker, targets: Sequence[Target], output: str | None, max_bytes: int
) -> tuple[Target, Sequence[Tensor | None], Judged]:
    first: tuple[Target, Sequence[Tensor | None], Judged] | None = None
    reason = ""
    for target in targets:
        if target.operation is not None:
            name = f"{target.type} {target.op_id}"
            check_size(name, target.operation.tensors, max_bytes)
        inputs, items = checker.examine(target)
        for item in items:
            if item.output is None:
                reason = reason or item.checked.reason
                continue
            if output is not None and item.checked.output != output:
                reason = reason or f"it has no {output} that could be compared"
                continue
            if item.checked.verdict is Verdict.FAIL:
                return target, inputs, item
            first = first or (target, inputs, item)
    if first is None:
        raise UsageError(f"{targets[0].type} {targets[0].op_id}: {reason or 'it has no output'}")
    return first


def _case(target: Target, inputs: Sequence[Tensor | None], judged: Judged, ranks: Any) -> Case:
    golden = library_operator(target.type)
    output = judged.output
    assert golden is not None
    assert output is not None
    params = dict(judged.params or target.params)
    calls, rank = [Call(list(inputs), params)], 0
    if needs_ranks(golden, target.params):
        group = ranks().group(target.operation)
        rank = next(
            place
            for place, call in enumerate(group)
            if call is not None and (call.pid, call.device) == (target.pid, target.device)
        )
        calls = [
            Call([], {}) if call is None else Call(inputs_of(call), dict(call.params))
            for call in group
        ]
        calls[rank] = replace(calls[rank], params=params)
    return Case(
        f"{target.type} {target.op_id} {output.name}, step {target.step}, device {target.device}",
        {
            "type": target.type,
            "id": target.op_id,
            "step": target.step,
            "device": target.device,
            "output": output.name,
        },
        golden,
        calls,
        rank,
        output.name,
        output.index,
        output.is_input,
        output.mine,
    )


def _library(case: Case) -> dict[str, Any] | None:
    from ait_llm.opcheck.atb_call import class_stem

    if case.of_ranks:
        return None
    stem = class_stem(case.place["type"], case.call.inputs)
    return {"stem": stem, "on_host": sorted(host_inputs(stem, case.call.params))}
