"""Dumps of the ATB acceleration library, whichever probe wrote them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Literal

from ait_llm.core import OpId
from ait_llm.dumps.atb_ledgers import AtbLedgers
from ait_llm.dumps.atb_place import PROCESS_NAME, STEP_NAME, AtbPlace
from ait_llm.dumps.atb_records import AtbFiles, AtbParams, AtbTensors
from ait_llm.dumps.atb_tree import (
    PHASES,
    TENSOR_FILE,
    Folder,
    scan,
    split_kernels,
    subfolders_if_any,
    walk,
)
from ait_llm.dumps.graphs import graph_ids, list_graphs
from ait_llm.dumps.io_table import IoTable, list_io_tables
from ait_llm.dumps.ledger import LedgerEntry
from ait_llm.dumps.losses import find_losses
from ait_llm.dumps.model import Dump, Loss, Process, TopologyFile, Traits
from ait_llm.dumps.operations import Kernel, Operation

_REFERENCE = re.compile(r"([0-9]+(?:_[0-9]+)*)_(in|out)tensor([0-9]+)(?:_\w+)?\.bin")
_TILING_FILE = "kernel_tilingdata.bin"
_UNRANKED = 1 << 62  # after everything that the ledger knows


class AtbDump(Dump):
    """An ATB dump; see :class:`ait_llm.dumps.model.Dump`.

    Folders are listed when first needed and remembered, so one object shows one state.
    """

    kind = "atb"
    traits = Traits(counted=True, library=True)

    def __init__(self, place: AtbPlace) -> None:
        self._place = place
        self._scans: dict[tuple[int, int, int], list[Folder]] = {}
        self._members: dict[tuple[int, str, int], frozenset[tuple[int, ...]] | None] = {}

    @property
    def root(self) -> Path:
        """The folder that holds everything."""
        return self._place.root

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """By device, then process id, with what the ledgers and the folders say is missing.

        Raises:
            FormatError: a ledger is damaged, or a folder cannot be listed.
        """
        return tuple(
            Process(
                device,
                pid,
                self._steps(device, pid),
                self._ledgers.of((device, pid)),
                tuple(self._losses(device, pid)),
            )
            for device, pid in self._process_ids
        )

    @property
    def steps(self) -> tuple[int, ...]:
        """Execution counts of all processes, ascending."""
        return tuple(sorted({step for ids in self._process_ids for step in self._steps(*ids)}))

    def operations(
        self, *, device: int | None = None, pid: int | None = None, step: int | None = None
    ) -> Iterator[Operation]:
        """Operations in execution order, a graph before its members.

        Where a ledger exists, top-level executions come in its order; else, and within a graph,
        by step and id. Operations of which nothing was captured, such as the graph around a
        selected operation, are not listed.

        Raises:
            FormatError: a ledger is damaged, or a folder cannot be listed.
        """
        for each_device, each_pid in self._process_ids:
            if device in (None, each_device) and pid in (None, each_pid):
                yield from self._process_operations(each_device, each_pid, step)

    @property
    def layers(self) -> tuple[TopologyFile, ...]:
        """Graphs of top-level operations that the run reported."""
        return list_graphs(self._place.graphs / "layer", self._wanted_pid)

    @property
    def models(self) -> tuple[TopologyFile, ...]:
        """Graphs of whole models that the run reported."""
        return list_graphs(self._place.graphs / "model", self._wanted_pid)

    def io_tables(self, level: Literal["operation", "kernel"] = "operation") -> list[IoTable]:
        """The tables of operations or kernels that the run wrote, by process and step."""
        tables = list_io_tables(self.root / f"{level}_io_tensors")
        return [
            table
            for table in tables
            if self._wanted_pid in (None, table.pid) and self._place.step in (None, table.step)
        ]

    def forget(self) -> None:
        """Let go of remembered folders; they are listed again when they are needed."""
        self._scans.clear()
        self._members.clear()

    @property
    def _wanted_pid(self) -> int | None:
        return None if self._place.process is None else self._place.process[1]

    @cached_property
    def _ledgers(self) -> AtbLedgers:
        found = subfolders_if_any(self._place.tensors, PROCESS_NAME)
        folders = [(int(match[1]), int(match[2])) for match in found]
        return AtbLedgers(self.root / "ledger", folders)

    @property
    def _process_ids(self) -> tuple[tuple[int, int], ...]:
        selected = self._place.process
        return tuple(each for each in self._ledgers.processes if selected in (None, each))

    def _process_folder(self, device: int, pid: int) -> Path:
        return self._place.tensors / f"{device}_{pid}"

    def _steps(self, device: int, pid: int) -> tuple[int, ...]:
        found = subfolders_if_any(self._process_folder(device, pid), STEP_NAME)
        steps = sorted(int(match[0]) for match in found)
        return tuple(step for step in steps if self._place.step in (None, step))

    def _scan(self, device: int, pid: int, step: int) -> list[Folder]:
        key = (device, pid, step)
        if key not in self._scans:
            self._scans[key] = scan(self._process_folder(device, pid) / str(step))
        return self._scans[key]

    def _process_operations(self, device: int, pid: int, step: int | None) -> Iterator[Operation]:
        ledger = self._ledgers.of((device, pid))
        order: Mapping[tuple[int, int], int] = ledger.order if ledger is not None else {}
        executions = [
            (each_step, folder)
            for each_step in self._steps(device, pid)
            if step in (None, each_step)
            for folder in self._scan(device, pid, each_step)
        ]
        executions.sort(
            key=lambda execution: (
                order.get((execution[0], execution[1].id[0]), _UNRANKED),
                execution[0],
                execution[1].id,
            )
        )
        sources: dict[int, AtbFiles] = {}
        for each_step, folder in executions:
            if each_step not in sources:
                sources[each_step] = self._source(device, pid, each_step)
            members = self._known_members(device, pid, folder)
            pending = [folder]
            while pending:
                current = pending.pop()
                operations, kernels = split_kernels(current, members)
                pending += reversed(operations)
                if self._is_listed(current, kernels):
                    yield self._operation(
                        current,
                        (device, pid, each_step),
                        [self._kernel(kernel, sources[each_step]) for kernel in kernels],
                        sources[each_step],
                        is_graph=bool(operations),
                    )

    def _is_listed(self, folder: Folder, kernels: list[Folder]) -> bool:
        prefix = self._place.prefix
        within = folder.id[: len(prefix)] == prefix
        return within and bool(folder.files or folder.has_params or kernels)

    @staticmethod
    def _operation(
        folder: Folder,
        execution: tuple[int, int, int],
        kernels: list[Kernel],
        source: AtbFiles,
        *,
        is_graph: bool,
    ) -> Operation:
        device, pid, step = execution
        op_id = OpId(folder.id)
        return Operation(
            f"{folder.name}_{op_id}",
            op_id,
            folder.name,
            step,
            device=device,
            pid=pid,
            is_graph=is_graph,
            location=folder.path,
            tensors=AtbTensors(folder.path, folder.files, source),
            params=AtbParams(folder.path, source),
            kernels=tuple(kernels),
        )

    def _kernel(self, folder: Folder, source: AtbFiles) -> Kernel:
        place = folder.path[len(str(self._place.tensors)) :]
        return Kernel(
            folder.id[-1],
            folder.name,
            folder.path,
            AtbTensors(folder.path, folder.files, source, keep=False),
            (f"{self.root}/tiling{place}/{_TILING_FILE}", f"{folder.path}/{_TILING_FILE}"),
        )

    def _source(self, device: int, pid: int, step: int) -> AtbFiles:
        index: dict[tuple[int, ...], Folder] = {}

        def locate(reference: str) -> Path | None:
            """The file of ``{op id}_{in|out}tensor{N}.bin``, as msprobe refers to it."""
            match = _REFERENCE.fullmatch(reference)
            if match is None:
                return None
            if not index:
                index.update((folder.id, folder) for folder in walk(self._scan(device, pid, step)))
            folder = index.get(tuple(int(part) for part in match[1].split("_")))
            if folder is None:
                return None
            for phase in PHASES if match[2] == "in" else reversed(PHASES):
                for name in folder.files.get(phase, ()):
                    file = TENSOR_FILE.fullmatch(name)
                    if file is not None and (file[1], int(file[2])) == (match[2], int(match[3])):
                        return Path(folder.path, phase, name)
            return None

        return AtbFiles(self.root, locate)

    def _known_members(
        self, device: int, pid: int, top: Folder
    ) -> frozenset[tuple[int, ...]] | None:
        """Ids of all operations in the reported graph of a top-level operation, None if unknown."""
        if not top.children:
            return None
        key = (pid, top.name, top.id[0])
        if key not in self._members:
            name = f"{top.name}_{top.id[0]}.json"
            graphs = self._place.graphs / "layer"
            candidates = (graphs / str(pid) / name, graphs / f"{device}_{pid}" / name)
            path = next((path for path in candidates if path.is_file()), None)
            self._members[key] = None if path is None else graph_ids(path, top.id[0])
        return self._members[key]

    def _losses(self, device: int, pid: int) -> Iterator[Loss]:
        ledger = self._ledgers.of((device, pid))
        if ledger is None:
            return iter(())
        start = len(str(self._place.tensors)) + 1
        present: dict[tuple[str, str], int] = {
            (folder.path[start:], phase): len(files)
            for step in self._steps(device, pid)
            for folder in walk(self._scan(device, pid, step))
            for phase, files in folder.files.items()
        }
        prefix = self._place.prefix

        def is_selected(entry: LedgerEntry) -> bool:
            return (
                self._place.step in (None, entry.step)
                and entry.op_id is not None
                and entry.op_id.parts[: len(prefix)] == prefix
                and self._ledgers.belongs(entry, (device, pid))
            )

        return find_losses(ledger, present, is_selected)
