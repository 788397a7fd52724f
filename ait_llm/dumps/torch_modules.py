"""Dumps of PyTorch modules and operators."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from ait_llm.core import OpId
from ait_llm.dumps.lazy import NOTHING
from ait_llm.dumps.ledger import WEIGHTS, Ledger, LedgerEntry, read_ledger
from ait_llm.dumps.losses import find_losses
from ait_llm.dumps.model import Dump, Loss, Operation, Process, TopologyFile, Traits
from ait_llm.dumps.operations import IN_GRAPH, NO_FACTS
from ait_llm.dumps.tensors import Identity, Phase, Role, Tensor
from ait_llm.dumps.torch_order import Positions, call_order, natural
from ait_llm.dumps.torch_place import (
    PROCESS_NAME,
    STEP_NAME,
    TorchPlace,
    device_number,
    parse_call,
    process_id,
)
from ait_llm.dumps.torch_records import SUFFIX, TorchFiles, TorchRow
from ait_llm.dumps.torch_tables import (
    Recorded,
    TreeModule,
    held,
    read_group,
    read_identity,
    read_module_tree,
    read_statistics,
)
from ait_llm.errors import FormatError
from ait_llm.formats.opening import open_regular

_MODE = "training"  # among the values of a call: of modules that depend on it


@dataclass(frozen=True, slots=True)
class _Folder:
    """The files of one call."""

    module: str
    call: int
    path: str
    stems: tuple[str, ...]


class TorchDump(Dump):
    """A dump of torch modules; see :class:`ait_llm.dumps.model.Dump`."""

    kind = "torch"
    traits = Traits(dotted=True, own_code=True, parameters=True)

    def __init__(self, place: TorchPlace) -> None:
        self._place = place
        self._folders: dict[tuple[str, int], list[_Folder]] = {}
        self._files = TorchFiles(place.root)
        self._saved: dict[str, Mapping[str, Tensor]] = {}
        self._own: dict[str, Mapping[str, Mapping[str, Tensor]]] = {}

    @property
    def root(self) -> Path:
        """The folder that holds everything."""
        return self._place.root

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """By device, then process id.

        Raises:
            FormatError: a ledger is damaged, or a folder cannot be listed.
        """
        return tuple(
            Process(
                device_number(name),
                process_id(name),
                self._steps(name),
                self._ledgers.get(name),
                tuple(self._losses(name)),
            )
            for name in self._process_names
        )

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps of all processes, ascending."""
        return tuple(sorted({step for name in self._process_names for step in self._steps(name)}))

    def operations(
        self, *, device: int | None = None, pid: int | None = None, step: int | None = None
    ) -> Iterator[Operation]:
        """Calls in the order in which they began, a module before its children.

        Raises:
            FormatError: a ledger, tree or table is damaged, or a folder cannot be listed.
        """
        for name in self._process_names:
            if device in (None, device_number(name)) and pid in (None, process_id(name)):
                yield from self._calls(name, step)

    def forget(self) -> None:
        """Let go of remembered folders; they are listed again when they are needed."""
        self._folders.clear()

    def weights(self, *, device: int | None = None, pid: int | None = None) -> Iterator[Tensor]:
        """Saved parameters and buffers; the stem is the dotted name.

        Raises:
            FormatError: a folder cannot be listed.
        """
        for name in self._process_names:
            folder = self._place.tensors / name / WEIGHTS
            if device not in (None, device_number(name)) or pid not in (None, process_id(name)):
                continue
            stems = set(_stems(folder)) if folder.is_dir() else set()
            known = self._identities_of_weights(name)
            rows = self._rows_of_weights(name)
            for index, stem in enumerate(sorted({*stems, *rows}, key=natural)):
                identity = read_identity(known[stem]) if stem in known else None
                source = self._source(rows.get(stem), exists=stem in stems)
                yield self._tensor("in", index, stem, str(folder), source, identity)

    def _identities_of_weights(self, process: str) -> dict[str, object]:
        """Where parameters lay that were not in order in memory of their own."""
        return _mapping(self._line_of_weights(process).get("identity"))

    def _rows_of_weights(self, process: str) -> Mapping[str, Recorded]:
        """Statistics of parameters and buffers, where the capture wrote such."""
        found: dict[str, Recorded] = {}
        units = self._units_of_weights(process)
        for step in self._steps(process) if units else ():
            for call, rows in self._table(process, step).items():
                found |= rows if call[0] in units else {}
        return found

    def _units_of_weights(self, process: str) -> frozenset[str]:
        """What the ledger calls parameters and buffers, of each model."""
        return frozenset(entry.op for entry in self._lines_of_weights(process))

    def _table(self, process: str, step: int) -> dict[tuple[str, int], dict[str, Recorded]]:
        return read_statistics(self._place.tensors / process / str(step) / "statistics.csv")

    def _line_of_weights(self, process: str) -> Mapping[str, Any]:
        lines = self._lines_of_weights(process)
        return lines[0].line if lines else {}

    def _lines_of_weights(self, process: str) -> tuple[LedgerEntry, ...]:
        ledger = self._ledgers.get(process)
        return () if ledger is None else ledger.weights

    @property
    def models(self) -> tuple[TopologyFile, ...]:
        """The module trees, one for each captured model."""
        return tuple(
            TopologyFile(process_id(name), path.stem.removeprefix("model_tree_"), path)
            for name in self._process_names
            for path in self._trees(name)
        )

    def _trees(self, process: str) -> list[Path]:
        found = (self._place.tensors / process).glob("model_tree*.json")
        return sorted(found, key=lambda path: natural(path.stem))

    @cached_property
    def _process_names(self) -> tuple[str, ...]:
        names = {
            entry.name
            for entry in _scan(self._place.tensors)
            if entry.is_dir(follow_symlinks=False) and PROCESS_NAME.fullmatch(entry.name)
        }
        for path in (self.root / "ledger").glob("*.jsonl"):
            if PROCESS_NAME.fullmatch(path.stem) and _is_torch_ledger(path):
                names.add(path.stem)
        if self._place.process is not None:
            names &= {self._place.process}
        return tuple(sorted(names, key=lambda name: (device_number(name), process_id(name))))

    @cached_property
    def _ledgers(self) -> dict[str, Ledger]:
        found = {}
        for name in self._process_names:
            path = self.root / "ledger" / f"{name}.jsonl"
            if path.exists():
                found[name] = read_ledger(path)
        return found

    def _steps(self, process: str) -> tuple[int, ...]:
        folder = self._place.tensors / process
        if not folder.is_dir():
            return ()
        steps = (int(entry.name) for entry in _scan(folder) if STEP_NAME.fullmatch(entry.name))
        return tuple(sorted(step for step in steps if self._place.step in (None, step)))

    def _step_folders(self, process: str, step: int) -> list[_Folder]:
        key = (process, step)
        if key not in self._folders:
            found = []
            folder = self._place.tensors / process / str(step)
            for entry in _scan(folder) if folder.is_dir() else ():
                if not entry.is_dir(follow_symlinks=False):
                    continue
                module, call = parse_call(entry.name)
                stems = sorted(filter(_is_value, _stems(entry.path)), key=natural)
                found.append(_Folder(module, call, entry.path, tuple(stems)))
            self._folders[key] = found
        return self._folders[key]

    def _calls(self, process: str, wanted: int | None) -> Iterator[Operation]:
        ledger = self._ledgers.get(process)
        lines: dict[tuple[int, str, int], LedgerEntry] = {}
        if ledger is not None:
            for entry in ledger.entries():
                if entry.type != WEIGHTS:
                    lines[entry.step, entry.op, _call_number(ledger, entry)] = entry
        modules = self._modules(process)
        weights = self._units_of_weights(process)
        # A call of which nothing was saved has a line in the ledger and no folder.
        steps = {*self._steps(process), *(at for at, _, _ in lines)}
        for step in sorted(steps):
            if wanted not in (None, step) or self._place.step not in (None, step):
                continue
            folders = {(f.module, f.call): f for f in self._step_folders(process, step)}
            table = self._table(process, step)
            calls = {*folders, *(call for call in table if call[0] not in weights)}
            calls |= {(op, call) for at, op, call in lines if at == step}
            ids = Positions(modules)
            for call in sorted(calls, key=lambda call: call_order(call, step, lines, modules)):
                if self._is_wanted(call[0]):
                    yield self._call(
                        process, step, call, ids, folders, table, lines.get((step, *call))
                    )

    def _call(
        self,
        process: str,
        step: int,
        call: tuple[str, int],
        ids: Positions,
        folders: dict[tuple[str, int], _Folder],
        table: dict[tuple[str, int], dict[str, Recorded]],
        entry: LedgerEntry | None,
    ) -> Operation:
        module, number = call
        folder = folders.get(call)
        name = module if number == 0 else f"{module}@{number}"
        path = folder.path if folder else str(self._place.tensors / process / str(step) / name)
        node = ids.of(module, entry)
        line = entry.line if entry is not None else {}
        values = _mapping(line.get("values"))
        missing = _mappings(line.get("not_captured"))
        parameters = self._parameters_of(process, module, line)
        for member in held(node.members):
            of_member = self._parameters_of(process, f"{module}.{member}", {})
            parameters = {**parameters, **of_member}
        if missing and not parameters:
            parameters, missing = self._of_given_modules(process, ids, missing)
        return Operation(
            name=module,
            op_id=node.op_id,
            type=entry.type if entry is not None else node.type,
            step=step,
            call=number,
            device=device_number(process),
            pid=process_id(process),
            is_graph=node.is_graph,
            location=path,
            tensors=self._tensors(
                path, folder.stems if folder else (), table.get(call, {}), line.get("identity")
            ),
            params={name: value for name, value in values.items() if name != _MODE},
            definition=_definition(node.definition, values),
            weights=_mapping(line.get("weights")),
            parameters=parameters,
            members=node.members,
            rounding=node.rounding,
            not_captured=missing,
            facts=IN_GRAPH if line.get("in_graph") is True else NO_FACTS,
            group=read_group(line),
        )

    def _of_given_modules(
        self, process: str, ids: Positions, missing: Sequence[Mapping[str, str]]
    ) -> tuple[Mapping[str, Tensor], tuple[Mapping[str, str], ...]]:
        """Parameters of modules that were handed to a call, and what else was not captured.

        An engine computes logits in a module that gets the table of its words as an argument.
        """
        found: dict[str, Tensor] = {}
        left = []
        for value in missing:
            path = ids.only_of(str(value.get("reason", "")).rpartition(".")[2])
            own = self._parameters_of(process, path, {}) if path else NOTHING
            found |= own
            left += [] if own else [value]
        return found, tuple(left)

    def _parameters_of(
        self, process: str, module: str, line: Mapping[str, Any]
    ) -> Mapping[str, Tensor]:
        """All of the model for an operator that reads some, those of its own for a module."""
        if line.get("weights"):
            return self._parameters(process)
        if process not in self._own:
            own: dict[str, dict[str, Tensor]] = {}
            every = self._parameters(process)
            for name, tensor in every.items():
                weight = next((each for each in _above(name) if each in every), name)
                own.setdefault(weight.rpartition(".")[0], {})[name] = tensor
            self._own[process] = own
        return self._own[process].get(module, NOTHING)

    def _parameters(self, process: str) -> Mapping[str, Tensor]:
        """Saved parameters and buffers of a process, listed once; tied ones by all their names."""
        if process not in self._saved:
            place = device_number(process), process_id(process)
            weights = self.weights(device=place[0], pid=place[1])
            saved = {tensor.stem: tensor for tensor in weights}
            tied = _mapping(self._line_of_weights(process).get("values"))
            saved |= {name: saved[other] for name, other in tied.items() if other in saved}
            self._saved[process] = saved
        return self._saved[process]

    def _tensors(
        self,
        path: str,
        stems: tuple[str, ...],
        recorded: Mapping[str, Recorded],
        identities: object,
    ) -> tuple[Tensor, ...]:
        known = _mapping(identities)
        tensors = []
        inputs = outputs = 0
        for stem in sorted({*stems, *recorded}, key=natural) if recorded else stems:
            row = recorded.get(stem)
            source = self._source(row, exists=stem in stems)
            identity = read_identity(known[stem]) if stem in known else None
            if stem.startswith("input"):
                tensors.append(self._tensor("in", inputs, stem, path, source, identity))
                inputs += 1
            else:
                tensors.append(self._tensor("out", outputs, stem, path, source, identity))
                outputs += 1
        return tuple(tensors)

    def _source(self, row: Recorded | None, *, exists: bool) -> TorchFiles:
        """Reads what was saved of a tensor: values, or a row of a table."""
        return self._files if row is None else TorchRow(self.root, row, exists=exists)

    @staticmethod
    def _tensor(
        role: Role,
        index: int,
        stem: str,
        folder: str,
        source: TorchFiles,
        identity: Identity | None = None,
    ) -> Tensor:
        """A tensor; inputs are captured before the module runs, outputs after it."""
        file_name, ir_name = _names(stem)
        phase: Phase = "before" if role == "in" else "after"
        return Tensor(
            role, index, file_name, folder, source, phase, stem, ir_name, identity=identity
        )

    def _modules(self, process: str) -> dict[str, TreeModule]:
        modules: dict[str, TreeModule] = {}
        for number, path in enumerate(self._trees(process)):
            for name, node in read_module_tree(path).items():
                place = OpId((number, *node.op_id.parts[1:]))
                modules[name] = node._replace(op_id=place)
        return modules

    def _losses(self, process: str) -> Iterator[Loss]:
        ledger = self._ledgers.get(process)
        if ledger is None or ledger.header.get("options", {}).get("data") is False:
            return iter(())
        present = {
            (f"{process}/{step}/{folder.path.rpartition('/')[2]}", "after"): len(folder.stems)
            for step in self._steps(process)
            for folder in self._step_folders(process, step)
        }

        def is_selected(entry: LedgerEntry) -> bool:
            return (
                entry.type != WEIGHTS
                and self._place.step in (None, entry.step)
                and self._is_wanted(entry.op)
            )

        return find_losses(ledger, present, is_selected)

    def _is_wanted(self, module: str) -> bool:
        only = self._place.module
        return only is None or module == only or module.startswith(f"{only}.")


def _stems(folder: Path | str) -> list[str]:
    return [
        sys.intern(entry.name.removesuffix(SUFFIX))  # most folders hold the same names
        for entry in _scan(folder)
        if entry.name.endswith(SUFFIX) and not entry.is_dir(follow_symlinks=False)
    ]


def _above(name: str) -> Iterator[str]:
    """Names of what a tensor may belong to: ``weight.absmax`` belongs to ``weight``."""
    for _ in range(2):
        name = name.rpartition(".")[0]
        yield name


@lru_cache(maxsize=4096)  # most folders hold the same names
def _names(stem: str) -> tuple[str, str | None]:
    """The file, and the argument or field: ``attention_mask``, ``0``; None for a sole output."""
    return f"{stem}{SUFFIX}", stem.partition("_")[2] or None


def _is_value(stem: str) -> bool:
    return stem.startswith(("input", "output"))


def _mapping(value: object) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {}


def _mappings(value: object) -> tuple[Mapping[str, str], ...]:
    entries = value if isinstance(value, list) else []
    return tuple(entry for entry in entries if isinstance(entry, dict))


def _definition(
    attributes: Mapping[str, object], passed: Mapping[str, object]
) -> Mapping[str, object]:
    """Attributes of a module and what it was called with, by the name or number of the argument.

    Whether it trained then is one of them.
    """
    given = {
        name.removeprefix("input_"): value
        for name, value in passed.items()
        if name.startswith("input_") or name == _MODE
    }
    return {**attributes, **given} if given else attributes


def _call_number(ledger: Ledger, entry: LedgerEntry) -> int:
    call = entry.line.get("call", 0)
    if type(call) is not int or call < 0:
        raise FormatError(ledger.path, f"the entry of {entry.op} has no count 'call'")
    return call


def _is_torch_ledger(path: Path) -> bool:
    """True if the first line is the header of a torch capture."""
    with open_regular(path) as file:
        first = file.readline(1 << 20)
    try:
        header = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(header, dict) and header.get("producer") == "torch"


def _scan(folder: Path | str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise FormatError(folder, f"cannot be listed ({error.strerror})") from error
