"""What a dump says of the processes that wrote it, and of what they lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ait_llm.dumps.ledger import killed_by

if TYPE_CHECKING:
    from ait_llm.dumps.ledger import Ledger, LedgerEntry

State = Literal["sealed", "unfinished", "unknown"]
FILE = "file"
"""Type of what is lost with a file that belongs to no operation."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Tensors that were selected and are not there.

    Attributes:
        op: id of the operation or kernel, or path of the module.
        type: its type.
        step: its execution count.
        phase: before or after.
        state: ``failed`` and ``dropped`` as the ledger says; ``missing`` if it says saved and the
            files are gone.
        tensors: how many, 0 if unknown.
        reason: why.
    """

    op: str
    type: str
    step: int
    phase: str
    state: Literal["failed", "dropped", "missing"]
    tensors: int
    reason: str


@dataclass(frozen=True, slots=True)
class Process:
    """One traced process.

    Attributes:
        device: device number, -1 if unknown.
        pid: process id.
        steps: execution counts that have tensors, ascending.
        ledger: its own account of the capture, None if the tool writes none.
        losses: what is missing.
        remarks: what else is wrong, each in a clause; for dumps whose tool keeps no ledger.
    """

    device: int
    pid: int
    steps: tuple[int, ...]
    ledger: Ledger | None
    losses: tuple[Loss, ...]
    remarks: tuple[str, ...] = ()

    @property
    def sealed(self) -> bool:
        """True if the process finished its capture and said so."""
        return self.ledger is not None and self.ledger.seal is not None

    @property
    def state(self) -> State:
        """``sealed``, ``unfinished`` (killed), or ``unknown`` without a ledger."""
        if self.ledger is None:
            return "unknown"
        return "sealed" if self.ledger.seal is not None else "unfinished"

    @property
    def end(self) -> str | None:
        """How the process ended (``exit``, ``signal 15``), None if it could not say."""
        if self.ledger is None or self.ledger.seal is None:
            return None
        return self.ledger.seal.end

    @property
    def header(self) -> Mapping[str, Any]:
        """Tool version, options and environment of the capture; empty without a ledger."""
        return self.ledger.header if self.ledger is not None else {}

    @property
    def last_operation(self) -> LedgerEntry | None:
        """The last operation in the ledger."""
        return self.ledger.last if self.ledger is not None else None

    @property
    def problem(self) -> str | None:
        """What is wrong with this process's capture, in one sentence, or None."""
        problems = []
        if self.state == "unfinished":
            last = self.last_operation
            problems.append("it did not finish its capture")
            problems.append(
                f"its last operation was {last.type} {last.op} at step {last.step}"
                if last is not None
                else "it recorded no operation"
            )
        if (number := killed_by(self.end)) is not None:
            problems.append(
                f"it was killed by signal {number}, so what it had not come to is missing"
            )
        if self.losses:
            tensors = sum(loss.tensors for loss in self.losses)
            lost = _counted(tensors, "tensor") if tensors else "tensors"  # 0: it is unknown
            first = self.losses[0]
            place = f"{first.op} at step {first.step}"
            if first.op[:1].isdecimal():
                place = f"{first.type} {place}"  # an id alone says little
            such = "such as " if len(self.losses) > 1 else ""
            where = "" if first.type == FILE else f" ({such}{place})"  # its reason names a file
            problems.append(f"lost {lost} of {_counted(len(self.losses), 'operation')}{where}")
        incidents = self.ledger.incidents if self.ledger is not None else ()
        problems += incidents[:1]
        if len(incidents) > 1:
            problems.append(f"and {len(incidents) - 1} more of that")
        problems += self.remarks
        if not problems:
            return None
        return f"process {self.pid} on device {self.device}: " + "; ".join(problems)


@dataclass(frozen=True, slots=True)
class TopologyFile:
    """A graph that the run reported.

    Attributes:
        pid: the process.
        name: operation or model name, ``DecoderLayer_0``.
        path: the JSON file.
    """

    pid: int
    name: str
    path: Path


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
