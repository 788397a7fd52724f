"""From the values of one call to files, statistics and a line in the ledger."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import is_fake

from ait_llm.dump.pytorch.ledger import Ledger
from ait_llm.dump.pytorch.options import CaptureOptions
from ait_llm.dump.pytorch.snapshot import BufferPool, SavedOnce, snapshot
from ait_llm.dump.pytorch.statistics import StatisticsTable, tensor_description, tensor_statistics
from ait_llm.dump.pytorch.values import Leaf, leaves
from ait_llm.dump.pytorch.writer import BackgroundWriter, Outcome, WriteJob


# Type name of the unit that holds a model's parameters and buffers.
WEIGHTS = "weights"


@dataclass(slots=True)
class Unit:
    """One call of a module or operator while it is being captured.

    Attributes:
        path: dotted path, such as ``root.model.layers.0.mlp``.
        type_name: class or operator name.
        step: generation step.
        generation: number of the generation that the step belongs to.
        call: how often this path was called in the step before.
        order: position among all calls of the process, counted at entry.
        folder: where its files go.
        layer: layer whose part of a cache object belongs to this call, if it has one.
    """

    path: str
    type_name: str
    step: int
    generation: int
    call: int
    order: int
    folder: Path
    layer: int | None = None
    outcome: Outcome = field(default_factory=Outcome)
    values: dict[str, Any] = field(default_factory=dict)
    missed: list[dict[str, str]] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    weights: dict[str, dict[str, Any]] = field(default_factory=dict)
    described: int = 0
    linked: int = 0


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
        self.writer = BackgroundWriter(options.queue_bytes)
        self._pool = BufferPool()
        self._saved = SavedOnce()
        self._table: StatisticsTable | None = None
        if options.statistics or options.descriptions:
            self._table = StatisticsTable(folder)
        self._order = itertools.count()
        self._weights: dict[int, str] = {}
        self._lock = threading.Lock()

    def know_weights(self, names: dict[int, str]) -> None:
        """Storages (by address) of parameters and buffers: named in the ledger, not saved."""
        self._weights |= names

    def forget_saved(self) -> None:
        """Save every tensor anew: at a new step, whose folder stands on its own, for one."""
        self._saved.forget()

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
        name = path if call == 0 else f"{path}@{call}"
        folder = self.folder / str(step) / name
        return Unit(path, type_name, step, generation, call, next(self._order), folder, layer)

    def values(self, unit: Unit, value: Any, name: str) -> None:
        """Record everything inside ``value`` under the file stem ``name``."""
        for leaf in leaves(value, name, layer=unit.layer):
            if leaf.tensor is not None:
                self._tensor(unit, leaf.name, leaf.tensor)
            elif leaf.reason:
                unit.missed.append({"name": leaf.name, "reason": leaf.reason})
            else:
                unit.values[leaf.name] = _plain(leaf)

    def finish(self, unit: Unit, failure: str = "") -> None:
        """Write the ledger line of a call once its files are written.

        Args:
            unit: the call.
            failure: why the call did not complete, if it did not.
        """
        self.writer.call(lambda: self.ledger.operation(_line(unit, failure)))

    def close(self, end: str) -> None:
        """Finish writing, close the tables and seal the ledger."""
        self.writer.close()
        if self._table is not None:
            self._table.close()
        self.ledger.seal(end)

    def _tensor(self, unit: Unit, name: str, tensor: Tensor) -> None:
        path = unit.folder / f"{name}.pth"
        weight = self._weights.get(_storage_address(tensor)) if self._weights else None
        if weight is not None and unit.type_name != WEIGHTS:
            shape, stride = list(tensor.shape), list(tensor.stride())
            unit.weights[name] = {"name": weight, "shape": shape, "stride": stride}
            return
        if self._table is not None:
            self._statistics(unit, name, tensor)
        if not self.options.data:
            return
        earlier = self._saved.find(tensor)
        if earlier is not None:
            unit.linked += 1
            self.writer.put(WriteJob(path, None, unit.outcome, link_from=earlier))
            return
        copy = snapshot(tensor, self._pool)
        if copy.note:
            unit.notes[name] = copy.note
        if copy.tensor is None:
            unit.missed.append({"name": name, "reason": copy.reason})
            return
        self._saved.remember(tensor, path)
        size = copy.tensor.numel() * copy.tensor.element_size() if copy.plain else 0
        self.writer.put(
            WriteJob(
                path,
                copy.tensor,
                unit.outcome,
                ready=copy.ready,
                plain=copy.plain,
                release=copy.release,
                size=size,
            )
        )

    def _statistics(self, unit: Unit, name: str, tensor: Tensor) -> None:
        assert self._table is not None
        pending: Callable[[], list[str]] = (
            tensor_statistics(tensor) if self.options.statistics else tensor_description(tensor)
        )
        unit.described += 1
        table = self._table
        row = [unit.path, unit.type_name, str(unit.call), name]
        step = unit.step
        self.writer.call(lambda: table.add(step, [*row, *pending()]))


def _storage_address(tensor: Tensor) -> int:
    """Address of a tensor's storage; 0 for tensors that have none."""
    if tensor.layout is not torch.strided or tensor.device.type == "meta" or is_fake(tensor):
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


def _line(unit: Unit, failure: str) -> dict[str, Any]:
    """The ledger line of a finished call."""
    outcome = unit.outcome
    lost = outcome.lost
    if failure or lost:
        state = "failed"
    elif outcome.tensors:
        state = "saved"
    elif unit.described:
        state = "described"
    elif unit.missed:
        state = "dropped"
    else:
        state = "empty"
    line: dict[str, Any] = {
        "op": unit.path,
        "type": unit.type_name,
        "path": f"{unit.folder.parent.parent.name}/{unit.folder.parent.name}/{unit.folder.name}",
        "step": unit.step,
        "generation": unit.generation,
        "call": unit.call,
        "order": unit.order,
        "state": state,
        "tensors": outcome.tensors,
        "bytes": outcome.bytes,
    }
    if unit.linked:
        line["linked"] = unit.linked
    if failure or lost:
        line |= {"errno": outcome.errno, "reason": failure or outcome.reason, "lost": lost}
    elif state == "dropped":
        line["reason"] = unit.missed[0]["reason"]
    if unit.weights:
        line["weights"] = unit.weights
    if unit.values:
        line["values"] = unit.values
    if unit.missed:
        line["not_captured"] = unit.missed
    if unit.notes:
        line["notes"] = unit.notes
    return line
