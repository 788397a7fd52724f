"""From a module to the operator in it: the operators of its own code, captured and compared.

Modules show what they give to each other. Where a module without members is wrong, or its code
between its members, the operators that this code calls are captured with their weights, those of
golden too, and compared like every dump. What one operator then adds to the error by itself, or is
told otherwise than golden's, has a name.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from ait_llm.bisect.captures import Captured, OperatorSelection, Program
from ait_llm.bisect.origins import origin_at
from ait_llm.bisect.other_code import other_code
from ait_llm.bisect.picture import Looker
from ait_llm.bisect.runs import ProgramFailedError, Runs
from ait_llm.bisect.sizes import file_bytes
from ait_llm.bisect.step import OVERHEAD
from ait_llm.compare.origin_finding import OTHER_DEFINITION, OTHER_INPUT, OTHER_WEIGHT, OWN_CODE
from ait_llm.compare.origin_words import own_error
from ait_llm.core.comparison import Origin, Report, Verdict
from ait_llm.dumps import open_dump
from ait_llm.dumps.model import Operation
from ait_llm.errors import AitError, IncompleteError
from ait_llm.judge.evidence import Introduced, introduced_error
from ait_llm.match.model import SideName

_MOST_MODULES = 8
INTERRUPTED = 128 + 2
_WEIGHT_BYTES = 4  # of an element; the statistics of operators do not tell the type of a weight


@dataclass(frozen=True, slots=True)
class Inside:
    """What was found in the code of a module.

    Attributes:
        origin: the operator; None if the operators do not tell.
        certain: the operators prove it.
        notes: sentences about what is missing or not certain.
        folders: golden's operators and mine, where both were captured.
        compared: pairs of tensors that were compared.
    """

    origin: Origin | None = None
    certain: bool = False
    notes: tuple[str, ...] = ()
    folders: tuple[Path, Path] | None = None
    compared: int = 0


class _NothingSaidError(Exception):
    """The operators cannot be told, and why."""


def is_open(runs: Runs, origin: Origin | None, *, certain: bool) -> bool:
    """True if the operators of a module may say more than what is known of the module.

    Another input is a name already, and so is a definition that is known to decide. The statistics
    of a weight do not say which of its elements differ.
    """
    if origin is None or runs.programs["mine"].kind != "torch":
        return False
    if origin.kind == OTHER_INPUT:  # the code around the module may have changed what it gets
        return "." in origin.op
    return not (certain and origin.kind == OTHER_DEFINITION)


def look_inside(runs: Runs, look: Looker, origin: Origin) -> Inside:
    """Find the operator in the modules that an origin names.

    Args:
        runs: starts the programs.
        look: compares what was captured.
        origin: a module, and others where it is not certain.
    """
    named = (origin.op, *(() if origin.certain else origin.candidates))
    if origin.kind == OTHER_INPUT:
        named = (origin.op.rpartition(".")[0],)
    modules = tuple(dict.fromkeys(named))[:_MOST_MODULES]
    notes: list[str] = []
    try:
        found = _in_code_of(runs, look, modules, origin, "operators")
        inner = found.origin
        if inner is not None and inner.kind == OTHER_INPUT:
            members = _members(runs, origin)
            if members:  # statistics hid that something before the code was wrong
                notes.append(f"the code of {origin.op} gets other values: {inner.evidence}")
                found = _in_code_of(runs, look, members, origin, "operators_of_members")
    except _NothingSaidError as reason:
        return Inside(notes=(*notes, str(reason)))
    except ProgramFailedError as error:
        if error.code == INTERRUPTED:
            raise
        return Inside(notes=(*notes, error.sentence()))
    inner = found.origin
    if origin.kind == OTHER_WEIGHT and (inner is None or inner.kind != OTHER_WEIGHT):
        return Inside()  # its values do not say more than its statistics
    if inner is None:
        return replace(found, notes=(*notes, *found.notes))
    if inner.kind == OTHER_INPUT:  # no operator is to blame
        return Inside(replace(inner, certain=False), notes=(), folders=found.folders)
    if origin.kind == OTHER_DEFINITION:
        stated = origin.evidence.rpartition("; ")[0]
        inner = replace(inner, evidence=f"{stated}; {inner.evidence}")
    return replace(found, origin=inner, certain=inner.certain, notes=(*notes, *found.notes))


def _in_code_of(
    runs: Runs, look: Looker, modules: Sequence[str], origin: Origin, name: str
) -> Inside:
    """Capture and compare the operators of the code of modules."""
    selection = OperatorSelection(tuple(modules), origin.step)
    sketch = runs.folder / f"mine_{name}_statistics"
    expected = runs.records[0].written or 0  # no more than statistics of all modules, as a rule
    _check(runs, modules, expected)
    _capture(runs, "mine", sketch, replace(selection, values=False), expected)
    operations = list(open_dump(sketch).operations())
    if not operations:
        raise _NothingSaidError(f"no operator was seen in the code of {_listed(modules)}")
    size = OVERHEAD + sum(_bytes_of(each) for each in operations)
    shutil.rmtree(sketch)
    both = runs.programs["golden"].kind == "torch"
    _check(runs, modules, size * (1 + both))
    mine, golden = runs.folder / f"mine_{name}", runs.folder / f"golden_{name}"
    _capture(runs, "mine", mine, selection, size)
    if not both:
        return _alone(mine, modules)
    _capture(runs, "golden", golden, selection, size)
    try:
        report = look(golden, mine).report
    except AitError as error:
        raise _NothingSaidError(f"their operators could not be compared: {error}") from error
    found = min(report.origins, key=lambda each: each.step, default=None)
    theirs, ours = (list(open_dump(side).operations()) for side in (golden, mine))
    is_wrong = _is_wrong(origin, report)
    parts = is_wrong or origin.kind == OWN_CODE
    found = other_code(theirs, ours, found, is_wrong=is_wrong, parts=parts) or found
    alike = f"the operators of {_listed(modules)} compute what golden's compute"
    return Inside(found, False, () if found else (alike,), (golden, mine), report.compared)


def _is_wrong(origin: Origin, report: Report) -> bool:
    """True if a code makes something else of values that agree, seen from the module or within."""
    agrees = any(
        each.verdict is Verdict.PASS and each.mine is not None and each.mine.role == "in"
        for each in report.comparisons
    )
    if origin.kind == OTHER_INPUT:  # what the code around the module gets may be another, too
        return False
    return origin.certain or (origin.kind == OWN_CODE and agrees)


def _check(runs: Runs, modules: Sequence[str], size: int) -> None:
    """Start nothing that would exceed the budget."""
    left = runs.left()
    if left is not None and size > left:
        raise _NothingSaidError(
            f"the operators in the code of {_listed(modules)} would take about {size:,} bytes, and "
            f"{left:,} are left; raise --budget"
        )


def _capture(
    runs: Runs, side: SideName, folder: Path, selection: OperatorSelection, planned: int
) -> None:
    what = "values and weights" if selection.values else "statistics"
    code = f"the code of {_listed(selection.modules)}"

    def capture(program: Program) -> Captured:
        return runs.runner.operators(program, folder, selection)

    try:
        runs.start(
            side, f"{what} of the operators in {code}", selection.options(), planned, capture
        )
    except IncompleteError as error:
        raise _NothingSaidError(str(error)) from error


def _alone(mine: Path, modules: Sequence[str]) -> Inside:
    """The first operator that is wrong by its own inputs, where golden has none of torch."""
    count = 0
    for operation in open_dump(mine).operations():
        found = introduced_error(operation)
        if isinstance(found, Introduced):
            count += 1
            if found.is_wrong:
                return Inside(origin_at(operation, own_error(found)))
    return Inside(
        notes=(
            f"{count} operators of {_listed(modules)} compute rightly from their own inputs: what "
            "they are told to compute, or a weight, is not golden's",
        )
    )


def _members(runs: Runs, origin: Origin) -> tuple[str, ...]:
    """All modules that ran within a module, in execution order."""
    names = (each.name for each in open_dump(runs.dump("mine")).operations(step=origin.step))
    return tuple(dict.fromkeys(name for name in names if name.startswith(f"{origin.op}.")))


def _bytes_of(operation: Operation) -> int:
    """Bytes of the values of an operator, and of the weights that it reads."""
    shapes = (record.get("shape") for record in operation.weights.values() if _is_record(record))
    weights = sum(_WEIGHT_BYTES * prod(shape) for shape in shapes if isinstance(shape, list))
    return weights + sum(file_bytes(tensor) for tensor in operation.tensors)


def _is_record(value: object) -> bool:
    return isinstance(value, dict)


def _listed(modules: Sequence[str]) -> str:
    return modules[0] if len(modules) == 1 else f"{modules[0]} and {len(modules) - 1} more"
