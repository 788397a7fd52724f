"""What a capture on ATB writes for given options, worked out from a survey."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property

from ait_llm.core import StepRange
from ait_llm.plan.amounts import DEFAULT_BLOCK, Amount, Estimate
from ait_llm.plan.atb_survey import TABLES, AtbSurvey, TensorSize, UnitSize
from ait_llm.plan.steps import count_of, weights_of
from ait_llm.probe import ProbeConfig, SaveTime, TensorPart

Process = tuple[int, int]
_TYPE_OF_TABLE = {TABLES[0]: "op", TABLES[1]: "kernel"}
# Bytes of the header line of a table of statistics.
_STATISTICS_HEAD = len(
    "op,type,phase,tensor,dtype,format,shape,bytes,max,min,mean,l2norm,nan,inf,path\n"
)


class Selection:
    """What ``-ids``, ``-child``, ``-opname`` and ``-device`` let the probe save."""

    def __init__(self, config: ProbeConfig) -> None:
        self._device = config.device
        self._ids = frozenset(each.parts for each in config.operation_ids)
        self._lengths = sorted({len(parts) for parts in self._ids})
        self._with_children = config.with_children
        self._names = tuple(config.operation_names)

    def has(self, unit: UnitSize) -> bool:
        """True for an operation or kernel that is saved."""
        if self._device is not None and unit.process[0] != self._device:
            return False
        if not self._ids and not self._names:
            return True
        ids = unit.ids
        if self._with_children:
            if any(ids[:length] in self._ids for length in self._lengths):
                return True
        elif ids in self._ids:
            return True
        return bool(self._names) and unit.type.lower().startswith(self._names)


class AtbSizes:
    """Estimates for any options that the survey covers.

    Args:
        survey: what is known of the program.
        block: bytes that the file system gives out at a time.
    """

    def __init__(self, survey: AtbSurvey, block: int = DEFAULT_BLOCK) -> None:
        self.survey = survey
        self._block = block

    def estimate(self, config: ProbeConfig) -> Estimate:
        """What ``ait llm dump`` would write with these options."""
        estimate = Estimate()
        weights = self._weights(config.steps)
        by_step: dict[int, float] = defaultdict(float)
        if config.captures_tensors:
            self._tensors(config, weights, estimate, by_step)
        self._tables(config, estimate, by_step)
        if "cpu_profiling" in config.types:
            for size in self.survey.profiling:
                estimate.part("times").add(size, self._block)
        self._topology(config, estimate)
        for process in self.survey.processes:
            if config.device in (None, process[0]):
                estimate.part("ledger").add(self.survey.header, self._block)
        estimate.steps = self.steps(config.steps)
        estimate.largest = max(by_step.values(), default=0.0)
        return estimate

    def steps(self, wanted: StepRange) -> int:
        """How many of the wanted steps the program has."""
        counts = [
            count_of(self.survey.steps_of(process), self._seen_by_process[process], wanted)
            for process in self.survey.processes
        ]
        return max(counts, default=0)

    @cached_property
    def _seen(self) -> Mapping[tuple[Process, int], set[int]]:
        """Steps that were looked at, by process and top-level operation."""
        seen: dict[tuple[Process, int], set[int]] = defaultdict(set)
        for unit in self.survey.units:
            seen[unit.process, unit.ids[0]].add(unit.step)
        return seen

    @cached_property
    def _seen_by_process(self) -> Mapping[Process, set[int]]:
        seen: dict[Process, set[int]] = defaultdict(set)
        for (process, _), steps in self._seen.items():
            seen[process] |= steps
        for _, pid, step in self.survey.tables:
            for process in self.survey.processes:
                if process[1] == pid:
                    seen[process].add(step)
        return seen

    def _weights(self, wanted: StepRange) -> dict[tuple[Process, int], dict[int, float]]:
        return {
            (process, top): weights_of(steps, self.survey.count(process, top), wanted)
            for (process, top), steps in self._seen.items()
        }

    def _tensors(
        self,
        config: ProbeConfig,
        weights: Mapping[tuple[Process, int], Mapping[int, float]],
        estimate: Estimate,
        by_step: dict[int, float],
    ) -> None:
        with_statistics = "stats" in config.types
        with_data = "tensor" in config.types and not config.description_only
        phases = {"before"} if config.save_time is SaveTime.BEFORE else {"after"}
        phases |= {"before", "after"} if config.save_time is SaveTime.BOTH else set()
        roles = {"in"} if config.tensor_part is TensorPart.INPUTS else {"out"}
        roles |= {"in", "out"} if config.tensor_part is TensorPart.BOTH else set()
        extra, numbers = self.survey.statistics if with_statistics else (0.0, 0.0)
        selection = Selection(config)
        files = {name: Amount() for name in ("tensors", "statistics", "parameters", "tiling")}
        ledger = Amount()
        tables: dict[tuple[Process, int], float] = {}
        folders: dict[str, float] = {}
        for unit, above in zip(self.survey.units, self._folders, strict=True):
            weight = weights[unit.process, unit.ids[0]][unit.step]
            if not weight or not selection.has(unit):
                continue
            size = 0.0
            if unit.is_kernel:
                estimate.kernels += weight
            else:
                estimate.operations += weight
            if unit.params is not None:
                files["parameters"].add(unit.params, self._block, weight)
                size += unit.params
            if unit.tiling is not None and config.tiling:
                files["tiling"].add(unit.tiling, self._block, weight)
                size += unit.tiling
            for folder in above:
                folders[folder] = weight
            for phase in phases:
                count, data = 0, 0
                for tensor in unit.tensors:
                    if tensor.phase != phase or tensor.role not in roles:
                        continue
                    count += 1
                    length = tensor.file_bytes if with_data else tensor.description
                    data += tensor.data if with_data else 0
                    length += round(extra) if tensor.data else 0
                    files["tensors"].add(length, self._block, weight)
                    size += length
                    if with_statistics:
                        row = _row_bytes(unit, tensor) + numbers
                        files["statistics"].grow(row, weight)
                        size += row
                        tables[unit.process, unit.step] = weight
                estimate.tensors += weight * count
                if count:
                    folders[f"{unit.path}/{phase}"] = weight
                    line = _ledger_line(unit, phase, count, data)
                    ledger.grow(line, weight)
                    size += line
            by_step[unit.step] += size
        for weight in tables.values():
            files["statistics"].add(_STATISTICS_HEAD, self._block, weight)
        for name, amount in files.items():
            if amount.files:
                estimate.part(name).include(amount)
        estimate.part("ledger").include(ledger)
        for weight in folders.values():  # each folder takes a block
            estimate.part("folders").room += weight * self._block

    @cached_property
    def _folders(self) -> list[tuple[str, ...]]:
        """The folders of each unit, from the process's down."""
        found = []
        for unit in self.survey.units:
            parts = unit.path.split("/")
            found.append(tuple("/".join(parts[: end + 1]) for end in range(len(parts))))
        return found

    def _tables(self, config: ProbeConfig, estimate: Estimate, by_step: dict[int, float]) -> None:
        text = len(str(config.output))
        for process in self.survey.processes:
            if config.device not in (None, process[0]):
                continue
            seen = self._seen_by_process[process]
            weights = weights_of(seen, self.survey.steps_of(process), config.steps)
            for (folder, pid, step), size in self.survey.tables.items():
                if pid != process[1] or _TYPE_OF_TABLE[folder] not in config.types:
                    continue
                size += self.survey.paths[folder, pid, step] * text
                estimate.part("tables").add(size, self._block, weights.get(step, 0.0))
                by_step[step] += size

    def _topology(self, config: ProbeConfig, estimate: Estimate) -> None:
        for name, sizes in self.survey.topology.items():
            folder, _, suffix = name.partition(".")
            wanted = "model" in config.types or (folder == "layer" and "layer" in config.types)
            if wanted and (suffix != "onnx" or "onnx" in config.types):
                for size in sizes:
                    estimate.part("topology").add(size, self._block)


def _ledger_line(unit: UnitSize, phase: str, tensors: int, data: int) -> int:
    op = "_".join(map(str, unit.ids))
    state = "saved" if data else "described"
    return len(
        f'{{"kind":"op","op":"{op}","type":"{unit.name}","path":"{unit.path}","phase":"{phase}",'
        f'"step":{unit.step},"state":"{state}","tensors":{tensors},"bytes":{data}}}\n'
    )


def _row_bytes(unit: UnitSize, tensor: TensorSize) -> int:
    """Bytes of a tensor's row in a table of statistics, but for its numbers."""
    op = "_".join(map(str, unit.ids))
    return len(
        f"{op},{unit.name},{tensor.phase},{tensor.name},{tensor.fields},{tensor.data},,"
        f"tensors/{unit.path}/{tensor.phase}/{tensor.name}.bin\n"
    )
