"""Forward passes of a dump: which operations ran together, and which pass of the process it was.

An execution count in an ATB dump counts each top-level operation for itself: prefill operations
and the first decode step share folder 0. Passes are put together again from the models that the
run reported, else from the values that operations hand to one another and from what runs again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ait_llm.dumps.dequantised import dequantised
from ait_llm.dumps.model import Dump, Operation, Process, TopologyFile
from ait_llm.errors import FormatError
from ait_llm.program.adapted import adapted
from ait_llm.program.contexts import with_contexts
from ait_llm.program.executions import Execution, executions_of
from ait_llm.program.grouping import group
from ait_llm.program.meetings import with_meetings
from ait_llm.program.numbering import number
from ait_llm.program.one_pass import Pass
from ait_llm.program.ordering import in_order_of_values
from ait_llm.program.schedule import EngineSchedules, engine_schedules
from ait_llm.topology import Graph

# Settings of the probe that leave operations out, by id and by type.
_FILTERS = ("ATB_SAVE_TENSOR_IDS", "ATB_SAVE_TENSOR_RUNNER")
_RANGE, _ALWAYS = "ATB_SAVE_TENSOR_RANGE", "0,2147483647"


class Graphs(Mapping[str, Graph]):
    """Topologies by name, each read when it is asked for."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files
        self._read: dict[str, Graph] = {}

    def __getitem__(self, name: str) -> Graph:
        if name not in self._read:
            from ait_llm.topology import read_topology  # readers of every kind of graph

            self._read[name] = read_topology(self._files[name])
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def passes_of(dump: Dump, process: Process) -> list[Pass]:
    """The forward passes of one process, in the order in which they ran.

    Raises:
        FormatError: a ledger or folder cannot be read.
    """
    operations = list(dump.operations(device=process.device, pid=process.pid))
    left_out = assistants_of(process)
    if left_out:
        operations = [each for each in operations if not _is_of(each.name, left_out)]
    operations = with_meetings(dump, operations)
    if not operations:
        return []
    if dump.traits.counted:
        return _atb_passes(dump, process, operations)
    return _by_step(dump, process, operations)


def schedules_of(process: Process) -> EngineSchedules | None:
    """What an engine computed in a process; None where none said so."""
    lines = () if process.ledger is None else process.ledger.engine
    return engine_schedules(lines) if lines else None


def assistants_of(process: Process) -> tuple[str, ...]:
    """Models of a process that only propose tokens to another one, which makes sure of each."""
    return () if process.ledger is None else process.ledger.assistants


def _is_of(name: str, models: Sequence[str]) -> bool:
    """True for a model, or what is in it."""
    return name.partition(".")[0] in models


def _by_step(dump: Dump, process: Process, operations: Sequence[Operation]) -> list[Pass]:
    """Passes of a dump whose steps are forward passes already."""
    groups: dict[int, list[Operation]] = {}
    first: dict[int, int] = {}
    known = schedules_of(process)
    operations = with_contexts(operations, known)
    schedules = known.passes if known is not None else {}
    steps = _with_steps(operations) if not schedules else ((op.step, op) for op in operations)
    for order, (step, operation) in enumerate(steps):
        groups.setdefault(step, []).append(operation)
        first.setdefault(step, order)
    saved = dump.weights(device=process.device, pid=process.pid)
    left_out = assistants_of(process)
    weights = {each.stem: each for each in saved if not _is_of(each.stem, left_out)}
    weights |= {name: each.tensor for name, each in dequantised(weights).items()}
    weights |= adapted(weights, operations)
    return [
        Pass(
            dump.kind,
            process.device,
            process.pid,
            step,
            groups[step],
            first[step],
            weights=weights,
            traits=dump.traits,
            schedule=schedules.get(step),
        )
        for step in sorted(groups)
    ]


def _with_steps(operations: Sequence[Operation]) -> Iterator[tuple[int, Operation]]:
    """Operations with the step of the pass that they belong to.

    Engines compute logits after the forward call of the model, when the capture counts the next
    step already: what runs before a step's own forward call ends the pass before it.
    """
    lead = _top(operations[0].name) if operations else ""
    begun: set[int] = set()
    for operation in operations:
        step = operation.step
        if _top(operation.name) == lead:
            begun.add(step)
        late = operation.name.startswith("root.") and not operation.name.startswith("root.aten.")
        yield (step - 1 if late and step not in begun and step - 1 in begun else step), operation


def _top(name: str) -> str:
    """The model itself, or the part of it in which an operation runs: ``root.model``."""
    return ".".join(name.split(".")[:2])


def _atb_passes(dump: Dump, process: Process, operations: Sequence[Operation]) -> list[Pass]:
    order = process.ledger.order if process.ledger is not None else {}
    executions = executions_of(operations, order)
    models = _models(dump.models, process.pid)
    graphs = Graphs({file.name: file.path for file in dump.layers if file.pid == process.pid})
    owners = {top: place for place, ids in enumerate(models) for top in ids}
    if models and len(owners) == sum(map(len, models)):
        passes = _as_reported(executions, owners)
    else:
        if not order:
            executions = in_order_of_values(executions)
        passes = group(executions, is_complete=_is_complete(process))
    runs = []
    first = 0
    for step, one in sorted(zip(number(passes), passes, strict=True), key=lambda each: each[0]):
        members = [operation for each in one for operation in each.operations]
        if not members:
            continue
        model = _model_of(one, models)
        place = process.device, process.pid
        runs.append(
            Pass(dump.kind, *place, step, members, first, graphs, model, traits=dump.traits)
        )
        first += len(members)
    return runs


def _is_complete(process: Process) -> bool:
    """True if the capture says that it left nothing out, neither operations nor executions."""
    options = process.header.get("options")
    return (
        isinstance(options, Mapping)
        and not any(options.get(name) for name in _FILTERS)
        and options.get(_RANGE) == _ALWAYS
    )


def _as_reported(
    executions: Sequence[Execution], owners: Mapping[int, int]
) -> list[list[Execution]]:
    """Passes as the models say: one is one execution of one model.

    What no model owns goes with the pass that follows.

    Args:
        executions: in the order in which they ran.
        owners: number of the model that each operation belongs to.
    """
    passes: dict[tuple[int, int], list[Execution]] = {}
    waiting: list[Execution] = []
    for each in executions:
        owner = owners.get(each.top)
        if owner is None:
            waiting.append(each)
            continue
        passes.setdefault((owner, each.count), []).extend([*waiting, each])
        waiting = []
    if waiting:
        passes.setdefault(next(reversed(passes), (0, 0)), []).extend(waiting)
    return list(passes.values())


def _models(files: Sequence[TopologyFile], pid: int) -> dict[frozenset[int], Graph]:
    """Reported models by the ids of their operations; unreadable ones are left out."""
    found: dict[frozenset[int], Graph] = {}
    if not files:
        return found
    from ait_llm.topology import read_topology  # readers of every kind of graph

    for file in files:
        if file.pid != pid:
            continue
        try:
            graph = read_topology(file.path)
        except FormatError:
            continue  # passes are found without it
        ids = [node.op_id.parts[0] for node in graph.root.children if node.op_id is not None]
        if ids:
            found[frozenset(ids)] = graph
    return found


def _model_of(
    executions: Sequence[Execution], models: Mapping[frozenset[int], Graph]
) -> Graph | None:
    """The reported model that has most of these operations, None if none has any."""
    tops = {each.top for each in executions}
    best = max(models, key=lambda ids: len(ids & tops), default=frozenset[int]())
    return models[best] if best & tops else None
