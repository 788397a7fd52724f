"""Cases from dumps of torch: operators, nodes of FX graphs and modules, as opcheck judges them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ait_llm.capsule.case import Call, Case, Origin
from ait_llm.capsule.environment import environment_of
from ait_llm.capsule.sizes import check_size
from ait_llm.core.comparison import Verdict
from ait_llm.dumps.model import Dump, Operation
from ait_llm.errors import UsageError
from ait_llm.judge.outputs import Judged
from ait_llm.judge.recomputed import Unknown, recomputed
from ait_llm.opcheck.case import Case as Computation
from ait_llm.opcheck.cases import case_of, library_operator, results_of

if TYPE_CHECKING:
    from ait_llm.opcheck.golden import GoldenOp

_TOLD = 6


def torch_case(
    dump: Dump,
    name: str,
    *,
    step: int | None,
    device: int | None,
    output: str | None,
    max_bytes: int,
) -> Origin:
    """The case of one operator, node or module of a dump.

    Args:
        dump: with values, and with the weights that the operator reads.
        name: ``root.layers.1.aten.mm.default``, ``root.norm``, the name of a node; ``@2`` behind it
            is its third call in a step.
        step, device: which; None for the first that fails, else the first.
        output: ``outtensor1``; None for the first that fails, else the first.
        max_bytes: of the operator's tensors.

    Raises:
        UsageError: there is no such operator, or it cannot be computed again.
        FormatError: the dump is damaged.
    """
    operations = list(dump.operations())
    named = [each for each in operations if name in _names(each)]
    if not named:
        raise UsageError(_unknown(dump, name, operations))
    chosen = [
        each
        for each in named
        if (step is None or each.step == step) and (device is None or each.device == device)
    ]
    if not chosen:
        places = ", ".join(f"step {each.step} of device {each.device}" for each in named[:8])
        raise UsageError(f"{dump.root}: {name} ran at {places}; choose with --step and --device")
    operation, judged = _first_failing(chosen, output, max_bytes)
    process = next((each for each in dump.processes if each.pid == operation.pid), None)
    return Origin(_case(operation, judged), environment_of(process))


def _names(operation: Operation) -> tuple[str, ...]:
    again = f"{operation.name}@{operation.call}"
    return (again,) if operation.call else (operation.name, again)


def _unknown(dump: Dump, name: str, operations: Sequence[Operation]) -> str:
    below = dict.fromkeys(each.name for each in operations if each.name.startswith(f"{name}."))
    if below:
        told = ", ".join(list(below)[:_TOLD])
        return f"{dump.root}: there is no operator {name}; of those in it give one, such as {told}"
    return f"{dump.root}: there is no operator {name}; ait llm show DIR lists what is there"


def _first_failing(
    operations: Sequence[Operation], output: str | None, max_bytes: int
) -> tuple[Operation, Judged]:
    first: tuple[Operation, Judged] | None = None
    reason = ""
    for operation in operations:
        check_size(operation.name, operation.tensors, max_bytes)
        judged = recomputed(operation)
        if isinstance(judged, Unknown):
            case = case_of(operation)
            reason = reason or getattr(case, "reason", "") or judged.reason
            continue
        for one in judged:
            if one.output is None:
                reason = reason or one.checked.reason
            elif output is not None and one.checked.output != output:
                reason = reason or f"it has no {output} that could be compared"
            elif one.checked.verdict is Verdict.FAIL:
                return operation, one
            else:
                first = first or (operation, one)
    if first is None:
        raise UsageError(
            f"{operations[0].name}: no capsule can be made of it: {reason or 'it has no output'}"
        )
    return first


def _case(operation: Operation, judged: Judged) -> Case:
    known = case_of(operation)
    output = judged.output
    assert isinstance(known, Computation)
    assert output is not None
    inputs = known.read()
    params = dict(judged.params or known.params)
    place = {
        "type": operation.type,
        "id": operation.name,
        "step": operation.step,
        "call": operation.call,
        "device": operation.device,
        "output": output.name,
    }
    case = Case(
        f"{operation.name} {output.name}, step {operation.step}",
        place,
        known.golden,
        [Call(inputs, params)],
        0,
        output.name,
        output.index,
        output.is_input,
        output.mine,
    )
    if library_operator(operation.type) is not None:
        return case  # it was registered, and its own definition is carried
    if isinstance(known.golden.compute, partial):
        return _of_operator(case, operation)
    return _of_module(case, operation, known)


def _of_operator(case: Case, operation: Operation) -> Case:
    from ait_llm.capsule.carried.aten_call import OPERATOR, compute, rerun

    params = {**case.call.params, OPERATOR: operation.type}
    golden = replace(case.golden, compute=compute)
    return replace(case, golden=golden, calls=[Call(case.call.inputs, params)], again=rerun)


def _of_module(case: Case, operation: Operation, known: Computation) -> Case:
    from ait_llm.capsule.carried.module_call import DEFINITION, compute, rerun
    from ait_llm.opcheck.golden.modules import definition_of

    definition = definition_of(operation.type)
    assert definition is not None
    stems = [tensor.stem.removeprefix("input_") for tensor in operation.inputs]
    outputs = list(known.outputs().values())
    params: dict[str, Any] = {
        DEFINITION: f"{definition.__module__}:{definition.__name__}",
        "class": operation.type,
        "attributes": dict(operation.definition),
        "inputs": stems,
        "weights": [name.rpartition(".")[2] for name in operation.parameters],
        "outputs": [list(tensor.shape) for tensor in outputs],
    }
    golden = _seen(known.golden, case, known)
    return replace(
        case,
        golden=replace(golden, compute=compute),
        calls=[Call(case.call.inputs, params)],
        again=rerun,
        function=DEFINITION,
    )


def _seen(golden: GoldenOp, case: Case, known: Computation) -> GoldenOp:
    """A golden operator that has seen what its function calls: its limits follow from that."""
    results = results_of(known)
    outputs = [results.get(index) for index in range(max(results, default=-1) + 1)]
    golden.recover(case.call.inputs, outputs, case.call.params)
    return golden
