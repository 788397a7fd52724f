"""Reads what each traced process says it captured and lost.

The format is in ``docs/formats.md``: a header line, one line per selected operation, a seal. A file
may hold several such sections when the process replaced its image with ``exec``.
"""

from __future__ import annotations

import json
import platform
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ait_llm.core import whole_number
from ait_llm.probe.writers import is_alive

# Names of libmki's kernels; built-in operations end in "Operation".
_KERNEL_ENDINGS = ("Kernel", "Tactic")
_COUNTED = ("saved", "described", "empty", "failed", "dropped")


@dataclass(slots=True)
class ProcessRecord:
    """Totals of one traced process.

    Attributes:
        named_device: device id in the header, ``-1`` if it was not known yet.
        used_devices: device ids of the selected operations.
        host: name of the machine it ran on.
        environment: facts that the probe noted, such as the ABI.
        steps: execute counts of which something was selected.
        phases: selected operations per phase (``before``, ``after``).
        kernel_phases: selected kernels per phase.
        sections: selected operations per state, one counter for each header.
        tensors, files, bytes: what was written.
        lost_tensors, lost_files, lost_lines: tensors, other files and ledger lines that could not
            be written.
        removed: the directory was removed while the process wrote into it.
        reasons: why operations failed or were dropped, with how often.
        rows: lines written to each table.
        last_operation: path of the last selected operation.
        end: how the process ended, None while its ledger is not sealed.
        damaged_lines: lines that are not JSON objects.
    """

    path: Path
    named_device: str
    pid: int
    host: str
    environment: Mapping[str, Any] = field(default_factory=dict)
    used_devices: set[str] = field(default_factory=set)
    steps: set[int] = field(default_factory=set)
    phases: Counter[str] = field(default_factory=Counter)
    kernel_phases: Counter[str] = field(default_factory=Counter)
    sections: list[Counter[str]] = field(default_factory=list)
    tensors: int = 0
    files: int = 0
    bytes: int = 0
    lost_tensors: int = 0
    lost_files: int = 0
    lost_lines: int = 0
    removed: bool = False
    reasons: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    last_operation: str | None = None
    end: str | None = None
    damaged_lines: int = 0

    @property
    def sealed(self) -> bool:
        """True if the process finished its ledger."""
        return self.end is not None

    @property
    def running(self) -> bool:
        """True if the ledger is not sealed and the process is still alive on this machine."""
        return not self.sealed and self.host == platform.node() and is_alive(self.pid)

    @property
    def states(self) -> Counter[str]:
        """Selected operations per state."""
        return sum(self.sections, Counter())

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices that operations ran on; where none is known, the one that the header names."""
        return tuple(sorted(self.used_devices, key=device_order)) or (self.named_device,)

    @property
    def operations(self) -> int:
        """Executed operations that were selected; one saved before and after counts once."""
        return max(self.phases.values(), default=0)

    @property
    def kernels(self) -> int:
        """Executed kernels that were selected, counted like operations."""
        return max(self.kernel_phases.values(), default=0)


def device_order(device: str) -> tuple[int, str]:
    """Sorts device ids as numbers, and what is no number before them."""
    number = whole_number(device)
    return (-1 if number is None else number, device)


def read_ledger(path: Path, start_time: str) -> ProcessRecord | None:
    """Add up the sections of one ledger that belong to the run started at ``start_time``.

    Returns:
        None if no section belongs to that run.

    Raises:
        OSError: the file cannot be read.
    """
    record: ProcessRecord | None = None
    ours = False
    damaged = 0
    for line in objects(path):
        if line is None:
            damaged += 1
            continue
        kind = line.get("kind")
        if kind == "header":
            ours = _options(line).get("AIT_PROBE_START_TIME", start_time) == start_time
            if ours:
                record = record or _open_record(path, line)
                record.end = None
                record.sections.append(Counter())
        elif record is None or not ours:
            continue
        elif kind == "op":
            _add_operation(record, line)
        elif kind == "seal":
            _add_seal(record, line)
        elif kind == "lost":
            record.lost_lines += number(line, "lines")
        elif kind == "removed":
            record.removed = True
    if record is not None:
        record.damaged_lines = damaged
    return record


def objects(path: Path) -> Iterator[dict[str, Any] | None]:
    """The lines of a ledger; None for each that is not a JSON object.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        for line in file:
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                yield None
            else:
                yield value if isinstance(value, dict) else None


def _options(header: Mapping[str, Any]) -> Mapping[str, Any]:
    options = header.get("options")
    return options if isinstance(options, dict) else {}


def _open_record(path: Path, header: Mapping[str, Any]) -> ProcessRecord:
    device, _, pid = path.stem.rpartition("_")
    environment = header.get("environment")
    return ProcessRecord(
        path,
        named_device=str(header.get("device", device)),
        pid=number(header, "pid") or whole_number(pid) or 0,
        host=str(header.get("host", "")),
        environment=environment if isinstance(environment, dict) else {},
    )


def _add_operation(record: ProcessRecord, line: Mapping[str, Any]) -> None:
    state = str(line.get("state"))
    record.sections[-1][state] += 1
    is_kernel = str(line.get("type")).endswith(_KERNEL_ENDINGS)
    phases = record.kernel_phases if is_kernel else record.phases
    phases[str(line.get("phase"))] += 1
    record.steps.add(number(line, "step"))
    record.tensors += number(line, "tensors")
    record.bytes += number(line, "bytes")
    record.last_operation = str(line.get("path", line.get("op")))
    device, _, rest = record.last_operation.partition("_")
    if rest.startswith(f"{record.pid}/") and re.fullmatch(r"-?\d{1,9}", device):
        record.used_devices.add(device)
    if state in ("failed", "dropped"):
        record.lost_tensors += number(line, "lost")
        record.reasons[str(line.get("reason", "no reason given"))] += 1


def _add_seal(record: ProcessRecord, line: Mapping[str, Any]) -> None:
    record.end = str(line.get("end", "unknown"))
    record.files += number(line, "files")
    record.lost_files += number(line, "lost_files")
    rows = line.get("rows")
    if isinstance(rows, dict):
        record.rows.update({str(name): number(rows, name) for name in rows})
    # What the process counted itself wins where it is more than what its lines add up to: lines
    # can be missing when the disk was full.
    section = record.sections[-1]
    for state in _COUNTED:
        section[state] = max(section[state], number(line, state))


def number(line: Mapping[str, Any], key: str) -> int:
    """The whole number under ``key``; 0 if there is none."""
    value = line.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
