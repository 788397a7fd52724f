"""What a capture brought back, and every reason why it is not complete."""

from __future__ import annotations

import shlex
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ait_llm.dump.ledger import ProcessRecord, device_order
from ait_llm.dumps.ledger import killed_by
from ait_llm.probe import HostLibrary, ProbeConfig

# A program may run for hours with thousands of processes; nobody reads more than this.
_NAMED = 5
_LEDGER_BYTES = 65536  # what the probe reserves for a ledger before it writes tensors


@dataclass(frozen=True, slots=True)
class ProcessSummary:
    """One traced process. ``end`` is None if its ledger is not sealed."""

    devices: tuple[str, ...]
    pid: int
    sealed: bool
    end: str | None
    running: bool
    steps: tuple[int, ...]
    operations: int
    kernels: int
    tensors: int
    files: int
    bytes: int
    failed: int
    dropped: int
    lost_tensors: int
    last_operation: str | None


@dataclass(frozen=True, slots=True)
class DumpSummary:
    """Result of one capture.

    Attributes:
        exit_code: how the program ended: its code, or 128 plus its signal.
        dump_dir: the directory written into.
        processes: those of which a ledger was found, by device and process id.
        topologies: layer and model files of this run.
        tables: csv and profiling files of this run.
        onnx: models converted from the topologies.
        statistics: tables of ``--type stats``.
        files: files that a probe without a ledger wrote (``--probe-lib``), else 0.
        problems: one sentence for each thing that was asked for and is not there.
        notes: sentences worth knowing that do not make the capture incomplete.
    """

    exit_code: int
    dump_dir: Path
    processes: tuple[ProcessSummary, ...] = ()
    topologies: tuple[Path, ...] = ()
    tables: tuple[Path, ...] = ()
    onnx: tuple[Path, ...] = ()
    statistics: tuple[Path, ...] = ()
    files: int = 0
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """True if everything that was asked for lies on disk."""
        return not self.problems

    @property
    def steps(self) -> tuple[int, ...]:
        """Execute counts (tokens) of which any process saved something."""
        return tuple(sorted({step for process in self.processes for step in process.steps}))

    def total(self, name: str) -> int:
        """Sum of one numeric field over the processes, such as ``"operations"``."""
        return sum(getattr(process, name) for process in self.processes)

    def as_dict(self) -> dict[str, Any]:
        """The summary for machines: JSON types only."""
        return {
            "exit_code": self.exit_code,
            "complete": self.complete,
            "dump_dir": str(self.dump_dir),
            "devices": sorted(
                {device for process in self.processes for device in process.devices},
                key=device_order,
            ),
            "steps": list(self.steps),
            **{
                name: self.total(name)
                for name in (
                    "operations",
                    "kernels",
                    "tensors",
                    "bytes",
                    "failed",
                    "dropped",
                    "lost_tensors",
                )
            },
            "files": self.total("files") + self.files,
            "sealed": all(process.sealed for process in self.processes),
            "processes": [asdict(process) for process in self.processes],
            **{
                name: [str(path) for path in getattr(self, name)]
                for name in ("topologies", "tables", "statistics", "onnx")
            },
            "problems": list(self.problems),
            "notes": list(self.notes),
        }


def summarise_process(record: ProcessRecord) -> ProcessSummary:
    """The totals of one ledger."""
    states = record.states
    return ProcessSummary(
        devices=record.devices,
        pid=record.pid,
        sealed=record.sealed,
        end=record.end,
        running=record.running,
        steps=tuple(sorted(record.steps)),
        operations=record.operations,
        kernels=record.kernels,
        tensors=record.tensors,
        # Only the seal knows the parameter files; without it the tensors are a lower bound.
        files=record.files if record.sealed else record.tensors,
        bytes=record.bytes,
        failed=states["failed"],
        dropped=states["dropped"],
        lost_tensors=record.lost_tensors,
        last_operation=record.last_operation,
    )


def losses(records: Iterable[ProcessRecord]) -> list[str]:
    """A sentence for each process that lost something or did not finish its ledger."""
    sentences = []
    for record in records:
        name = f"process {record.pid} on device {', '.join(record.devices)}"
        if record.damaged_lines:
            sentences.append(f"{name}: {record.damaged_lines} lines of {record.path} are damaged")
        if record.removed:
            sentences.append(
                f"{name}: the output directory was removed while it wrote; what it held is lost"
            )
        if record.lost_files:
            sentences.append(
                f"{name}: {record.lost_files} tables, topologies or other files were not written"
            )
        if record.lost_lines:
            sentences.append(f"{name}: {record.lost_lines} lines of its ledger were not written")
        states = record.states
        for state, verb in (("failed", "could not be written"), ("dropped", "were given up")):
            if states[state]:
                sentences.append(f"{name}: {states[state]} operations {verb}{_why(record)}")
        if (number := killed_by(record.end)) is not None:
            last = record.last_operation
            sentences.append(
                f"{name} was killed by signal {number}; what it had not come to is missing"
                + (f", the last operation it recorded is {last}" if last else "")
            )
        if record.running:
            sentences.append(
                f"{name} is still running, so its capture is not finished; when it has ended, "
                f"its ledger {record.path} gets a last line"
            )
        elif not record.sealed:
            last = record.last_operation
            full = _is_full(record.path.parent)
            cause = "the disk is full" if full else "killed, or the disk was full"
            cause = cause if full or states["failed"] else "killed?"
            sentences.append(
                f"{name} ended without sealing its ledger ({cause}); "
                + (f"the last operation it recorded is {last}" if last else "it recorded nothing")
            )
    return sentences


def _is_full(folder: Path) -> bool:
    """True where not even a ledger has room."""
    try:
        return shutil.disk_usage(folder).free < _LEDGER_BYTES
    except OSError:
        return False


def _why(record: ProcessRecord) -> str:
    reasons = record.reasons.most_common(2)
    lost = f", {record.lost_tensors} tensors lost" if record.lost_tensors else ""
    return lost + (f" ({'; '.join(reason for reason, _ in reasons)})" if reasons else "")


def nothing_seen(words: Sequence[str], host: HostLibrary, exit_code: int) -> str:
    """Why no process of a program, of these words, made a call that the probe saw."""
    if exit_code:
        return (
            f"the program failed (exit code {exit_code}) before any ATB call was seen; make it run "
            "without ait first, then dump again"
        )
    return (
        "no ATB call was seen. If the program computes with PyTorch alone, capture it with: "
        f"ait llm dump --type torch --exec {shlex.quote(shlex.join(words))}. Other possible "
        "reasons: the program does not use ATB at all; "
        f"it loads another libatb.so than {host.path}, of another C++ ABI than {host.abi}; "
        "it links ATB statically; it loads ATB with RTLD_DEEPBIND; it drops LD_PRELOAD on the way "
        "(sudo, containers, env -i); or it removed the dump itself. Check with: ait llm doctor"
    )


def missing_types(
    config: ProbeConfig,
    host: HostLibrary,
    records: Sequence[ProcessRecord],
    topologies: Sequence[Path],
) -> list[str]:
    """A sentence for each type that was asked for and of which nothing came back."""
    rows: Counter[str] = sum((record.rows for record in records), Counter())
    sentences = []
    if config.captures_tensors and not any(
        record.operations or record.kernels or record.states.total() or not record.sealed
        for record in records
    ):
        sentences.append(_nothing_selected(config, host))
    if all(record.sealed for record in records):
        for name, row in (("op", "op"), ("kernel", "kernel"), ("cpu_profiling", "cpu_profiling")):
            if name in config.types and not rows[row]:
                sentences.append(
                    f"type {name!r} was asked for, but ATB reported none{_where(config)}"
                )
    for level in ("layer", "model"):
        if level in config.types and not any(
            path.parent.parent.name == level for path in topologies
        ):
            hint = (
                "; only programs built on the ATB model layer (atb_speed) report it"
                if level == "model"
                else ""
            )
            sentences.append(f"type {level!r} was asked for, but no topology was reported{hint}")
    return sentences


def _where(config: ProbeConfig) -> str:
    is_plain = config.steps.is_every or str(config.steps) == "0,0"
    limits = [] if is_plain else [f"in steps {config.steps}"]
    if config.device is not None:
        limits.append(f"on device {config.device}")
    return " " + " ".join(limits) if limits else ""


def _nothing_selected(config: ProbeConfig, host: HostLibrary) -> str:
    reasons = []
    if not config.steps.is_every:
        reasons.append(f"execution never reached the step range -er {config.steps}")
    if config.operation_ids or config.operation_names:
        wanted = [f"id {op}" for op in config.operation_ids[:_NAMED]]
        wanted += [f"a type starting with {name!r}" for name in config.operation_names[:_NAMED]]
        reasons.append(f"no operation has {' or '.join(wanted)} (see --type model or layer)")
    if config.device is not None:
        reasons.append(f"nothing ran on device {config.device}")
    reasons.append(
        f"the program's ATB is of another C++ ABI than {host.abi} (taken {host.evidence} of "
        f"{host.path})"
    )
    return "ATB was seen, but no operation was selected. Possible reasons: " + "; ".join(reasons)
