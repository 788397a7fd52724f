"""What a capture of a PyTorch program writes for given options, worked out from a survey."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from ait_llm.core import StepRange
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.dump.pytorch.module_paths import layer_number, matches
from ait_llm.plan.amounts import DEFAULT_BLOCK, Amount, Estimate
from ait_llm.plan.steps import count_of, weights_of
from ait_llm.plan.torch_survey import (
    CallSize,
    Forget,
    TensorEvent,
    TorchProcessSizes,
    csv_cell,
    line_bytes,
)

# Averages over captures of a transformers Llama; see docs/plan.md.
_NUMBERS_BYTES = 80.0
# Fields of a ledger's line that speak of single values.
_BY_VALUE = ("identity", "values", "weights", "not_captured", "notes")
_NO_NUMBERS = len("N/A,N/A,N/A,N/A,N/A,N/A")
_STATISTICS_HEAD = len("module,type,call,tensor,dtype,shape,max,min,mean,l2norm,nan,inf\r\n")


class TorchSizes:
    """Estimates for any options that the survey covers.

    Args:
        processes: what is known of the program.
        block: bytes that the file system gives out at a time.
    """

    def __init__(self, processes: Sequence[TorchProcessSizes], block: int = DEFAULT_BLOCK) -> None:
        self.processes = processes
        self._block = block

    def estimate(self, settings: TorchSettings) -> Estimate:
        """What ``ait llm dump`` would write with these options."""
        estimate = Estimate()
        by_step: dict[int, float] = defaultdict(float)
        for process in self.processes:
            _Capture(process, settings, self._block, estimate, by_step).run(
                self._seen[process.name]
            )
        estimate.steps = self.steps(settings.steps)
        estimate.largest = max(by_step.values(), default=0.0)
        return estimate

    def steps(self, wanted: StepRange) -> int:
        """How many of the wanted steps the program has."""
        counts = (count_of(each.steps, self._seen[each.name], wanted) for each in self.processes)
        return max(counts, default=0)

    @cached_property
    def paths(self) -> Mapping[str, str]:
        """Types of modules by path."""
        return {
            call.path: call.type
            for process in self.processes
            for call in process.calls.values()
            if not call.is_operator and not call.is_weights
        }

    @cached_property
    def _seen(self) -> Mapping[str, set[int]]:
        return {
            process.name: {call.step for call in process.calls.values() if not call.is_weights}
            for process in self.processes
        }


def covers(settings: TorchSettings, path: str, type_name: str) -> bool:
    """True if a module is selected by ``--module-name``, ``--layers`` and ``-opname``."""
    if settings.module_names and not any(matches(path, name) for name in settings.module_names):
        return False
    prefixes = tuple(prefix.lower() for prefix in settings.type_prefixes)
    if prefixes and not type_name.lower().startswith(prefixes):
        return False
    number = layer_number(path) if settings.layers else 0
    return number is not None and (
        not settings.layers or any(first <= number <= last for first, last in settings.layers)
    )


class _Capture:
    """Goes through what a capture would come by, and does with sizes what it does with values."""

    def __init__(
        self,
        process: TorchProcessSizes,
        settings: TorchSettings,
        block: int,
        estimate: Estimate,
        by_step: dict[int, float],
    ) -> None:
        self._process = process
        self._settings = settings
        self._block = block
        self._estimate = estimate
        self._by_step = by_step
        # What was saved: by slot its value and bytes, the oldest first; see SavedOnce.
        self._saved: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self._kept = 0
        self._limit = settings.queue_bytes // 4
        # Tensors, bytes and links of each call, and its rows of statistics.
        self._outcomes: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        self._tables: dict[int, Amount] = {}

    def run(self, seen: Iterable[int]) -> None:
        """Add the files of the process."""
        weights = weights_of(seen, self._process.steps, self._settings.steps)
        wanted = {
            order: weight
            for order, call in self._process.calls.items()
            if (weight := self._weight(call, weights))
        }
        for event in self._process.events:
            if isinstance(event, Forget):
                if event.always or self._settings.operators:
                    self._saved.clear()
                    self._kept = 0
            elif event.call in wanted and self._has_side(event):
                self._tensor(event, self._process.calls[event.call], wanted[event.call])
        self._lines(wanted)
        for name, part in (("model_tree", self._process.trees), ("ledger", [self._process.frame])):
            for size in part:
                label = "topology" if name == "model_tree" else name
                self._estimate.part(label).add(size, self._block)

    def _weight(self, call: CallSize, weights: Mapping[int, float]) -> float:
        """How often a call counts; 0 if it is not captured."""
        settings = self._settings
        if call.is_weights:
            return 1.0 if settings.weights else 0.0
        weight = weights.get(call.step, 0.0)
        if not weight:
            return 0.0
        if not call.is_operator:
            return weight if settings.modules and self._covers(call.path) else 0.0
        if not settings.operators:
            return 0.0
        # An operator belongs to every module that is running when it is called.
        above = call.path.removesuffix(f".{call.type}").split(".")
        paths = (".".join(above[: end + 1]) for end in range(len(above)))
        return weight if any(self._covers(path) for path in paths) else 0.0

    @cached_property
    def _types(self) -> Mapping[str, str]:
        return {
            call.path: call.type for call in self._process.calls.values() if not call.is_operator
        }

    @cached_property
    def _covered(self) -> dict[str, bool]:
        return {}

    def _covers(self, path: str) -> bool:
        if path not in self._covered:
            known = self._types.get(path)
            self._covered[path] = known is not None and covers(self._settings, path, known)
        return self._covered[path]

    def _has_side(self, event: TensorEvent) -> bool:
        if event.name.startswith("input"):
            return self._settings.inputs
        return self._settings.outputs or self._process.calls[event.call].is_weights

    def _tensor(self, event: TensorEvent, call: CallSize, weight: float) -> None:
        settings, estimate = self._settings, self._estimate
        outcome = self._outcomes[event.call]
        estimate.tensors += weight
        if settings.statistics or settings.descriptions:
            outcome[3] += 1
            row: float = len(
                f"{csv_cell(call.path)},{csv_cell(call.type)},{call.call},"
                f"{csv_cell(event.name)},{event.fields},\r\n"
            )
            row += _NUMBERS_BYTES if settings.statistics else _NO_NUMBERS
            self._grow("statistics", row, weight, call)
            if call.step not in self._tables:
                self._tables[call.step] = Amount()
                estimate.part("statistics").add(_STATISTICS_HEAD, self._block, weight)
        if not settings.data:
            return
        outcome[0] += 1
        if self._is_linked(event):
            outcome[2] += 1
            return
        outcome[1] += event.file_bytes
        part = "weights" if call.is_weights else "tensors"
        estimate.part(part).add(event.file_bytes, self._block, weight)
        self._by_step[call.step] += event.file_bytes

    def _grow(self, part: str, size: float, weight: float, call: CallSize) -> None:
        self._estimate.part(part).grow(size, weight)
        self._by_step[call.step] += size

    def _is_linked(self, event: TensorEvent) -> bool:
        """True if the tensor is unchanged since it was saved; else it is saved now."""
        if event.slot is None or event.value is None:
            return False
        known = self._saved.pop(event.slot, None)
        if known is not None and known[0] == event.value:
            self._saved[event.slot] = known
            return True
        self._kept -= 0 if known is None else known[1]
        size = event.data if self._process.on_host else 0
        self._saved[event.slot] = (event.value, size)
        self._kept += size
        while self._kept > self._limit:
            self._kept -= self._saved.popitem(last=False)[1][1]
        return False

    def _lines(self, wanted: Mapping[int, float]) -> None:
        """The lines of the ledger, and the folders."""
        folders: dict[str, float] = {}
        for order, weight in wanted.items():
            call = self._process.calls[order]
            tensors, size, linked, rows = self._outcomes[order]
            state = "saved" if tensors else "described" if rows else "empty"
            line = {**self._line(call), "state": state, "tensors": tensors, "bytes": size}
            if linked:
                line["linked"] = linked
            self._grow("ledger", line_bytes(line), weight, call)
            self._estimate.operations += 0 if call.is_weights else weight
            if tensors:
                folders[call.folder] = weight
        for weight in folders.values():
            self._estimate.part("folders").room += weight * self._block

    def _line(self, call: CallSize) -> dict[str, Any]:
        """The line of a call without what is said of a side that is not captured."""
        line = dict(call.line)
        sides = (("input", self._settings.inputs), ("output", self._settings.outputs))
        for name in _BY_VALUE:
            if name not in line:
                continue
            for side, wanted in sides:
                if not wanted and not call.is_weights:
                    line[name] = _without(line[name], side)
            if not line[name]:
                del line[name]
        return line


def _without(values: Any, side: str) -> Any:
    """Entries of a ledger's line that belong to the other side."""
    if isinstance(values, dict):
        return {name: value for name, value in values.items() if not name.startswith(side)}
    return [each for each in values if not str(each.get("name")).startswith(side)]
