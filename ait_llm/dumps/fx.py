"""FX dumps: what torchair saves of each node of a graph that torch.compile made."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from ait_llm.core import OpId
from ait_llm.dumps.fx_place import FILE_NAME, FxPlace, FxUnit, find_fx_place
from ait_llm.dumps.fx_records import FxOperation, FxTensor
from ait_llm.dumps.kinds import kinds
from ait_llm.dumps.model import Process, TopologyFile
from ait_llm.errors import FormatError


class FxDump:
    """A dump of FX nodes; see :class:`ait_llm.dumps.model.Dump`."""

    kind = "fx"

    def __init__(self, place: FxPlace) -> None:
        self._place = place

    @property
    def root(self) -> Path:
        """The folder that holds everything."""
        return self._place.root

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """One for each rank."""
        return tuple(
            Process(rank, 0, tuple(sorted({each.step for each in self._of(rank)})), None, ())
            for rank in sorted({each.rank for each in self._place.units})
        )

    @property
    def steps(self) -> tuple[int, ...]:
        """Executions of all graphs, counted from 0 for each graph, ascending."""
        return tuple(sorted({each.step for each in self._place.units}))

    @property
    def layers(self) -> tuple[TopologyFile, ...]:
        """No operation graphs in the sense of ATB."""
        return ()

    @property
    def models(self) -> tuple[TopologyFile, ...]:
        """No model graphs in the sense of ATB."""
        return ()

    def operations(
        self, *, device: int | None = None, pid: int | None = None, step: int | None = None
    ) -> Iterator[FxOperation]:
        """Nodes in execution order, rank by rank.

        Raises:
            FormatError: a folder cannot be listed.
        """
        for process in self.processes:
            if device in (None, process.device) and pid in (None, process.pid):
                units = [each for each in self._of(process.device) if step in (None, each.step)]
                for unit in sorted(units, key=self._begin):
                    yield from self._nodes(unit)

    def forget(self) -> None:
        """Let go of what was remembered of the folders."""
        self._begins.clear()

    def _of(self, rank: int) -> list[FxUnit]:
        return [each for each in self._place.units if each.rank == rank]

    @cached_property
    def _begins(self) -> dict[Path, str]:
        return {}

    def _begin(self, unit: FxUnit) -> tuple[str, int]:
        """When its first node ran."""
        if unit.folder not in self._begins:
            times = (match[6] for _, match in _files(unit.folder))
            self._begins[unit.folder] = min(times, default="")
        return self._begins[unit.folder], unit.graph or 0

    def _nodes(self, unit: FxUnit) -> Iterator[FxOperation]:
        found: dict[tuple[str, str, str], list[FxTensor]] = {}
        for path, match in _files(unit.folder):
            node, target, role, index, element, time = match.groups()
            value = FxTensor(
                role="in" if role == "INPUT" else "out",
                index=int(index),
                element=None if element is None else int(element),
                file=path,
                root=self.root,
            )
            found.setdefault((time, node, target), []).append(value)
        calls: Counter[str] = Counter()
        for place, (time, node, target) in enumerate(sorted(found)):
            values = sorted(found[time, node, target], key=_position)
            yield FxOperation(
                name=node,
                op_id=OpId((unit.graph or 0, place)),
                type=target,
                step=unit.step,
                step_directory=unit.step_directory,
                graph=unit.graph,
                rank=unit.rank,
                pid=0,
                timestamp=time,
                call=calls[node],
                folder=unit.folder,
                values=tuple(values),
            )
            calls[node] += 1


def _position(value: FxTensor) -> tuple[bool, int, int]:
    return value.role == "out", value.index, -1 if value.element is None else value.element


def _files(folder: Path) -> Iterator[tuple[str, re.Match[str]]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                match = FILE_NAME.fullmatch(entry.name)
                if match is not None:
                    yield entry.path, match
    except OSError as error:
        raise FormatError(folder, f"cannot be listed ({error.strerror})") from error


@kinds.register("fx")
def _open(path: Path) -> FxDump | None:
    place = find_fx_place(path)
    return None if place is None else FxDump(place)
