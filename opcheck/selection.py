"""Which operators of a dump are checked, and what the dump lacks of them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ait_llm.core import DType, OpId
from ait_llm.core.comparison import Problem
from ait_llm.dumps import IoRow, Loss, open_dump, read_io_table
from ait_llm.dumps.model import Operation
from ait_llm.errors import AitError, FormatError, UsageError
from ait_llm.formats.opening import open_regular
from ait_llm.opcheck.api.cases import with_forward
from ait_llm.opcheck.api.collective_calls import PREFIX, with_peers
from ait_llm.opcheck.aten_cases import is_aten
from ait_llm.opcheck.case import Case, NoCase
from ait_llm.opcheck.cases import case_of
from ait_llm.opcheck.custom_cases import with_written
from ait_llm.program.compiled import CompiledProcess
from ait_llm.program.contexts import with_contexts
from ait_llm.program.ge.graph import Unfused
from ait_llm.program.meetings import with_meetings
from ait_llm.program.passes import schedules_of
from ait_llm.topology.atb_json import read_topology
from ait_llm.topology.graph import Node

_LISTED = 8  # types without a golden operator
_STEP_TABLE = re.compile(r"operation_tensors_([0-9]{1,19})\.csv")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The filters of the user; empty ones select everything.

    Attributes:
        ids: these operations and everything below them.
        names: parts of operation types, in any case.
    """

    ids: tuple[OpId, ...] = ()
    names: tuple[str, ...] = ()

    def selects(self, op_id: OpId | None, type_name: str) -> bool:
        """True for an operation that both filters let through."""
        lower = type_name.lower()
        return (
            not self.ids or any(op_id is not None and op_id.is_within(i) for i in self.ids)
        ) and (not self.names or any(name.lower() in lower for name in self.names))


@dataclass(frozen=True, slots=True)
class Target:
    """One execution of one operator to check.

    Attributes:
        op_id, type, step, device, pid: which.
        operation: what was dumped; None where nothing was.
        params: its parameters.
        overwritten: inputs whose memory an output has, by the graph.
        is_graph: the graph says that it consists of operators, of which none was captured.
        missing: why it cannot be checked; empty where it can.
        soc: the chip that ran it; empty where the dump does not say.
    """

    op_id: str
    type: str
    step: int
    device: int
    pid: int
    operation: Operation | None
    params: Mapping[str, Any] = field(default_factory=dict)
    overwritten: frozenset[int] = frozenset()
    is_graph: bool = False
    missing: str = ""
    soc: str = ""


class Selection:
    """The operators of a dump that are to be checked.

    Args:
        path: the dump or any folder in it.
        table: the manual's operation table; None to find operators by the dump alone.
        wanted: filters.

    Attributes:
        unchecked: why operators are left out that have no result to check, and how many.

    Raises:
        FormatError: no dump, or its table cannot be read.
    """

    def __init__(self, path: Path, table: Path | None, wanted: Wanted) -> None:
        dump = open_dump(path)
        self.dump = dump
        self.unchecked: Counter[str] = Counter()
        self._table = table
        self._doubts: list[str] = []  # what is wrong with graphs
        self._nameless = 0  # rows of the table without an id
        self._wanted = wanted

    def problems(self) -> list[Problem]:
        """What the dump itself says is missing, as far as it may concern selected operators."""
        found = [Problem("mine", text) for text in self._doubts]
        for process in self.dump.processes:
            if process.state == "unfinished" or (process.ledger and process.ledger.incidents):
                found.append(Problem("mine", process.problem or "it did not finish its capture"))
        if self._rows is not None and self._nameless:
            found.append(Problem("mine", f"{self._nameless} rows of the table name no operation"))
        if self._table is not None and not _ends_with_a_line(self._table):
            found.append(Problem("mine", f"{self._table}: the last line was cut off"))
        return found

    def targets(self) -> list[Target]:
        """The operators in execution order, then those of which the dump has nothing.

        Raises:
            FormatError: the table or a ledger is damaged.
        """
        if not self.dump.traits.library:
            return self._other_targets()
        found: list[Target] = []
        seen: set[tuple[int, int, int, str]] = set()
        rows, used = self._rows, set()
        for operation in self.dump.operations():
            op_id = str(operation.op_id)
            seen.add((operation.device, operation.pid, operation.step, op_id))
            if operation.is_graph or not self._wanted.selects(operation.op_id, operation.type):
                continue
            row = None
            if rows is not None:
                key = (operation.step if self._table_step is not None else None, op_id)
                row = rows.get(key) if self._table_pid in (None, operation.pid) else None
                if row is None:
                    continue
                used.add(key)
            found.append(self._target(operation, row))
        found += self._lost(seen, rows)
        for key, row in (rows or {}).items():
            if key not in used and self._wanted.selects(row.op_id, row.type):
                missing = f"line {row.line} of the table names it; its tensors are not in the dump"
                place = (key[1], row.type, key[0] or 0, -1, -1)
                found.append(Target(*place, None, row.params, missing=missing))
        return found

    def _other_targets(self) -> list[Target]:
        """Operators and modules that have no place in a graph of the library, and lost ones."""
        if self.dump.traits.holds != "operations":
            raise UsageError(
                f"{self.dump.root}: these are tensors without operations; opcheck checks operators "
                "of the acceleration library, captured with ait llm dump --type tensor, operators "
                "and modules of torch, with --type torch-op or torch, and --weights, API calls, "
                "FX nodes, kernels of Inductor and operators of the graph engine"
            )
        if self._table is not None:
            raise UsageError(
                f"{self._table}: -c takes a table of operators of the acceleration library, and "
                f"{self.dump.root} has operators of torch; leave out -c"
            )
        leaves, containers = [], set()
        for one in self._operations():
            if one.is_graph:
                containers.add(one.name)
            if not one.is_graph or _is_whole(case_of(one, whole=True)):
                leaves.append(one)
        if any(is_aten(one.type) for one in leaves):  # modules consist of them
            containers |= {one.name for one in leaves if not is_aten(one.type)}
            leaves = with_written([one for one in leaves if is_aten(one.type)])
        if any(one.direction == "backward" for one in leaves):
            leaves = with_forward(leaves)
        if any(one.api_name.startswith(PREFIX) for one in leaves):
            leaves = with_peers(leaves)
        leaves = with_meetings(self.dump, leaves)
        found: list[Target] = []
        unknown: Counter[str] = Counter()
        for operation in leaves:
            if not self._wanted.selects(operation.op_id, operation.type):
                continue
            case = case_of(operation, whole=True)
            if isinstance(case, Case):
                found.append(_target_of(operation, case.params, case.missing))
            elif case.lost:
                found.append(_target_of(operation, operation.params, case.lost))
            elif case.reason:
                self.unchecked[case.reason] += 1
            else:
                unknown[operation.type] += 1
        if unknown:
            self.unchecked[f"have no golden operator: {_most_common(unknown)}"] = unknown.total()
        for process in self.dump.processes:
            for loss in process.losses:
                if loss.op not in containers and self._wanted.selects(None, loss.type):
                    place = (loss.op, loss.type, loss.step, process.device, process.pid)
                    found.append(Target(*place, None, missing=_lost_text(loss)))
        return found

    def _operations(self) -> Iterator[Operation]:
        """All of them; those of a graph engine with what they are of the graph before fusion."""
        if not self.dump.traits.fused:
            yield from self._with_contexts()
            return
        unfused = Unfused.of(self.dump)
        self._doubts += unfused.problems
        for process in self.dump.processes:
            compiled = CompiledProcess(self.dump, process, unfused)
            for run in compiled.passes:
                yield from run.operations
            self._doubts += compiled.problems

    def _with_contexts(self) -> Iterator[Operation]:
        """All of them; those that read caches of an engine with what they read."""
        processes = self.dump.processes
        schedules = [schedules_of(process) for process in processes]
        if not any(schedules):
            yield from self.dump.operations()
            return
        for process, known in zip(processes, schedules, strict=True):
            own = self.dump.operations(device=process.device, pid=process.pid)
            yield from with_contexts([*own], known)

    @cached_property
    def _rows(self) -> Mapping[tuple[int | None, str], IoRow] | None:
        """The rows of the table by step, where its name tells, and id; None without a table."""
        if self._table is None:
            return None
        rows = list(read_io_table(self._table))
        found = {(self._table_step, str(row.op_id)): row for row in rows if row.op_id is not None}
        if not found:
            raise FormatError(
                self._table,
                "names no operation",
                "Give operation_io_tensors/PID/operation_tensors_N.csv of the same run",
            )
        self._nameless = sum(row.op_id is None for row in rows)
        return found

    @cached_property
    def _table_step(self) -> int | None:
        match = _STEP_TABLE.fullmatch(self._table.name) if self._table is not None else None
        return int(match[1]) if match else None

    @cached_property
    def _table_pid(self) -> int | None:
        """The process that a table belongs to, by its folder, where the dump has that process."""
        name = self._table.parent.name if self._table is not None else ""
        pids = {str(process.pid): process.pid for process in self.dump.processes}
        return pids.get(name)

    def _target(self, operation: Operation, row: IoRow | None) -> Target:
        place = (
            str(operation.op_id),
            operation.type,
            operation.step,
            operation.device,
            operation.pid,
        )
        node = self._nodes.get((operation.pid, operation.op_id))
        try:
            params = dict(operation.params)
        except AitError as error:
            return Target(*place, operation, missing=str(error))
        if row is not None and row.params:
            params = dict(row.params)
        elif not params and node is not None and isinstance(node.param, dict):
            params = dict(node.param)
        overwritten: frozenset[int] = frozenset()
        if node is not None:
            names = enumerate(node.inputs)
            overwritten = frozenset(index for index, name in names if name in node.outputs)
        return Target(
            *place,
            operation,
            params,
            overwritten,
            node is not None and node.is_graph,
            self._missing(operation, row),
            self._soc(operation, row),
        )

    def _soc(self, operation: Operation, row: IoRow | None) -> str:
        """The chip by the table, else by the ledger."""
        if row is not None and row.soc:
            return row.soc
        return self._socs.get((operation.device, operation.pid), "")

    @cached_property
    def _socs(self) -> Mapping[tuple[int, int], str]:
        """The chip of each process whose ledger has it."""
        found = {}
        for process in self.dump.processes:
            soc = None if process.ledger is None else process.ledger.header.get("soc")
            if isinstance(soc, str):
                found[process.device, process.pid] = soc
        return found

    def _missing(self, operation: Operation, row: IoRow | None) -> str:
        key = (operation.pid, operation.step, str(operation.op_id))
        if (loss := self._losses.get(key)) is not None:
            return _lost_text(loss)
        if row is None:
            return ""
        if row.type != operation.type:
            return f"the table calls it {row.type}; it is of another run"
        for word, listed, there in (
            ("intensor", row.inputs, operation.inputs),
            ("outtensor", row.outputs, operation.outputs),
        ):
            present = {tensor.index for tensor in there}
            for index, tensor in enumerate(listed):
                exists = tensor.dtype is not DType.UNDEFINED and 0 not in tensor.shape
                if exists and index not in present:
                    shape = f"{tensor.dtype.label}{list(tensor.shape)}"
                    return f"{word}{index} ({shape} in the table) is not in the dump"
        return ""

    def _lost(
        self, seen: set[tuple[int, int, int, str]], rows: Mapping[Any, IoRow] | None
    ) -> Iterator[Target]:
        """Operators of which the ledger knows and the folders hold nothing."""
        if rows is not None:
            return  # the table says which operators count
        for process in self.dump.processes:
            ours = (process.device, process.pid)
            for loss in process.losses:
                op_id = _op_id(loss.op)
                if op_id is None or not self._wanted.selects(op_id, loss.type):
                    continue
                around = "" if op_id.parent is None else str(op_id.parent)
                is_kernel = (*ours, loss.step, around) in seen and not self._is_graph(
                    process.pid, op_id.parent
                )
                key = (*ours, loss.step, loss.op)
                if key in seen or is_kernel or self._is_graph(process.pid, op_id):
                    continue
                seen.add(key)
                place = (loss.op, loss.type, loss.step, *ours)
                yield Target(*place, None, missing=_lost_text(loss))

    def _is_graph(self, pid: int, op_id: OpId | None) -> bool:
        if op_id is None or (node := self._nodes.get((pid, op_id))) is None:
            return op_id is not None and (pid, op_id) in self._graphs
        return node.is_graph

    @cached_property
    def _graphs(self) -> frozenset[tuple[int, OpId]]:
        return frozenset((o.pid, o.op_id) for o in self.dump.operations() if o.is_graph)

    @cached_property
    def _losses(self) -> Mapping[tuple[int, int, str], Loss]:
        return {
            (process.pid, loss.step, loss.op): loss
            for process in self.dump.processes
            for loss in process.losses
        }

    @cached_property
    def _nodes(self) -> Mapping[tuple[int, OpId], Node]:
        """Nodes of the graphs that the run reported; a damaged graph is no evidence."""
        found: dict[tuple[int, OpId], Node] = {}
        for file in self.dump.layers:
            try:
                graph = read_topology(file.path)
            except FormatError:
                continue
            for node, _ in graph.root.walk():
                if node.op_id is not None:
                    found[file.pid, node.op_id] = node
        return found


def _is_whole(case: Case | NoCase) -> bool:
    """True if a module that consists of others is computed again as a whole, or counted as one."""
    return isinstance(case, Case) or bool(case.reason)


def _target_of(operation: Operation, params: Mapping[str, Any], missing: str) -> Target:
    return Target(
        op_id=f"{operation.name}@{operation.call}",
        type=operation.type,
        step=operation.step,
        device=operation.device,
        pid=operation.pid,
        operation=operation,
        params=params,
        missing=missing,
    )


def _most_common(types: Counter[str]) -> str:
    names = [name for name, _ in types.most_common(_LISTED)]
    more = len(types) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def _ends_with_a_line(path: Path) -> bool:
    with open_regular(path) as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _lost_text(loss: Loss) -> str:
    tensors = f"{loss.tensors} of its tensors" if loss.tensors else "some of its tensors"
    return f"{tensors} are missing ({loss.state}: {loss.reason}); dump again"


def _op_id(text: str) -> OpId | None:
    try:
        return OpId.parse(text)
    except UsageError:
        return None  # a kernel, or a name


def operation_ids(texts: Sequence[str]) -> tuple[OpId, ...]:
    """The ids that the user typed.

    Raises:
        UsageError: not an id.
    """
    return tuple(OpId.parse(text) for text in texts)
