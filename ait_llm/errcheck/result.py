"""What a check found, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ait_llm.errcheck.spread import Origin

HARMFUL: tuple[Origin, ...] = ("born", "leak", "own code", "entered", "received")
"""Origins that make a check fail: tokens are concerned, or it is not known that they are not."""


@dataclass(frozen=True, slots=True)
class Place:
    """An operation of one rank.

    Attributes:
        name, op_id, type: the operation.
        step: its execution count, as ``-er`` of ``ait llm dump`` takes it.
        rank, pid: the process.
    """

    name: str
    op_id: str
    type: str
    step: int
    rank: int
    pid: int


@dataclass(frozen=True, slots=True)
class OddTensor:
    """A tensor with NaN, infinite or saturated elements.

    Attributes:
        name, label: as the dump calls it, and the operator's own name for it or "".
        dtype, shape: as recorded.
        nan, inf, saturated: how many; lower bounds if ``counted`` is False.
        first: place of the first one; None if only statistics were saved.
        where: ``tokens``, ``padding``, or ``unknown``.
    """

    name: str
    label: str
    dtype: str
    shape: tuple[int, ...]
    nan: int
    inf: int
    saturated: int
    counted: bool
    first: tuple[int, ...] | None
    where: str

    @property
    def title(self) -> str:
        """``outtensor0 (attnOut)``."""
        return f"{self.name} ({self.label})" if self.label else self.name

    @property
    def kinds(self) -> str:
        """``3 NaN, 1 Inf``."""
        found = ((self.nan, "NaN"), (self.inf, "Inf"), (self.saturated, "saturated"))
        return ", ".join(f"{n} {name}" if self.counted else name for n, name in found if n)


@dataclass(frozen=True, slots=True)
class Flow:
    """How far something odd went.

    Attributes:
        operations: how many operations handed it on.
        first: the first of them.
        ranks: all ranks on which it shows, ascending.
        reached_end: it is in the output of the last operation of a pass.
    """

    operations: int = 0
    first: tuple[Place, ...] = ()
    ranks: tuple[int, ...] = ()
    reached_end: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """Where something odd began.

    Attributes:
        origin: ``born`` (clean inputs, odd output), ``leak`` (padding got into tokens), ``own
            code`` (code of a module between its captured parts), ``entered`` (from outside of what
            was captured), ``received`` (from a rank that was not captured), ``padding`` (no token
            has it), ``unread`` (nothing took it over).
        place: the operation at which it shows first.
        tensors: its odd outputs; the inputs where it came in from outside or stays.
        reason: why it is put down to this place.
        flow: how far it went.
        steps: execution counts at which the same happened, the first included.
        shared: other ranks at which it began in the same call.
    """

    origin: Origin
    place: Place
    tensors: tuple[OddTensor, ...]
    reason: str
    flow: Flow
    steps: tuple[int, ...] = ()
    shared: tuple[int, ...] = ()

    @property
    def harmful(self) -> bool:
        """True if it makes the check fail."""
        return self.origin in HARMFUL


@dataclass(frozen=True, slots=True)
class Checked:
    """How much was looked at.

    Attributes:
        processes, steps, operations, tensors, elements: counts.
        by_statistics: tensors of which only statistics were there.
        narrow: int8 elements at an end of their range, which is no error.
        padding: what tells tokens from padding, "" if nothing does.
    """

    processes: int = 0
    steps: int = 0
    operations: int = 0
    tensors: int = 0
    elements: int = 0
    by_statistics: int = 0
    narrow: int = 0
    padding: str = ""


@dataclass(frozen=True, slots=True)
class ErrcheckResult:
    """What a check found.

    Attributes:
        checked: how much was looked at.
        findings: in the order of steps; those that make the check fail first.
        problems: what could not be checked, one sentence each.
        operators: per process id every operation with an odd output, in execution order.
        odd: per process id every operation with anything odd, padding included.
        reported: per process id what the acceleration library reported while the program ran.
        unexplained: those of them whose tensors show nothing, as on devices that saturate.
        exit_code: how the program ended, 0 if none was run.
    """

    checked: Checked
    findings: tuple[Finding, ...] = ()
    problems: tuple[str, ...] = ()
    operators: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    odd: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    reported: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    unexplained: tuple[str, ...] = ()
    exit_code: int = 0

    @property
    def found(self) -> bool:
        """True if the check fails."""
        return bool(self.harmful or self.unexplained)

    @property
    def harmful(self) -> tuple[Finding, ...]:
        """Findings that make the check fail."""
        return tuple(each for each in self.findings if each.harmful)

    @property
    def complete(self) -> bool:
        """True if everything could be checked."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """The result in JSON types."""
        return {
            "checked": _plain(self.checked),
            "findings": [_plain(each) | {"harmful": each.harmful} for each in self.findings],
            "problems": list(self.problems),
            "operators": {str(pid): list(names) for pid, names in self.operators.items()},
            "reported": {str(pid): list(names) for pid, names in self.reported.items()},
            "unexplained": list(self.unexplained),
            "exit_code": self.exit_code,
        }


def _plain(value: Any) -> Any:
    """Dataclasses as objects, tuples as lists."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    names = getattr(type(value), "__dataclass_fields__", None)
    return value if names is None else {name: _plain(getattr(value, name)) for name in names}
