"""Records the modules of a model while groups of requests run, as the passes that they belong to.

Each group calls each module; what all of them kept of a call is laid out for every pass when the
last group has left it, and written at once. So no more is in memory than the calls that are open.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ait_llm.dump.golden.groups import Group
from ait_llm.dump.golden.rows import Kept, keep, laid_out
from ait_llm.dump.pytorch.hooks import class_name, module_paths
from ait_llm.dump.pytorch.model_capture import own_layer
from ait_llm.dump.pytorch.recorder import Recorder
from ait_llm.dump.pytorch.selection import ModuleSelection
from ait_llm.dump.pytorch.values import leaves
from ait_llm.program.row_plan import PassRows

ROOT = "root"
_CALLS = 1_000_000
"""More calls than one pass has, so that those of a pass stand together in the ledger's order."""


@dataclass(slots=True)
class _Value:
    """A value of a call: what each group kept of it, or a number, text or nothing."""

    kept: dict[int, Kept] = field(default_factory=dict)
    plain: Any = None
    is_plain: bool = False


@dataclass(slots=True)
class _Call:
    """One call of a module by all groups.

    Attributes:
        path, kind: the module.
        number: how often the module was called before.
        order: its place among all calls.
        values: by name, inputs first.
        left: groups that have left it.
    """

    path: str
    kind: str
    number: int
    order: int
    layer: int | None
    values: dict[str, _Value] = field(default_factory=dict)
    left: int = 0


class Calls:
    """What groups compute, written as passes.

    Args:
        model: the model.
        groups: all that will run.
        passes: what is written.
        recorder: writes it.
        selection: modules that are recorded, and the model itself.
    """

    def __init__(
        self,
        model: nn.Module,
        groups: Sequence[Group],
        passes: Sequence[PassRows],
        recorder: Recorder,
        selection: ModuleSelection,
    ) -> None:
        self._groups = groups
        self._passes = passes
        self._recorder = recorder
        self._open: dict[tuple[str, int], _Call] = {}
        self._counts: list[dict[str, int]] = [{} for _ in groups]
        self._running: list[list[_Call | None]] = [[] for _ in groups]
        self._order = 0
        self._here = threading.local()
        self.aliases: dict[str, list[str]] = {}
        self._hook(model, selection)

    def of_group(self, number: int) -> None:
        """Say which group runs on this thread."""
        self._here.number = number

    @property
    def group(self) -> Group:
        """The group that runs on this thread."""
        return self._groups[self._now]

    @property
    def _now(self) -> int:
        return int(self._here.number)

    def _hook(self, model: nn.Module, selection: ModuleSelection) -> None:
        places: dict[int, str] = {}
        for path, module in module_paths(model, ROOT):
            if path != ROOT and not selection.covers(path, module):
                continue
            if id(module) in places:
                self.aliases.setdefault(places[id(module)], []).append(path)
                continue
            places[id(module)] = path
            self._watch(path, module)

    def _watch(self, path: str, module: nn.Module) -> None:
        kind, layer = class_name(module), own_layer(path, module)

        def before(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            call = self._enter(path, kind, layer)
            values = [(f"input_{index}", value) for index, value in enumerate(args)]
            self._keep(call, [*values, *((f"input_{key}", kwargs[key]) for key in kwargs)])

        def after(_module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
            call = self._running[self._now].pop()
            if call is None:
                return
            self._keep(call, [("output", output)])
            call.left += 1
            if call.left == len(self._groups):
                self._finish(call)

        module.register_forward_pre_hook(before, with_kwargs=True)
        module.register_forward_hook(after, with_kwargs=True)

    def _enter(self, path: str, kind: str, layer: int | None) -> _Call:
        counts = self._counts[self._now]
        number = counts.get(path, 0)
        counts[path] = number + 1
        call = self._open.get((path, number))
        if call is None:
            call = _Call(path, kind, number, self._order, layer)
            self._open[path, number] = call
            self._order += 1
        self._running[self._now].append(call)
        return call

    def _keep(self, call: _Call, values: Sequence[tuple[str, Any]]) -> None:
        group = self.group
        for stem, value in values:
            for leaf in leaves(value, stem, layer=call.layer):
                if leaf.reason:
                    continue
                found = call.values.setdefault(leaf.name, _Value())
                if leaf.tensor is None:
                    found.plain, found.is_plain = leaf.value, True
                elif (kept := keep(leaf.tensor.detach(), group)) is not None:
                    found.kept[self._now] = kept

    def finish(self) -> None:
        """Write calls that not every group made, as those of experts that had no tokens."""
        for call in sorted(self._open.values(), key=lambda each: each.order):
            self._finish(call)

    def _finish(self, call: _Call) -> None:
        del self._open[call.path, call.number]
        for number, wanted in enumerate(self._passes):
            found = {
                name: laid_out(value.kept, self._groups, wanted, number)
                for name, value in call.values.items()
                if value.kept
            }
            if found and all(rows is None for rows in found.values()):
                continue  # no request of the pass came here
            unit = self._recorder.unit(
                call.path, call.kind, wanted.step, call=call.number, layer=call.layer
            )
            unit.order = number * _CALLS + call.order
            for name, value in call.values.items():
                rows = found.get(name)
                if rows is not None:
                    self._recorder.values(unit, rows, name)
                elif value.is_plain:
                    unit.values[unit.unique(name)] = value.plain
            if call.path == ROOT and len(wanted.shape) == 2:
                self._recorder.values(unit, _mask(wanted), "input_attention_mask")
            self._recorder.finish(unit)


def _mask(wanted: PassRows) -> Tensor:
    """1 where a column of a padded batch so far is a token."""
    return torch.tensor(wanted.keys, dtype=torch.int64)
