"""What a program on ATB would leave: one run with descriptions of tensors and no data."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ait_llm.dumps import Dump, open_dump
from ait_llm.dumps.atb_tree import PARAMS_FILE
from ait_llm.dumps.operations import Operation
from ait_llm.dumps.tensors import Phase, Role, Tensor
from ait_llm.errors import FormatError

TABLES = ("operation_io_tensors", "kernel_io_tensors")
"""Folders of tables, one file for each step."""
_PROFILED = "operation_statistic_"


@dataclass(frozen=True, slots=True)
class TensorSize:
    """A tensor file.

    Attributes:
        role: input or output.
        phase: before or after the operation.
        name: file name without ``.bin``.
        description: bytes of a file that describes it, without data and statistics.
        data: bytes of its elements.
        fields: text of its type, format and shape in a table of statistics.
        statistics: bytes of the attributes that statistics added to the description.
    """

    role: Role
    phase: Phase
    name: str
    description: int
    data: int
    fields: str
    statistics: int = 0

    @property
    def file_bytes(self) -> int:
        """Bytes of the file with data."""
        if not self.data:
            return self.description
        length = f"{self.data}"
        return self.description + len(length) - 1 + len(f"$Object.data=0,{length}\n") + self.data


@dataclass(frozen=True, slots=True)
class UnitSize:
    """An operation or kernel at one step.

    Attributes:
        process: device and process id.
        step: execution count.
        ids: position in the topology; a kernel has that of its operation and its own number.
        type: of the operation, also where this is a kernel of it.
        name: of the operation or kernel.
        path: folder below ``tensors``.
        is_kernel: it is a kernel.
        is_graph: it consists of other operations.
        params: bytes of ``op_param.json``, None if there is none.
        tiling: bytes of tiling data, None if there are none.
    """

    process: tuple[int, int]
    step: int
    ids: tuple[int, ...]
    type: str
    name: str
    path: str
    is_kernel: bool = False
    is_graph: bool = False
    params: int | None = None
    tiling: int | None = None
    tensors: tuple[TensorSize, ...] = ()


@dataclass(slots=True)
class AtbSurvey:
    """What is known of a program.

    Attributes:
        units: operations and kernels at the steps that were looked at.
        counts: executions by process and number of the top-level operation.
        tables: bytes of the tables by folder, process and step, with the output's path taken out.
        paths: how often that path stands in them.
        profiling: sizes of the files of times.
        topology: sizes of files of graphs, by folder.
        header: bytes of the header and the seal of a ledger.
        statistics: average bytes of the numbers of a tensor: as attributes and in a table's row.
    """

    units: list[UnitSize] = field(default_factory=list)
    counts: dict[tuple[tuple[int, int], int], int] = field(default_factory=dict)
    tables: dict[tuple[str, int, int], int] = field(default_factory=dict)
    paths: dict[tuple[str, int, int], int] = field(default_factory=dict)
    profiling: list[int] = field(default_factory=list)
    topology: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    header: int = 1400
    # Averages over captures of the demo models; see docs/plan.md.
    statistics: tuple[float, float] = (90.6, 61.6)

    @property
    def processes(self) -> list[tuple[int, int]]:
        """Device and process id of each process."""
        return sorted({process for process, _ in self.counts} | {u.process for u in self.units})

    def count(self, process: tuple[int, int], top: int) -> int | None:
        """Executions of a top-level operation; None if nothing tells."""
        return self.counts.get((process, top))

    def steps_of(self, process: tuple[int, int]) -> int | None:
        """Executions of the operation of a process that ran most often; None if nothing tells."""
        return max(
            (count for (each, _), count in self.counts.items() if each == process), default=None
        )


def read_atb_survey(folder: Path) -> AtbSurvey:
    """Read what a run with descriptions, and with times, left in ``folder/ait_dump``.

    Raises:
        FormatError: nothing was captured, or it is damaged.
    """
    dump = open_dump(folder)
    if not dump.traits.library:
        raise FormatError(folder, "is not a dump of ATB")
    survey = AtbSurvey()
    for operation in dump.operations():
        survey.units += _units(operation, dump.root)
    _read_counts(survey, dump)
    _read_tables(survey, dump.root, str(folder))
    for name in ("layer", "model"):
        for path in sorted((dump.root / name).rglob("*")):
            if path.is_file():
                survey.topology[f"{name}{path.suffix}"].append(path.stat().st_size)
    survey.header = _ledger_frame(dump.root)
    survey.statistics = _statistics_of(survey, dump.root) or survey.statistics
    return survey


def _units(operation: Operation, root: Path) -> Iterator[UnitSize]:
    start = len(str(root / "tensors")) + 1
    process = (operation.device, operation.pid)
    params = operation.path / PARAMS_FILE
    yield UnitSize(
        process,
        operation.step,
        operation.op_id.parts,
        operation.type,
        operation.type,
        operation.location[start:],
        is_graph=operation.is_graph,
        params=params.stat().st_size if params.is_file() else None,
        tensors=tuple(map(_tensor_size, operation.tensors)),
    )
    for kernel in operation.kernels:
        tiling = kernel.tiling_path
        yield UnitSize(
            process,
            operation.step,
            (*operation.op_id.parts, kernel.index),
            operation.type,
            kernel.name,
            kernel.location[start:],
            is_kernel=True,
            tiling=None if tiling is None else tiling.stat().st_size,
            tensors=tuple(map(_tensor_size, kernel.tensors)),
        )


def _tensor_size(tensor: Tensor) -> TensorSize:
    desc = tensor.header.desc
    elements = 1
    for size in desc.shape:
        elements *= size
    return tensor_size(
        tensor.role,
        tensor.phase,
        tensor.path.stem,
        (desc.dtype.code, desc.format, desc.shape),
        desc.dtype.byte_count(elements),
        actual=tensor.path.stat().st_size,
    )


def tensor_size(
    role: Role,
    phase: Phase,
    name: str,
    kind: tuple[int, int, tuple[int, ...]],
    data: int,
    actual: int | None = None,
) -> TensorSize:
    """The sizes of a tensor.

    Args:
        role, phase, name: as in :class:`TensorSize`.
        kind: ATB's codes of type and format, and the shape.
        data: bytes of its elements.
        actual: bytes of the file that describes it, if there is one.
    """
    dtype, layout, shape = kind
    dims = ",".join(map(str, shape))
    text = (
        f"$Version=1.0\n$Object.Count=0\n$Object.Length=0\nformat={layout}\ndtype={dtype}\n"
        f"dims={dims}\n$End=1\n"
    )
    fields = f"{dtype},{layout},{'x'.join(map(str, shape))}"
    extra = 0 if actual is None else max(0, actual - len(text))
    return TensorSize(role, phase, name, len(text), data, fields, extra)


def _read_counts(survey: AtbSurvey, dump: Dump) -> None:
    """How often each top-level operation ran: once for each table of times that names it."""
    folders: dict[str, tuple[int, int]] = {}
    for process in dump.processes:
        seal = None if process.ledger is None else process.ledger.seal
        if seal is not None and (name := seal.totals.get("cpu_profiling")):
            folders[str(name)] = (process.device, process.pid)
    for path in sorted((dump.root / "cpu_profiling").glob("*/*")):
        survey.profiling.append(path.stat().st_size)
        owner = folders.get(path.parent.name)
        if owner is None or path.suffix != ".txt" or not path.stem.startswith(_PROFILED):
            continue
        executed = int(path.stem.removeprefix(_PROFILED))
        for top in _top_level(path):
            key = (owner, top)
            survey.counts[key] = max(survey.counts.get(key, 0), executed)


def _top_level(path: Path) -> set[int]:
    """Numbers of the top-level operations that a table of times names, ``Decoder_layer_8:``."""
    numbers = set()
    for line in path.read_text("utf-8", "replace").splitlines():
        name, colon, rest = line.partition(":")
        number = name.strip("[]").rpartition("_")[2]
        if colon and not rest.strip() and number.isdecimal():
            numbers.add(int(number))
    return numbers


def _read_tables(survey: AtbSurvey, root: Path, output: str) -> None:
    for folder in TABLES:
        for path in (root / folder).glob("*/*.csv"):
            step = path.stem.rpartition("_")[2]
            if not (path.parent.name.isdecimal() and step.isdecimal()):
                continue
            key = (folder, int(path.parent.name), int(step))
            times = path.read_bytes().count(os.fsencode(output))
            survey.paths[key] = times
            survey.tables[key] = path.stat().st_size - times * len(os.fsencode(output))


def _ledger_frame(root: Path) -> int:
    """Average bytes of the lines of ledgers that belong to no operation."""
    sizes = []
    for path in (root / "ledger").glob("*.jsonl"):
        with path.open("rb") as file:
            sizes.append(sum(len(line) for line in file if b'"kind":"op"' not in line[:14]))
    return round(sum(sizes) / len(sizes)) if sizes else 0


def _statistics_of(survey: AtbSurvey, root: Path) -> tuple[float, float] | None:
    """Average bytes of a tensor's statistics; None if the run had none."""
    in_files = [t.statistics for unit in survey.units for t in unit.tensors if t.statistics]
    rows = [
        sum(map(len, line.rsplit(b",", 7)[1:7])) + 5
        for path in (root / "statistics").glob("*/*.csv")
        for line in path.read_bytes().splitlines()[1:]
    ]
    if not in_files or not rows:
        return None
    return sum(in_files) / len(in_files), sum(rows) / len(rows)
