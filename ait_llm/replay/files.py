"""Which file of the golden dump holds which value of a forward pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ait_llm.core import TensorDesc
from ait_llm.dumps.model import Phase, Role, Tensor
from ait_llm.replay.golden_dump import ProcessWriter
from ait_llm.replay.program import Key, Program, Unit
from ait_llm.replay.values import Origin, Value

if TYPE_CHECKING:
    import torch

_LOST = "its values were not computed"


class Files:
    """Writes the tensors of one pass where the source has them, and those it has not as well.

    Args:
        writer: of the process.
        program: the pass.
    """

    def __init__(self, writer: ProcessWriter, program: Program) -> None:
        self._writer = writer
        self._program = program
        self._homes: dict[tuple[Key, Origin], tuple[Path, TensorDesc]] = {}
        self._saved: Counter[tuple[str, Phase]] = Counter()
        self._lost: Counter[str] = Counter()
        self._reasons: dict[str, str] = {}

    def inputs(self, unit: Unit, given: Sequence[Value | None]) -> None:
        """Write what an operator gets, in the state before it runs where that was captured.

        Raises:
            FormatError: a file cannot be written.
        """
        self._writer.params(unit.step, unit.path, unit.operation, unit.params)
        phase: Phase = "before" if unit.inputs_are_old else "after"
        for index, value in enumerate(given):
            own, key = unit.captured("in", index), unit.inputs[index]
            changed = phase == "after" and unit.after[index] != key  # see outputs()
            if value is None:
                if own is not None:  # an absent optional tensor is dumped without dims
                    self._share(unit, "in", index, phase, own)
            elif key is not None and not changed:
                self._put(unit, "in", index, phase, key, value)

    def outputs(
        self,
        unit: Unit,
        outputs: Sequence[torch.Tensor],
        updated: Mapping[int, tuple[Key, torch.Tensor]],
    ) -> None:
        """Write what an operator makes, inputs that it overwrites included.

        Raises:
            FormatError: a file cannot be written.
        """
        for index, tensor in enumerate(outputs):
            key = unit.outputs[index] if index < len(unit.outputs) else None
            if key is not None:
                self._put(unit, "out", index, "after", key, Value(tensor, "golden"))
        for index, (key, tensor) in updated.items():
            if key == unit.inputs[index]:  # it has no other name
                self._homes.pop((key, "golden"), None)
            self._put(unit, "in", index, "after", key, Value(tensor, "golden"))

    def skipped(self, unit: Unit, outputs: int, reason: str) -> None:
        """Note that an operator has no golden outputs, and why."""
        self._lost[unit.path] += max(1, outputs)
        self._reasons[unit.path] = reason

    def finish(self) -> None:
        """Write the tensors of graphs and the ledger of the pass.

        Raises:
            FormatError: a file cannot be written.
        """
        for unit in self._program.units:
            if unit.is_graph:
                self._graph(unit)
            for phase in ("before", "after"):
                saved = self._saved[unit.path, phase]
                lost = self._lost[unit.path] if phase == "after" else 0
                if saved or lost:
                    self._writer.entry(
                        unit.step,
                        unit.path,
                        phase,
                        str(unit.op_id),
                        unit.type,
                        saved,
                        lost=lost,
                        reason=self._reasons.get(unit.path, _LOST),
                    )

    def _graph(self, unit: Unit) -> None:
        phase: Phase = "before" if unit.inputs_are_old else "after"
        for index, key in enumerate(unit.inputs if phase == "before" else unit.after):
            if key is not None:
                self._graph_tensor(unit, "in", index, phase, key)
        for index, key in enumerate(unit.outputs):
            if key is not None and not self._graph_tensor(unit, "out", index, "after", key):
                self._lost[unit.path] += 1

    def _graph_tensor(self, unit: Unit, role: Role, index: int, phase: Phase, key: Key) -> bool:
        """Write a tensor of a graph from what its members had; True if there was something."""
        own = unit.captured(role, index)
        outside = key in self._program.kinds
        origins: tuple[Origin, ...] = ("dump", "golden") if role == "in" else ("golden",)
        if role == "out" and outside:
            origins = ("golden", "dump")  # it hands on what it got
        for origin in origins:
            home = self._homes.get((key, origin))
            if home is not None:
                desc = _desc_like(own, home[1])
                self._writer.refer(self._place(unit, role, index, phase, own), *home, desc)
                return True
        if role == "in" and own is not None and outside:
            self._share(unit, role, index, phase, own)
            self._homes[key, "dump"] = (self._place_of(unit, role, index, phase, own), _desc(own))
            return True
        return False

    def _put(
        self, unit: Unit, role: Role, index: int, phase: Phase, key: Key, value: Value
    ) -> None:
        own = unit.captured(role, index)
        home = self._homes.get((key, value.origin))
        place = self._place(unit, role, index, phase, own)
        if home is not None:
            self._writer.refer(place, *home, _desc_like(own, home[1]))
            return
        source = value.source
        if source is not None and (own is None or source.shape == own.shape):
            self._writer.share(place, source)
            desc = _desc(source)
        else:
            desc = self._writer.write(place, value.tensor, own)
        self._homes[key, value.origin] = (place, desc)

    def _share(self, unit: Unit, role: Role, index: int, phase: Phase, own: Tensor) -> None:
        self._writer.share(self._place(unit, role, index, phase, own), own)

    def _place(self, unit: Unit, role: Role, index: int, phase: Phase, own: Tensor | None) -> Path:
        self._saved[unit.path, phase] += 1
        return self._place_of(unit, role, index, phase, own)

    def _place_of(
        self, unit: Unit, role: Role, index: int, phase: Phase, own: Tensor | None
    ) -> Path:
        name = own.path.name if own is not None else f"{role}tensor{index}.bin"
        return self._writer.place(unit.step, unit.path, phase, name)


def _desc(tensor: Tensor) -> TensorDesc:
    return TensorDesc(tensor.dtype, tensor.shape, tensor.format)


def _desc_like(own: Tensor | None, stored: TensorDesc) -> TensorDesc:
    """A stored value as the source dump describes it where it is read."""
    if own is None:
        return stored
    desc = _desc(own)
    same = desc.dtype is stored.dtype and desc.elements == stored.elements
    return desc if same else stored
