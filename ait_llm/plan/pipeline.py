"""From what a run revealed to what is said: bytes, time, and what fits the budget."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.errors import IncompleteError
from ait_llm.plan.amounts import Estimate
from ait_llm.plan.atb_sizes import AtbSizes
from ait_llm.plan.commands import dump_command
from ait_llm.plan.disk import Disk
from ait_llm.plan.graph_survey import GraphSizes
from ait_llm.plan.proposals import Options, Proposal, Sizes, estimate_of, proposals
from ait_llm.plan.survey import Surveyed
from ait_llm.probe import ProbeConfig

SECONDS_PER_TENSOR = {"atb": 100e-6, "torch": 155e-6, "graph": 250e-6}
"""What a capture adds to a program for each tensor besides writing it; see docs/plan.md."""


@dataclass(frozen=True, slots=True)
class Duration:
    """How long a capture takes, in seconds.

    Attributes:
        program: the program's own time; None if it was not run.
        writing: to write the bytes.
        capturing: to take the tensors.
    """

    program: float | None
    writing: float
    capturing: float

    @property
    def total(self) -> float:
        """All of it."""
        return (self.program or 0.0) + self.writing + self.capturing


@dataclass(frozen=True, slots=True)
class Plan:
    """What ``ait llm plan`` found.

    Attributes:
        command: what ``--exec`` got, or what stands for it.
        options: the capture that was asked for.
        more: options that are no part of a capture, as text.
        sizes: gives estimates.
        estimate: what the capture would write.
        duration: how long it would take.
        disk: the disk that it would write to.
        budget: bytes that it may write; None for any number.
        proposals: captures that fit the budget, those that show most first.
        smallest: the smallest capture that was tried; None without a budget.
        exit_code: how the program ended.
        notes: what the numbers do not say.
    """

    command: str
    options: Options
    more: str
    sizes: Sizes
    estimate: Estimate
    duration: Duration
    disk: Disk
    budget: int | None = None
    proposals: tuple[Proposal, ...] = ()
    smallest: Proposal | None = None
    exit_code: int = 0
    notes: tuple[str, ...] = ()

    @property
    def code(self) -> int:
        """The program's own code, else 3 if nothing fits the budget, else 0."""
        nothing = self.budget is not None and not self.proposals
        return self.exit_code or (IncompleteError.exit_code if nothing else 0)

    def command_of(self, options: Options) -> str:
        """The command line of a capture."""
        return dump_command(self.command, options, self.more)

    def duration_of(self, estimate: Estimate) -> Duration:
        """How long another capture of the program takes."""
        return _duration(self.sizes, estimate, self.disk, self.duration.program)

    def as_dict(self) -> dict[str, Any]:
        """The plan in JSON types."""
        return {
            "exit_code": self.exit_code,
            "asked": self._entry(self.options, self.estimate),
            "disk": {
                "free": self.disk.free,
                "block": self.disk.block,
                "bytes_per_second": round(self.disk.bytes_per_second),
                "measured": self.disk.measured,
            },
            "budget": self.budget,
            "fits": None if self.budget is None else self.estimate.bytes <= self.budget,
            "proposals": [
                {**self._entry(each.options, each.estimate), "keeps": each.keeps}
                for each in self.proposals
            ],
            "smallest": None
            if self.smallest is None
            else self._entry(self.smallest.options, self.smallest.estimate),
            "notes": list(self.notes),
        }

    def _entry(self, options: Options, estimate: Estimate) -> dict[str, Any]:
        duration = self.duration_of(estimate)
        return {
            **estimate.as_dict(),
            "seconds": {
                "program": duration.program,
                "writing": duration.writing,
                "capturing": duration.capturing,
                "total": duration.total,
            },
            "command": self.command_of(options),
        }


def make_plan(
    command: str,
    options: Options,
    surveyed: Surveyed,
    disk: Disk,
    *,
    budget: int | None = None,
    more: str = "",
    notes: tuple[str, ...] = (),
) -> Plan:
    """Estimate a capture, and look for cheaper ones if there is a budget.

    Args:
        command: what ``--exec`` gets.
        options: the capture that was asked for.
        surveyed: what a run revealed.
        disk: the disk that it would write to.
        budget: bytes that it may write.
        more: options for ``ait llm dump`` that are no part of a capture.
        notes: what else is to be said.
    """
    estimate = estimate_of(surveyed.sizes, options)
    fitting: list[Proposal] = []
    smallest = None
    if budget is not None:
        fitting, smallest = proposals(surveyed.sizes, options, budget)
    return Plan(
        command,
        options,
        more,
        surveyed.sizes,
        estimate,
        _duration(surveyed.sizes, estimate, disk, surveyed.seconds),
        disk,
        budget,
        tuple(fitting),
        smallest,
        surveyed.exit_code,
        (*notes, *_notes(options, estimate, disk)),
    )


def _duration(sizes: Sizes, estimate: Estimate, disk: Disk, program: float | None) -> Duration:
    kind: Literal["atb", "torch", "graph"] = "torch"
    if isinstance(sizes, AtbSizes):
        kind = "atb"
    elif isinstance(sizes, GraphSizes):
        kind = "graph"
    return Duration(
        program,
        estimate.bytes / disk.bytes_per_second,
        estimate.tensors * SECONDS_PER_TENSOR[kind],
    )


def _notes(options: Options, estimate: Estimate, disk: Disk) -> Iterator[str]:
    if estimate.total.room > disk.free:
        yield "this is more than the disk has free"
    if not estimate.operations and _captures_tensors(options):
        yield "nothing matches the selection"
    if isinstance(options, ProbeConfig) and options.dedupe:
        yield "--dedupe makes it smaller by what is equal, which is known only with the data"
    if isinstance(options, TorchSettings) and options.observe:
        yield "--verify-observer runs the program once more"


def _captures_tensors(options: Options) -> bool:
    return not isinstance(options, ProbeConfig) or options.captures_tensors
