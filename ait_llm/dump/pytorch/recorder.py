"""From the values of one call to files, statistics and a line in the ledger."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import is_fake

from ait_llm.core.notices import notice
from ait_llm.dump.pytorch.budget import Budget
from ait_llm.dump.pytorch.identity import identity_of, mark_of, ordinary_identity
from ait_llm.dump.pytorch.layouts import dense_parts, is_ordinary, is_plain
from ait_llm.dump.pytorch.ledger import Ledger
from ait_llm.dump.pytorch.options import CaptureOptions
from ait_llm.dump.pytorch.seen import SeenTensors
from ait_llm.dump.pytorch.snapshot import BufferPool, Found, SavedOnce, snapshot
from ait_llm.dump.pytorch.statistics import (
    Cells,
    KnownStatistics,
    NotKept,
    OrdinaryCells,
    Reduced,
    csv_cell,
    ordinary_numbers,
    share_model_threads,
    tensor_description,
    tensor_statistics,
)
from ait_llm.dump.pytorch.statistics_table import StatisticsTable
from ait_llm.dump.pytorch.survey import SizeSurvey, storage_identity
from ait_llm.dump.pytorch.tensor_jobs import WriteJob
from ait_llm.dump.pytorch.unit import WEIGHTS, Unit, op_line
from ait_llm.dump.pytorch.values import Leaf, leaves
from ait_llm.dump.pytorch.writer import BackgroundWriter

_TENSOR_OR_NONE = frozenset({Tensor, type(None)})
# What stands for itself in a folder name; the reader undoes the escapes.
_ESCAPES = str.maketrans({"%": "%25", "/": "%2F", "@": "%40", "\0": "%00", "\n": "%0A"})


class Recorder:
    """Records calls into one ``torch_tensors/{device}_{PID}`` folder.

    Args:
        folder: that folder.
        ledger: the process's ledger.
        options: settings of the capture.
    """

    def __init__(self, folder: Path, ledger: Ledger, options: CaptureOptions) -> None:
        self.folder = folder
        self.options = options
        self.ledger = ledger
        self.budget: Budget | None = None
        if options.budget is not None:
            self.budget = Budget(options.budget, options.channel)
        self.writer = BackgroundWriter(options.queue_bytes, self._write_lines)
        self._told_budget = False
        self._folder = str(folder)
        # Folders in the ledger are relative to the one above.
        self._above = len(str(folder.parent)) + 1
        self._rows: deque[tuple[Unit, str, str | Callable[[], str]]] = deque()
        self._ended: deque[tuple[Unit, str]] = deque()
        self._pool = BufferPool(options.queue_bytes)
        self._saved = SavedOnce(options.queue_bytes // 4)
        self._known = KnownStatistics()
        self._seen = SeenTensors()
        self.survey = SizeSurvey(folder) if options.survey else None
        self._address = storage_identity if options.survey else _storage_address
        self._only_statistics = options.statistics and not (options.data or options.survey)
        self._table: StatisticsTable | None = None
        if options.statistics or options.descriptions:
            self._table = StatisticsTable(folder)
            share_model_threads()
        self._order = itertools.count()
        self._weights: dict[int, tuple[str, weakref.ref[Tensor]]] = {}
        self._complained = False

    def know_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Tell the names of parameters; where one is an input, the ledger names it."""
        self._known.forget()  # nothing that is known is a parameter
        self._seen.forget()
        for name, tensor in weights.items():
            address = self._address(tensor)
            if address:
                self._weights[address] = (name, weakref.ref(tensor))

    def forget_saved(self, *, by_operator: bool = False) -> None:
        """Save every tensor anew: at a new step, whose folder stands on its own, for one."""
        if self.survey is not None:
            self.survey.forget(by_operator=by_operator)
        self._saved.forget()
        self._known.forget()
        self._seen.forget()

    def begin_step(self, step: int) -> bool:
        """Account for a new step that was asked for; False if nothing more may be written."""
        self.forget_saved()
        if self.budget is None or self.budget.look():
            return True
        if not self._told_budget:
            self._told_budget = True
            self.writer.call(self._tell_budget, self.budget, step)
        return False

    def _tell_budget(self, budget: Budget, step: int) -> None:
        self._write_lines()
        self.ledger.note(
            f"the budget of {budget.limit} bytes is spent; nothing is captured from step {step} on",
            budget=budget.limit,
            written=budget.written,
            step=step,
        )
        self.ledger.pause("budget")

    def pause(self, end: str) -> None:
        """Write everything up to here, and a seal that more may follow."""
        self.writer.drain()
        if self.budget is not None:
            self.budget.look()
        self.ledger.pause(end)

    def unit(
        self,
        path: str,
        type_name: str,
        step: int,
        *,
        generation: int = 0,
        call: int = 0,
        layer: int | None = None,
    ) -> Unit:
        """Begin the record of one call; calls after the first of a step have a folder each."""
        folder = f"{self._folder}/{step}/{_escaped(path)}"
        if call:
            folder = f"{folder}@{call}"
        return Unit(path, type_name, step, generation, call, next(self._order), folder, layer)

    def values(self, unit: Unit, value: Any, name: str) -> None:
        """Record everything inside ``value`` under the file stem ``name``."""
        if type(value) is Tensor:
            self._try_tensor(unit, unit.unique(name), value)
            return
        if value is None:
            unit.values[unit.unique(name)] = None
            return
        if type(value) is tuple and _TENSOR_OR_NONE.issuperset(map(type, value)):
            for place, each in enumerate(value):
                part = unit.unique(f"{name}_{place}")
                if each is None:
                    unit.values[part] = None
                else:
                    self._try_tensor(unit, part, each)
            return
        try:
            for leaf in leaves(value, name, layer=unit.layer):
                leaf_name = unit.unique(leaf.name)
                if leaf.tensor is not None:
                    self._try_tensor(unit, leaf_name, leaf.tensor)
                elif leaf.reason:
                    unit.miss(leaf_name, leaf.reason)
                else:
                    unit.values[leaf_name] = _plain(leaf)
        except Exception as error:  # noqa: BLE001 - foreign containers; the program must go on
            unit.miss(name, f"{type(value).__qualname__}: {_first_line(error)}")

    def tapped(self, unit: Unit, value: object, name: str) -> None:
        """Record what a compiled graph reported: its memory is used again behind torch's back.

        So who a tensor is cannot be told by where it lies, and nothing of it is known from before.

        Args:
            unit: the call.
            value: a tensor, what stands for one, or a constant.
            name: file stem.
        """
        name = unit.unique(name)
        if isinstance(value, Tensor):
            self._try_tensor(unit, name, value, is_new=True)
        elif isinstance(value, Reduced):
            self._row(unit, name, value)
        elif isinstance(value, NotKept):
            unit.miss(name, value.reason, tensor=True)
        else:
            unit.values[name] = value

    def finish(self, unit: Unit, failure: str = "") -> None:
        """Write the ledger line of a call once its files are written.

        Args:
            unit: the call.
            failure: why the call did not complete, if it did not.
        """
        if not self._only_statistics:
            self.writer.call(self._report, unit, failure)
            return
        self._ended.append((unit, failure))  # no file of it is waited for
        if len(self._ended) == 1:
            self.writer.soon()

    def close(self, end: str) -> None:
        """Finish writing, close the tables and seal the ledger."""
        self.writer.close()
        self._write_lines()  # rows of calls that never ended, where no thread was started
        if self.survey is not None:
            self.survey.close()
        if self._table is not None:
            self._table.close()
        if self.ledger.was_removed() and not self._complained:
            notice(f"{self.folder} was removed while capturing; what it held is lost")
        self.ledger.seal(end)

    def _report(self, unit: Unit, failure: str) -> None:
        """Have a line for a call whose tensors are written; on the writer's thread."""
        self._ended.append((unit, failure))

    def _write_lines(self) -> None:
        """Write the rows and lines of all calls that ended; on the writer's thread.

        One write for many of them: between two system calls of this thread the model's has to wait
        for the interpreter.
        """
        reported: list[tuple[Unit, str]] = []
        while self._ended:  # others may be added meanwhile
            reported.append(self._ended.popleft())
        error: OSError | None = None
        if self._table is not None:
            self._add_rows(self._table)
            try:
                self._table.flush()
            except OSError as failed:
                error = failed
        if not reported:
            return
        for unit, _ in reported:
            if error is not None and unit.described:
                unit.outcome.fail(error)
        self.ledger.calls([op_line(unit, failure, self._above) for unit, failure in reported])
        for unit, _ in reported:
            if unit.outcome.lost and not self._complained:
                self._complained = True
                if self.ledger.was_removed():
                    self.writer.forget_folders()
                notice(
                    f"a tensor could not be written to {unit.folder}: {unit.outcome.reason}; "
                    f"{self.ledger.path} lists all that is missing"
                )

    def _try_tensor(self, unit: Unit, name: str, tensor: Tensor, *, is_new: bool = False) -> None:
        try:
            if is_new or not self._only_statistics or not self._brief(unit, name, tensor):
                self._tensor(unit, name, tensor, is_new=is_new)
        except Exception as error:  # noqa: BLE001 - exotic tensors; the program must go on
            kind = f"{type(tensor).__qualname__} of {tensor.dtype}"
            unit.miss(name, f"{kind}: {_first_line(error)}", tensor=True)

    def _tensor(self, unit: Unit, name: str, tensor: Tensor, *, is_new: bool) -> None:
        is_known = self._only_statistics and not is_new
        if is_known and (cells := self._known.find(tensor)) is not None:
            self._row(unit, name, cells)
            self._identify(unit, name, tensor, cells)
            return
        if (
            self._weights
            and unit.type_name != WEIGHTS
            and (weight := self._weight(tensor)) is not None
        ):
            unit.weights[name] = {
                "name": weight,
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "shape": list(tensor.shape),
                "stride": list(tensor.stride()),
                "offset": tensor.storage_offset(),
            }
            if is_plain(tensor) and (known := identity_of(tensor)) is not None:
                unit.weights[name] |= {"storage": known[0], "version": known[1]}
            return
        if is_plain(tensor):
            self._dense(unit, name, tensor, None if is_new else tensor)
            return
        parts, note = dense_parts(tensor)
        if note:
            unit.notes[name] = note
        for part in parts:
            part_name = unit.unique(f"{name}{part.suffix}") if part.suffix else name
            self._dense(unit, part_name, part.tensor, None)

    def _brief(self, unit: Unit, name: str, tensor: Tensor) -> bool:
        """Record the statistics of a known or ordinary tensor in few steps; False for others."""
        if unit.type_name == WEIGHTS:
            return False
        seen = self._seen.find(tensor)
        if seen is not None:
            unit.described += 1
            self._rows.append((unit, name, seen.cells))
            unit.identities[name] = seen.identity
            return True
        if type(tensor) is not Tensor or not is_ordinary(tensor):
            return False
        storage = tensor.untyped_storage()
        if storage.data_ptr() in self._weights:
            return False
        numbers = ordinary_numbers(tensor)
        if numbers is None:
            return False
        cells = OrdinaryCells(tensor.dtype, tensor.shape, numbers)
        unit.described += 1
        self._rows.append((unit, name, cells))
        mark = mark_of(storage)
        identity = ordinary_identity(tensor, mark, numbers)
        if identity is not None:
            unit.identities[name] = identity
            self._seen.remember(tensor, mark, numbers, cells, identity)
        return True

    def _dense(self, unit: Unit, name: str, tensor: Tensor, original: Tensor | None) -> None:
        """Record a dense tensor.

        Args:
            unit: the call.
            name: file stem.
            tensor: what to record.
            original: the program's own tensor object, if that is what is recorded.
        """
        if self.survey is not None:
            self.survey.tensor(unit.order, name, tensor, original=original is not None)
            if original is not None:  # no element is looked at: as if each were what it was
                self._identify(unit, name, original, unchanged=True)
            return
        cells = None
        if self._table is not None:
            cells = self._statistics(unit, name, tensor, is_new=original is None)
        earlier = Found()
        if original is not None:
            if self.options.data:
                earlier = self._saved.find(original)
            self._identify(unit, name, original, cells, earlier.unchanged)
        if not self.options.data:
            return
        path = f"{unit.folder}/{name}.pth"
        if earlier.path:
            unit.linked += 1
            self.writer.put(WriteJob(path, None, unit.outcome, link_from=earlier.path))
            return
        if self.budget is not None and not self.budget.take(tensor.nbytes):
            unit.miss(name, f"the budget of {self.budget.limit} bytes is spent", tensor=True)
            return
        copy = snapshot(tensor, self._pool)
        if copy.tensor is None:
            unit.miss(name, copy.reason, tensor=True)
            return
        release = copy.release
        if original is not None:
            release = self._saved.remember(original, path, copy)
        self.writer.put(
            WriteJob(
                path,
                copy.tensor,
                unit.outcome,
                ready=copy.ready,
                release=release,
                size=copy.tensor.nbytes,
            )
        )

    def _weight(self, tensor: Tensor) -> str | None:
        """Name of the parameter whose memory ``tensor`` shows, if it does."""
        known = self._weights.get(self._address(tensor))
        if known is None:
            return None
        name, reference = known
        parameter = reference()
        # The memory of a parameter that was replaced can belong to anything now.
        if parameter is None or self._address(parameter) != self._address(tensor):
            return None
        return name

    def _identify(
        self,
        unit: Unit,
        name: str,
        tensor: Tensor,
        cells: object = None,
        unchanged: bool | None = None,
    ) -> None:
        """Note which value the program's own tensor is, where that can be told."""
        if unit.type_name == WEIGHTS and tensor.is_contiguous() and not tensor.storage_offset():
            return  # the file has the layout of the memory
        numbers = cells.numbers if isinstance(cells, Cells) else None
        identity = identity_of(tensor, unchanged=unchanged, numbers=numbers)
        if identity is not None:
            unit.identities[name] = identity
            if isinstance(cells, Cells) and self._only_statistics and unit.type_name != WEIGHTS:
                mark = mark_of(tensor.untyped_storage())
                self._seen.remember(tensor, mark, cells.numbers, cells, identity)

    def _statistics(
        self, unit: Unit, name: str, tensor: Tensor, *, is_new: bool
    ) -> str | Callable[[], str]:
        # Weights are not known, so that one which is an input is named as what it is.
        known = self._known if unit.type_name != WEIGHTS and not is_new else None
        cells = (
            tensor_statistics(tensor, known)
            if self.options.statistics
            else tensor_description(tensor)
        )
        self._row(unit, name, cells)
        return cells

    def _row(self, unit: Unit, name: str, cells: str | Callable[[], str]) -> None:
        unit.described += 1
        self._rows.append((unit, name, cells))

    def _add_rows(self, table: StatisticsTable) -> None:
        """Add the rows to the table; on the writer's thread, which may wait for a device."""
        rows = self._rows
        while rows:  # all of the calls that ended are there; others may be added meanwhile
            unit, name, cells = rows.popleft()
            if not unit.row:
                unit.row = _row_head(unit.path, unit.type_name, unit.call)
            try:
                text = cells if isinstance(cells, str) else cells()
                table.add(unit.step, f"{unit.row}{csv_cell(name)},{text}")
            except (OSError, RuntimeError) as error:
                unit.outcome.fail(error)


@functools.lru_cache(maxsize=1 << 12)
def _row_head(path: str, type_name: str, call: int) -> str:
    """The first cells of the rows of a call."""
    return f"{csv_cell(path)},{csv_cell(type_name)},{call},"


@functools.lru_cache(maxsize=1 << 16)
def _escaped(path: str) -> str:
    return path.translate(_ESCAPES)


def _storage_address(tensor: Tensor) -> int:
    """Address of a tensor's storage; 0 for tensors that have none."""
    if tensor.layout is not torch.strided or tensor.is_meta:
        return 0
    if type(tensor) not in (Tensor, torch.nn.Parameter) and is_fake(tensor):
        return 0
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:  # wrapper subclasses have no storage of their own
        return 0


def _plain(leaf: Leaf) -> Any:
    """A value as JSON keeps it: texts are cut, non-finite numbers become text."""
    value = leaf.value
    if isinstance(value, str):
        return value[:200]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
