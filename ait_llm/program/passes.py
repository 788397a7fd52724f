"""Forward passes of a dump: which operations ran together, and which pass of the process it was.

An execution count in an ATB dump counts each top-level operation for itself: prefill operations
and the first decode step share folder 0. Passes are put together again from the order in which
operations ran and from the models that the run reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from ait_llm.dumps.model import Dump, Operation, Process, TopologyFile
from ait_llm.dumps.torch_modules import TorchDump
from ait_llm.errors import FormatError
from ait_llm.program.run import Run
from ait_llm.topology import Graph, read_topology


class Graphs(Mapping[str, Graph]):
    """Topologies by name, each read when it is asked for."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files
        self._read: dict[str, Graph] = {}

    def __getitem__(self, name: str) -> Graph:
        if name not in self._read:
            self._read[name] = read_topology(self._files[name])
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def passes_of(dump: Dump, process: Process) -> list[Run]:
    """The forward passes of one process, in the order in which they ran.

    Raises:
        FormatError: a ledger or folder cannot be read.
    """
    operations = list(dump.operations(device=process.device, pid=process.pid))
    if not operations:
        return []
    if dump.kind == "atb":
        return _atb_passes(dump, process, operations)
    return _by_step(dump, process, operations)


def _by_step(dump: Dump, process: Process, operations: Sequence[Operation]) -> list[Run]:
    """Passes of a dump whose steps are forward passes already."""
    groups: dict[int, list[Operation]] = {}
    first: dict[int, int] = {}
    for order, operation in enumerate(operations):
        groups.setdefault(operation.step, []).append(operation)
        first.setdefault(operation.step, order)
    weights = {}
    if isinstance(dump, TorchDump):
        saved = dump.weights(device=process.device, pid=process.pid)
        weights = {tensor.stem: tensor for tensor in saved}
    return [
        Run(
            dump.kind,
            process.device,
            process.pid,
            step,
            groups[step],
            first[step],
            weights=weights,
        )
        for step in sorted(groups)
    ]


def _atb_passes(dump: Dump, process: Process, operations: Sequence[Operation]) -> list[Run]:
    executions = _executions(operations)
    models = _models(dump.models, process.pid)
    graphs = Graphs({file.name: file.path for file in dump.layers if file.pid == process.pid})
    types = {
        operation.op_id.parts[0]: operation.type
        for operation in operations
        if len(operation.op_id.parts) == 1
    }
    owner_of = _owners(models, _history(process, executions), types)
    # a pass is one execution of one model; what no model owns goes with the pass that follows
    passes: dict[tuple[int, int], list[Operation]] = {}
    waiting: list[Operation] = []
    for (step, top), members in executions.items():
        owner = owner_of.get(top)
        if owner is None:
            waiting += members
            continue
        passes.setdefault((owner, step), []).extend([*waiting, *members])
        waiting = []
    if waiting:
        last = next(reversed(passes), (0, 0))
        passes.setdefault(last, []).extend(waiting)
    return _numbered(dump, process, passes, owner_of, models, graphs)


def _executions(operations: Sequence[Operation]) -> dict[tuple[int, int], list[Operation]]:
    """Operations by execution count and top-level id, in execution order."""
    executions: dict[tuple[int, int], list[Operation]] = {}
    for operation in operations:
        executions.setdefault((operation.step, operation.op_id.parts[0]), []).append(operation)
    return executions


def _models(files: Sequence[TopologyFile], pid: int) -> list[Graph]:
    """Reported models in the order of their first operations; unreadable ones are left out."""
    found: list[tuple[int, Graph]] = []
    for file in files:
        if file.pid != pid:
            continue
        try:
            graph = read_topology(file.path)
        except FormatError:
            continue  # passes are found without it
        ids = [node.op_id.parts[0] for node in graph.root.children if node.op_id is not None]
        if ids:
            found.append((min(ids), graph))
    return [graph for _, graph in sorted(found, key=lambda each: each[0])]


def _history(
    process: Process, executions: Mapping[tuple[int, int], object]
) -> list[tuple[int, int]]:
    """Execution counts and ids in execution order, those included that are not looked at."""
    known = process.ledger.order if process.ledger is not None else {}
    return list(dict.fromkeys([*sorted(known, key=lambda each: known[each]), *executions]))


def _owners(
    models: Sequence[Graph], history: Sequence[tuple[int, int]], types: Mapping[int, str]
) -> dict[int, int]:
    """Number of the model that each top-level operation belongs to.

    Args:
        models: reported models; without them the order of execution decides.
        history: execution count and id of each execution, in execution order.
        types: of top-level operations, as far as they were captured.
    """
    if models:
        return {
            node.op_id.parts[0]: number
            for number, graph in enumerate(models)
            for node in graph.root.children
            if node.op_id is not None
        }
    starts = _starts(history, types)
    return {top: sum(start <= top for start in starts) - 1 for _, top in history}


def _starts(history: Sequence[tuple[int, int]], types: Mapping[int, str]) -> list[int]:
    """Ids with which a model begins, ascending.

    Ids grow within a model. Wherever execution goes back to a lower id, a model begins there; so
    does one where ids that ran more often follow ids that ran less. Where everything ran once, a
    row of types that begins and ends as an earlier one does is a second model.
    """
    ids = sorted({top for _, top in history})
    starts = {ids[0]}
    starts.update(after for (_, before), (_, after) in pairwise(history) if after <= before)
    counts = Counter(top for _, top in history)
    starts.update(after for before, after in pairwise(ids) if counts[after] > counts[before])
    if len(starts) == 1:
        row = [types.get(top, "") for top in ids]
        again = [place for place, kind in enumerate(row) if kind and kind == row[0]]
        if len(again) == 2 and again[1] > 2 and row[again[1] - 1] == row[-1]:
            starts.add(ids[again[1]])
    return sorted(starts)


def _numbered(
    dump: Dump,
    process: Process,
    passes: Mapping[tuple[int, int], list[Operation]],
    owner_of: Mapping[int, int],
    models: Sequence[Graph],
    graphs: Graphs,
) -> list[Run]:
    """Runs with their number in the process: how many passes had run before.

    Executions of the own model are counted by its execution count. Those of another model are
    counted by what the ledger or the folders show before this pass; a model with lower ids ran at
    least once before, because ids are given at the first execution.
    """
    history = dict.fromkeys(
        (owner_of[top], step) for step, top in _history(process, {}) if top in owner_of
    )
    history.update(dict.fromkeys(passes))
    seen: dict[int, int] = {}
    numbers: dict[tuple[int, int], int] = {}
    for owner, step in history:
        earlier = sum(
            max(seen.get(other, 0), 1 if other < owner else 0)
            for other in range(max([*owner_of.values(), owner]) + 1)
            if other != owner
        )
        numbers[owner, step] = step + earlier
        seen[owner] = max(seen.get(owner, 0), step + 1)
    runs = []
    order = 0
    for (owner, step), operations in passes.items():
        runs.append(
            Run(
                dump.kind,
                process.device,
                process.pid,
                numbers[owner, step],
                operations,
                order,
                graphs,
                models[owner] if owner < len(models) else None,
            )
        )
        order += len(operations)
    runs.sort(key=lambda run: run.step)
    return [replace(run, first_order=_first(runs, place)) for place, run in enumerate(runs)]


def _first(runs: Sequence[Run], place: int) -> int:
    return sum(len(run.operations) for run in runs[:place])
