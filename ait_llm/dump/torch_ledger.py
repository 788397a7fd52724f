"""Adds up what one process of a PyTorch capture says in its ledger (``docs/formats.md``)."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ait_llm.dump.ledger import number, objects
from ait_llm.probe.writers import is_alive

_WEIGHTS = "weights"
_EXAMPLES = 3


@dataclass(slots=True)
class TorchProcess:
    """Totals of one process.

    Attributes:
        path: its ledger.
        device: device text, such as ``cpu`` or ``npu0``.
        steps: generation steps of which something was recorded.
        modules: recorded calls of modules.
        operators: recorded calls of aten operators.
        tensors: tensors on disk; unchanged ones that are links to an earlier file count too.
        bytes: bytes written.
        weights: parameters and buffers among the tensors.
        states: calls by what became of their tensors.
        lost_tensors: tensors that could not be written.
        reasons: why calls failed or were dropped, with how often.
        not_captured: values that are no tensors that can be saved.
        examples: the first of them, as ``module.value: reason``.
        unseen: number of modules inside torch.compile, where hooks do not see them.
        first_unseen: the first of them.
        outside: calls of modules that belong to no call of their model, and are not recorded.
        end: how the process ended, None while its ledger is not sealed.
        damaged_lines: lines that are not JSON objects.
        lost_lines: lines that could not be written, because the disk was full for one.
        is_fx: it recorded the nodes or kernels of compiled graphs; ``operators`` counts them.
        unwritten: compiled graphs that could not be written, with the reason.
        follow: lines that say how it took the tokens of a golden run.
        budget: what was said when the budget was spent; empty if it was not.
        remarks: what else the capture has to say of what it holds.
        lacks: what was said of steps that were not captured as the program ran them; the first few.
    """

    path: Path
    device: str
    pid: int
    host: str
    steps: set[int] = field(default_factory=set)
    modules: int = 0
    operators: int = 0
    tensors: int = 0
    bytes: int = 0
    weights: int = 0
    states: Counter[str] = field(default_factory=Counter)
    lost_tensors: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    not_captured: int = 0
    examples: list[str] = field(default_factory=list)
    unseen: int = 0
    first_unseen: str = ""
    outside: int = 0
    last_call: str | None = None
    end: str | None = None
    damaged_lines: int = 0
    lost_lines: int = 0
    is_fx: bool = False
    unwritten: list[str] = field(default_factory=list)
    follow: list[Mapping[str, Any]] = field(default_factory=list)
    budget: str = ""
    remarks: list[str] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)

    @property
    def sealed(self) -> bool:
        """True if the process finished its ledger."""
        return self.end is not None

    @property
    def running(self) -> bool:
        """True if the ledger is not sealed and the process is still alive on this machine."""
        return not self.sealed and self.host == platform.node() and is_alive(self.pid)

    def as_dict(self) -> dict[str, Any]:
        """The totals for machines: JSON types only."""
        return {
            "device": self.device,
            "pid": self.pid,
            "sealed": self.sealed,
            "end": self.end,
            "running": self.running,
            "steps": sorted(self.steps),
            "modules": self.modules,
            "operators": self.operators,
            "tensors": self.tensors,
            "bytes": self.bytes,
            "weights": self.weights,
            "failed": self.states["failed"],
            "dropped": self.states["dropped"],
            "lost_tensors": self.lost_tensors,
            "not_captured": self.not_captured,
            "examples": list(self.examples),
            "unseen_modules": self.unseen,
            "outside_calls": self.outside,
            "last_call": self.last_call,
        }


def read_torch_ledger(path: Path, run: str | None) -> TorchProcess | None:
    """Add up the ledger at ``path``.

    Args:
        path: of the ledger.
        run: name of the run that it must be of; None for a capture of API calls, which has none.

    Returns:
        None if the ledger is not that of such a capture.

    Raises:
        OSError: the file cannot be read.
    """
    record: TorchProcess | None = None
    damaged = 0
    for line in objects(path):
        if line is None:
            damaged += 1
            continue
        kind = line.get("kind")
        if kind == "header":
            record = _open(path, line, run)
            damaged = 0
        elif record is None:
            continue
        elif kind == "op":
            record.end = None  # a seal was one that more may follow
            _add_call(record, line)
        elif kind == "schedule":
            record.end = None  # a pass began
        elif kind == "note":
            _add_note(record, line)
        elif kind == "follow":
            record.follow.append(line)
        elif kind == "file":
            record.unwritten.append(f"{line.get('path')}: {line.get('reason')}")
        elif kind == "lost":
            record.lost_lines += number(line, "lines")
        elif kind == "seal":
            record.end = str(line.get("end", "unknown"))
    if record is not None:
        record.damaged_lines = damaged
    return record


def _open(path: Path, header: Mapping[str, Any], run: str | None) -> TorchProcess | None:
    options = header.get("options")
    producers = ("api",) if run is None else ("torch", "fx")
    if header.get("producer") not in producers or not isinstance(options, dict):
        return None
    if run is not None and options.get("run", "") != run:
        return None
    return TorchProcess(
        path,
        str(header.get("device", "")),
        number(header, "pid"),
        str(header.get("host", "")),
        is_fx=header.get("producer") == "fx",
    )


def _add_note(record: TorchProcess, line: Mapping[str, Any]) -> None:
    record.outside += number(line, "outside")
    if number(line, "budget"):
        record.budget = str(line.get("text"))
    if number(line, "remark"):
        record.remarks.append(str(line.get("text")))
    lacks = number(line, "replayed") or number(line, "differs")
    if lacks and len(record.lacks) < _EXAMPLES:
        record.lacks.append(str(line.get("text")))
    modules = line.get("modules")
    if number(line, "unseen") and isinstance(modules, list) and modules:
        record.unseen += number(line, "unseen")
        record.first_unseen = record.first_unseen or str(modules[0])


def _add_call(record: TorchProcess, line: Mapping[str, Any]) -> None:
    kind, state = str(line.get("type")), str(line.get("state"))
    tensors = number(line, "tensors")
    record.tensors += tensors
    record.bytes += number(line, "bytes")
    if kind == _WEIGHTS:
        record.weights += tensors
    else:
        # Operators are named as in torch.ops, with dots; classes of modules have none.
        if record.is_fx or "." in kind:
            record.operators += 1
        else:
            record.modules += 1
        record.steps.add(number(line, "step"))
        record.last_call = f"{line.get('op')} of step {number(line, 'step')}"
    record.states[state] += 1
    if state in ("failed", "dropped"):
        record.lost_tensors += number(line, "lost")
        record.reasons[str(line.get("reason", "no reason given"))] += 1
    missed = line.get("not_captured")
    if isinstance(missed, list):
        record.not_captured += len(missed)
        for value in missed[: _EXAMPLES - len(record.examples)]:
            if isinstance(value, dict):
                text = f"{line.get('op')} {value.get('name')}: {value.get('reason')}"
                record.examples.append(text)
