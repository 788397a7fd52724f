"""What came of a replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Mode = Literal["end-to-end", "local", "hybrid"]
MODES: tuple[Mode, ...] = ("end-to-end", "local", "hybrid")


@dataclass(frozen=True, slots=True)
class Skipped:
    """An operator that was not computed.

    Attributes:
        op, op_id: which.
        step: its execution count.
        device, pid: the process.
        reason: why, as a clause.
        taken: what comes after it used its dumped outputs; False if there are none.
    """

    op: str
    op_id: str
    step: int
    device: int
    pid: int
    reason: str
    taken: bool


@dataclass(frozen=True, slots=True)
class Start:
    """A value that was taken from the dump although something before it should give it.

    Attributes:
        value: name of the tensor in the topology.
        op: the operator that reads it.
        step: number of the forward pass.
        reason: why, as a clause.
    """

    value: str
    op: str
    step: int
    reason: str


@dataclass(slots=True)
class Outcome:
    """What came of a replay.

    Attributes:
        source: the dump that was replayed.
        output: the golden dump.
        mode: where operators got their inputs from.
        until: id of the operation after which dumped values were used; empty without one.
        steps: forward passes that were replayed, of all processes.
        operators: how many there were.
        computed: how many were computed.
        skipped: the others.
        started: where values were taken from the dump in the midst of the graph.
        missing: inputs and weights of the graph that were not captured, with their first reader.
        problems: what else is lacking, a sentence each.
        tensors: files written, references to others included.
        bytes: of data written.
        linked: of data that the golden dump shares with the source.
        seconds: the whole took.
    """

    source: Path
    output: Path
    mode: Mode
    until: str = ""
    steps: tuple[int, ...] = ()
    operators: int = 0
    computed: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    started: list[Start] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    tensors: int = 0
    bytes: int = 0
    linked: int = 0
    seconds: float = 0.0

    @property
    def complete(self) -> bool:
        """True if every operator was computed from the graph's own inputs and weights."""
        return bool(self.computed) and not (
            self.skipped or self.started or self.missing or self.problems
        )

    def exit_code(self, *, allow_skip: bool = False) -> int:
        """0 if complete, else 3; with ``allow_skip`` only where nothing was computed."""
        return 0 if self.complete or (allow_skip and self.computed) else 3

    def reasons(self) -> Sequence[tuple[str, list[Skipped]]]:
        """The skipped operators by reason, in the order in which they ran."""
        found: dict[str, list[Skipped]] = {}
        for each in self.skipped:
            found.setdefault(each.reason, []).append(each)
        return list(found.items())
