"""Which difference matters, as found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ait_llm.errors import PROGRAM_FAILED, IncompleteError
from ait_llm.schemas import identity
from ait_llm.transplanting.answer import Damage

Status = Literal["equal", "found", "undecided", "failed", "interrupted"]
_CODES: Mapping[Status, int] = {
    "equal": 0,
    "found": 1,
    "undecided": IncompleteError.exit_code,
    "failed": PROGRAM_FAILED,
    "interrupted": 130,
}


@dataclass(frozen=True, slots=True)
class Suspect:
    """A value in which mine differs from golden by its own doing.

    Attributes:
        op, op_type: the operator or module of mine that computes it.
        name: which of its values.
        call: which call of the operator within a step, from 0.
        steps: steps of mine in which it differs.
        introduced: its error where everything before it has golden's values, relative to golden's
            numbers; infinite where some are not finite.
        heals: share of the damage that goes when it alone has golden's value; None if not tried.
        harms: share of the damage that it makes where all other suspects have golden's values;
            None if not tried.
        needed: it is one of the smallest set that heals the answer.
    """

    op: str
    op_type: str
    name: str
    call: int
    steps: tuple[int, ...]
    introduced: float
    heals: float | None = None
    harms: float | None = None
    needed: bool = False

    @property
    def share(self) -> float | None:
        """How much of the damage it explains: the mean of what is known; None if nothing is."""
        known = [each for each in (self.heals, self.harms) if each is not None]
        return sum(known) / len(known) if known else None


@dataclass(frozen=True, slots=True)
class TransplantResult:
    """Which difference matters.

    Attributes:
        status: ``found`` (the suspects that are needed are named), ``equal`` (the answer is that of
            golden within rounding), ``undecided``, ``failed`` (a program) or ``interrupted``.
        reason: why, in one sentence; empty if found.
        folder: where the runs are.
        before: the damage of mine as it is.
        after: what the needed ones leave.
        floor: what all suspects leave: rounding, and what is no value of the program.
        places: values of mine that golden has, too.
        suspects: those that explain most first.
        runs: how often a program ran.
        seconds: that everything took.
        program_code: what a failed program ended with.
        notes: what else must be known, a sentence each.
    """

    status: Status
    reason: str
    folder: Path
    before: Damage | None = None
    after: Damage | None = None
    floor: Damage | None = None
    places: int = 0
    suspects: Sequence[Suspect] = ()
    runs: int = 0
    seconds: float = 0.0
    program_code: int = 0
    notes: tuple[str, ...] = ()

    @property
    def needed(self) -> list[Suspect]:
        """The smallest set that heals the answer."""
        return [each for each in self.suspects if each.needed]

    @property
    def code(self) -> int:
        """What a command ends with."""
        return _CODES[self.status]

    def __bool__(self) -> bool:
        return self.status == "equal"

    def as_dict(self) -> dict[str, Any]:
        """In JSON types; what is not finite is null."""
        return {
            **identity("transplant"),
            "status": self.status,
            "exit_code": self.code,
            "reason": self.reason,
            "folder": str(self.folder),
            "before": _damage(self.before),
            "after": _damage(self.after),
            "floor": _damage(self.floor),
            "places": self.places,
            "suspects": [
                {
                    **asdict(each),
                    "steps": list(each.steps),
                    "introduced": _finite(each.introduced),
                    "share": each.share,
                }
                for each in self.suspects
            ],
            "runs": self.runs,
            "seconds": round(self.seconds, 1),
            "program_code": self.program_code,
            "notes": list(self.notes),
        }


def _damage(damage: Damage | None) -> dict[str, Any] | None:
    if damage is None:
        return None
    return {key: _finite(value) for key, value in asdict(damage).items()}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
