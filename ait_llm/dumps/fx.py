"""FX dumps: what torchair saves of each node of a graph that torch.compile made."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path

from ait_llm.core import OpId
from ait_llm.dumps.fx_kernels import KernelLaunch, buffer_types, read_kernels
from ait_llm.dumps.fx_nodes import GraphNode, GraphValue, graph_nodes, graph_results, graph_sources
from ait_llm.dumps.fx_place import FILE_NAME, FxPlace, FxUnit
from ait_llm.dumps.fx_records import FxFiles, InFewBits, others_among, tensors_among
from ait_llm.dumps.fx_types import Places, logical_types, read_graph, weights_in_few_bits
from ait_llm.dumps.lazy import Lazy
from ait_llm.dumps.ledger import Ledger, LedgerEntry, read_ledger
from ait_llm.dumps.losses import find_losses
from ait_llm.dumps.model import Dump, Loss, Process, Traits
from ait_llm.dumps.operations import GraphRun, Operation
from ait_llm.dumps.tensors import Identity, Tensor
from ait_llm.dumps.torch_tables import read_identities
from ait_llm.errors import FormatError


class FxDump(Dump):
    """A dump of FX nodes; see :class:`ait_llm.dumps.model.Dump`."""

    kind = "fx"
    traits = Traits(named=True, compiled=True)

    def __init__(self, place: FxPlace) -> None:
        self._place = place
        self._begins: dict[Path, str] = {}
        self._types: dict[Path, Places] = {}
        self._few_bits: dict[Path, Mapping[tuple[str, str], InFewBits]] = {}
        self._graphs: dict[Path, Mapping[str, GraphNode]] = {}
        self._sources: dict[Path, Mapping[str, GraphValue]] = {}
        self._results: dict[Path, Mapping[str, tuple[str, int]]] = {}
        self._kernels: dict[Path, Mapping[str, KernelLaunch]] = {}
        self._source = lru_cache(maxsize=None)(partial(FxFiles, place.root))

    @property
    def root(self) -> Path:
        """The folder that holds everything."""
        return self._place.root

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """By rank, then process id; the id is 0 where the dump does not say.

        Raises:
            FormatError: a ledger is damaged, or a folder cannot be listed.
        """
        owners: dict[tuple[int, int], Ledger | None] = {
            self._owner(unit): None for unit in self._place.units
        }
        owners |= {(_rank(each), _pid(each)): each for each in self._ledgers}
        return tuple(
            Process(
                rank,
                pid,
                tuple(sorted({unit.step for unit in self._of(rank, pid)})),
                owners[rank, pid],
                tuple(self._losses(owners[rank, pid], rank, pid)),
            )
            for rank, pid in sorted(owners)
            if self._of(rank, pid) or not self._place.below
        )

    @property
    def steps(self) -> tuple[int, ...]:
        """Executions of all graphs, counted from 0 for each graph, ascending."""
        return tuple(sorted({each.step for each in self._place.units}))

    def operations(
        self, *, device: int | None = None, pid: int | None = None, step: int | None = None
    ) -> Iterator[Operation]:
        """Nodes in execution order, process by process.

        Raises:
            FormatError: a folder cannot be listed, or a ledger or ``graph.json`` is damaged.
        """
        for owner in sorted({self._owner(unit) for unit in self._place.units}):
            if device in (None, owner[0]) and pid in (None, owner[1]):
                units = [each for each in self._of(*owner) if step in (None, each.step)]
                for unit in sorted(units, key=self._begin):
                    yield from self._nodes(unit, owner[1])

    @cached_property
    def _told(self) -> tuple[Mapping[str, Mapping[str, Identity]], Mapping[str, int]]:
        """What the ledgers say of the files.

        Which values the tensors are, by the start of their files' names and then by stem; and by
        the folder of a step the call of the model in which its graph ran.
        """
        identities: dict[str, Mapping[str, Identity]] = {}
        calls: dict[str, int] = {}
        for entry in (entry for ledger in self._ledgers for entry in ledger.entries()):
            if found := read_identities(entry.line):
                identities[entry.path] = found
            call = entry.line.get("model_call")
            if type(call) is int:
                calls[entry.path.rpartition("/")[0]] = call
        return identities, calls

    def forget(self) -> None:
        """Let go of what was remembered of the folders."""
        self.__dict__.pop("_told", None)
        self._begins.clear()
        self._types.clear()
        self._few_bits.clear()
        self._graphs.clear()
        self._sources.clear()
        self._results.clear()
        self._kernels.clear()

    @cached_property
    def _ledgers(self) -> tuple[Ledger, ...]:
        """Accounts of our own captures; torchair keeps none."""
        folder = self._place.ledgers
        return tuple(read_ledger(path) for path in sorted(folder.glob("fx_*.jsonl")))

    @cached_property
    def _pids(self) -> dict[str, int]:
        """Process by the folder of a graph, as the ledgers say."""
        found = {}
        for ledger in self._ledgers:
            pid = _pid(ledger)
            for entry in ledger.entries():
                found["/".join(entry.path.split("/")[:2])] = pid
        return found

    def _owner(self, unit: FxUnit) -> tuple[int, int]:
        """Rank and process id."""
        return unit.rank, self._pids.get(self._below_root(unit.folder.parent), 0)

    def _below_root(self, folder: Path) -> str:
        """The folder of a graph as the ledger has it; empty for files that lie in no tree."""
        return folder.relative_to(self.root).as_posix() if folder != self.root.parent else ""

    def _of(self, rank: int, pid: int) -> list[FxUnit]:
        return [each for each in self._place.units if self._owner(each) == (rank, pid)]

    def _losses(self, ledger: Ledger | None, rank: int, pid: int) -> Iterator[Loss]:
        if ledger is None:
            return iter(())
        present: Counter[tuple[str, str]] = Counter()
        for unit in self._of(rank, pid):
            folder = unit.folder.relative_to(self.root).as_posix()
            for _, match in _files(unit.folder):
                present[f"{folder}/{match[1]}-{match[2]}", "after"] += 1
        below = self._place.below

        def is_selected(entry: LedgerEntry) -> bool:
            return tuple(entry.path.split("/")[: len(below)]) == below

        return find_losses(ledger, present, is_selected)

    def _begin(self, unit: FxUnit) -> tuple[str, int]:
        """When its first node ran."""
        if unit.folder not in self._begins:
            times = (match[6] for _, match in _files(unit.folder))
            self._begins[unit.folder] = min(times, default="")
        return self._begins[unit.folder], unit.graph or 0

    def _logical(self, unit: FxUnit) -> Places:
        folder = unit.folder.parent
        if folder == self.root.parent:
            return {}  # a folder of files that lies in no tree
        if folder not in self._types:
            nodes = read_graph(folder, self.root)
            self._graphs[folder] = graph_nodes(nodes)
            self._sources[folder] = graph_sources(nodes)
            self._results[folder] = graph_results(nodes)
            self._few_bits[folder] = weights_in_few_bits(nodes)
            types = logical_types(nodes)
            self._types[folder] = {**types, **buffer_types(self._launches(folder))}
        return self._types[folder]

    def _launches(self, folder: Path) -> Mapping[str, KernelLaunch]:
        """What the operations of a compiled graph are."""
        if folder == self.root.parent:
            return {}
        if folder not in self._kernels:
            self._kernels[folder] = read_kernels(folder, self.root)
        return self._kernels[folder]

    def _nodes(self, unit: FxUnit, pid: int) -> Iterator[Operation]:
        types = self._logical(unit)
        launches = self._launches(unit.folder.parent)
        found: dict[tuple[str, str, str], list[_File]] = {}
        for path, match in _files(unit.folder):
            node, target, role, argument, element, time = match.groups()
            file = role == "OUTPUT", int(argument), -1 if element is None else int(element), path
            found.setdefault((time, node, target), []).append(file)
        calls: Counter[str] = Counter()
        place_of_unit = f"{self._below_root(unit.folder.parent)}/{unit.step_directory}"
        nodes = self._graphs.get(unit.folder.parent, {})
        few_bits = self._few_bits.get(unit.folder.parent, {})
        counted_from = unit.step_directory - unit.step
        identities, calls_of_model = self._told
        tensors: dict[tuple[str, int], Tensor] = {}
        run = GraphRun(
            str(unit.folder),
            "",
            unit.graph,
            unit.step,
            counted_from,
            model_call=calls_of_model.get(place_of_unit),
            nodes=nodes,
            sources=self._sources.get(unit.folder.parent, {}),
            results=self._results.get(unit.folder.parent, {}),
            tensors=tensors,
        )
        operations = []
        for place, (time, node, target) in enumerate(sorted(found)):
            known = identities.get(f"{place_of_unit}/{node}-{target}", {})
            files = sorted(found[time, node, target])
            values = self._values(files, node, types, few_bits, known)
            launch = launches.get(node)
            described = nodes.get(node) if launch is None else None
            definition = {} if described is None else described.definition
            if described is not None:
                _note_values(node, described, values, tensors)
            operation = Operation(
                node,
                OpId((unit.graph or 0, place)),
                target,
                unit.step,
                calls[node],
                unit.rank,  # FX dumps do not name devices
                pid,
                unit.rank,
                location=run.folder,
                tensors=Lazy(partial(tensors_among, values)),
                params=definition,
                definition=definition,
                not_captured=Lazy(partial(others_among, values)),
                parts=() if launch is None else launch.source,
                timestamp=int(time),
                run=run,
                launch=launch,
            )
            calls[node] += 1
            operations.append(operation)
        yield from operations

    def _values(
        self,
        files: Sequence[_File],
        node: str,
        types: Places,
        few_bits: Mapping[tuple[str, str], InFewBits],
        identities: Mapping[str, Identity],
    ) -> tuple[Tensor, ...]:
        values = []
        before = Counter[bool]()  # elements of lists beyond the first
        for is_result, argument, element, path in files:
            before[is_result] += element > 0
            word, role = ("OUTPUT", "out") if is_result else ("INPUT", "in")
            index = argument + before[is_result]
            place = str(argument) if element < 0 else f"{argument}.{element}"
            stem = f"{word}.{place}"
            values.append(
                Tensor(
                    "out" if is_result else "in",
                    index,
                    path,
                    "",
                    self._source(types.get((node, stem)), few_bits.get((node, stem))),
                    "after" if is_result else "before",
                    stem,
                    argument=argument,
                    element=None if element < 0 else element,
                    own_name=None if place == str(index) else f"{role}tensor{place}",
                    identity=identities.get(stem),
                )
            )
        return tuple(values)


def _note_values(
    name: str,
    node: GraphNode,
    values: Sequence[Tensor],
    tensors: dict[tuple[str, int], Tensor],
) -> None:
    """Say which values of the graph the tensors of a node are."""
    read = dict(zip(node.labels, node.reads, strict=True))
    for tensor in values:
        place = tensor.stem.partition(".")[2].replace(".", "_")
        if tensor.role == "out":
            tensors[name, int(place.partition("_")[0])] = tensor
        elif place in read:
            tensors.setdefault(read[place], tensor)


def _rank(ledger: Ledger) -> int:
    options = ledger.header.get("options")
    rank = options.get("rank") if isinstance(options, dict) else None
    return rank if isinstance(rank, int) else 0


def _pid(ledger: Ledger) -> int:
    pid = ledger.header.get("pid")
    return pid if isinstance(pid, int) else 0


_File = tuple[bool, int, int, str]  # is a result, argument, element or -1, path


def _files(folder: Path) -> Iterator[tuple[str, re.Match[str]]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                match = FILE_NAME.fullmatch(entry.name)
                if match is not None:
                    yield entry.path, match
    except OSError as error:
        raise FormatError(folder, f"cannot be listed ({error.strerror})") from error
