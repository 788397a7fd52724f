"""Dumps of the graph engine, as torchair and other front ends switch them on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ait_llm.core import OpId
from ait_llm.dumps.ge_listing import GeEntry, Listed, list_files
from ait_llm.dumps.ge_place import (
    GePlace,
    Unit,
    build_graph_files,
    graph_files,
    graph_prints,
    units,
)
from ait_llm.dumps.ge_records import GeRecord
from ait_llm.dumps.lazy import Lazy, LazyMapping
from ait_llm.dumps.model import Dump, Loss, Process, Traits
from ait_llm.dumps.operations import GraphRun, Operation
from ait_llm.dumps.processes import FILE


@dataclass(frozen=True, slots=True)
class _Member:
    """The units of one process."""

    device: int
    pid: int
    units: tuple[Unit, ...]

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(sorted({unit.step for unit in self.units}))


class GeDump(Dump):
    """A dump of the graph engine; see :class:`ait_llm.dumps.model.Dump`.

    The engine does not record process ids. ``pid`` is the global rank, 0 without one; where the
    same rank and device ran several times, it is the start of the run, ``20241125192345``.
    """

    kind = "ge"
    traits = Traits(named=True, compiled=True, fused=True)

    def __init__(self, place: GePlace) -> None:
        self._place = place
        self._listed: dict[str, Listed] = {}

    @property
    def root(self) -> Path:
        """The folder that holds everything."""
        return self._place.root

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """By device, then rank; losses are files that cannot be told from their names.

        Raises:
            FormatError: a folder cannot be listed.
        """
        found = []
        for member in self._members:
            losses = tuple(self._losses(member))
            remarks = tuple(f"{loss.op}: {loss.reason}" for loss in losses[:1])
            found.append(Process(member.device, member.pid, member.steps, None, losses, remarks))
        return tuple(found)

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps of all processes, ascending."""
        return tuple(sorted({step for member in self._members for step in member.steps}))

    @cached_property
    def graph_files(self) -> tuple[Path, ...]:
        """``dynamo_original_graph_*`` and ``dynamo_optimized_graph_*``, as ``.txt`` or ``.pbtxt``.

        Original graphs first, then by the first number in the name: N, or the time of compilation
        where torchair wrote no N. They lie anywhere above the time folders.
        """
        return graph_files(self._place)

    @cached_property
    def graph_prints(self) -> tuple[Path, ...]:
        """``dynamo_*_graph_*.py``, which torchair writes where the type of the dump is ``py``."""
        return graph_prints(self._place)

    @cached_property
    def build_graph_files(self) -> tuple[Path, ...]:
        """``ge_proto_*_Build.txt`` of the engine itself, after all fusions, by name."""
        return build_graph_files(self._place)

    def operations(
        self, *, device: int | None = None, pid: int | None = None, step: int | None = None
    ) -> Iterator[Operation]:
        """Operators by process, and within a process by the time of their execution.

        Raises:
            FormatError: a folder cannot be listed.
        """
        for member in self._members:
            if device in (None, member.device) and pid in (None, member.pid):
                yield from self._operations(member, step)

    def forget(self) -> None:
        """Let go of remembered folders; they are listed again when they are needed."""
        self._listed.clear()

    def _operations(self, member: _Member, step: int | None) -> Iterator[Operation]:
        found: list[tuple[tuple[int, int, int, int], int, int, GeEntry, Unit]] = []
        for unit in member.units:
            if step not in (None, unit.step):
                continue
            for index, file in enumerate(self._files(unit).files):
                found.append((file.name.order, len(found), index, file, unit))
        runs: dict[str, GraphRun] = {}
        # Models of a process run one after the other, or at the same time on several streams.
        for _, _, index, file, unit in sorted(found, key=lambda one: one[:2]):
            record = GeRecord(file.path, file.table, self.root)
            run = runs.get(unit.path)
            if run is None:
                run = runs[unit.path] = _run(unit)
            yield Operation(
                file.name.name,
                OpId((index,)),
                file.name.type,
                unit.step,
                device=unit.device,
                pid=member.pid,
                rank=-1 if unit.rank is None else unit.rank,
                location=file.path or file.table or unit.path,
                tensors=Lazy(record.tensors),
                params=LazyMapping(record.params),
                timestamp=file.name.timestamp,
                run=run,
                facts=record,
            )

    @cached_property
    def _members(self) -> tuple[_Member, ...]:
        groups: dict[tuple[int, int, str], list[Unit]] = {}
        for unit in units(self._place):
            groups.setdefault((unit.device, unit.rank or 0, unit.time), []).append(unit)
        runs = Counter((device, rank) for device, rank, _ in groups)
        return tuple(
            _Member(
                device,
                rank if runs[device, rank] == 1 else int(time or 0),
                tuple(sorted(groups[device, rank, time], key=_unit_order)),
            )
            for device, rank, time in sorted(groups)
        )

    def _files(self, unit: Unit) -> Listed:
        if unit.path not in self._listed:
            self._listed[unit.path] = list_files(unit.path, self.root)
        return self._listed[unit.path]

    def _losses(self, member: _Member) -> Iterator[Loss]:
        for unit in member.units:
            for name, reason in self._files(unit).problems:
                yield Loss(name, FILE, unit.step, "after", "failed", 0, reason)


def _run(unit: Unit) -> GraphRun:
    return GraphRun(
        unit.path, unit.model_name, unit.graph, unit.step, time=unit.time, model_id=unit.model_id
    )


def _unit_order(unit: Unit) -> tuple[str, int, int]:
    return unit.model_name, unit.model_id, unit.step
