"""What a program does under each change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ait_llm.core.comparison import Origin
from ait_llm.dump.changes.catalogue import CHANGES, Change
from ait_llm.errors import IncompleteError, code_of_failed
from ait_llm.schemas import identity

State = Literal["held", "broken", "undecided", "not made", "failed"]
_BROKEN, _INTERRUPTED = 1, 130


@dataclass(frozen=True, slots=True)
class Answer:
    """What an outermost call gave its caller.

    Attributes:
        tokens: of each row, its prompt included where ``prompt`` is not 0; of a call of the model
            itself, the largest logit at each place.
        generated: they were generated, and not only computed.
        prompt: tokens of the prompt.
    """

    tokens: Sequence[Sequence[int]]
    generated: bool = False
    prompt: int = 0

    @property
    def steps(self) -> int:
        """Steps of the model that it took."""
        if not self.generated:
            return 1
        return max((len(row) - self.prompt for row in self.tokens), default=0)


@dataclass(frozen=True, slots=True)
class Flip:
    """The first token in which two answers differ.

    Attributes:
        call: number of the outermost call that gave the answer, from 0.
        row: of its batch.
        place: from 0, the prompt's tokens included where the call gives them back.
        before, after: the token without the change and with it; None where one answer is shorter.
        count: how many tokens differ in all answers.
    """

    call: int
    row: int
    place: int
    before: int | None
    after: int | None
    count: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run with a change shows.

    Attributes:
        name: of the change.
        state: ``held`` (the answer does not depend on it but for rounding), ``broken``,
            ``undecided`` (something could not be compared), ``not made`` (the change does not
            apply) or ``failed`` (the program ends with an error under it).
        reason: why, in one sentence; empty for one that held with equal numbers.
        equal: every number that was compared is equal, not only within rounding.
        compared, failed: pairs of tensors.
        origin: the operation that breaks it first.
        flip: the first token that changes; None if none does.
        exit_code: of the program.
        dump: folder of the run; None if it was removed.
        reports: files with the whole comparison.
        seconds: that the run and its comparison took.
    """

    name: str
    state: State
    reason: str = ""
    equal: bool = False
    compared: int = 0
    failed: int = 0
    origin: Origin | None = None
    flip: Flip | None = None
    exit_code: int = 0
    dump: Path | None = None
    reports: tuple[Path, ...] = ()
    seconds: float = 0.0

    @property
    def change(self) -> Change:
        """The change."""
        return CHANGES[self.name]


@dataclass(frozen=True, slots=True)
class InvariantResult:
    """What all runs show.

    Attributes:
        folder: where they are.
        outcomes: one for each change, in the order in which they were made.
        exit_code: of the program without a change.
        problems: why nothing was captured of it, a sentence each.
        runs: how often the program was started.
        seconds: that everything took.
        interrupted: not all changes were made.
    """

    folder: Path
    outcomes: Sequence[Outcome]
    exit_code: int = 0
    problems: Sequence[str] = ()
    runs: int = 1
    seconds: float = 0.0
    interrupted: bool = False

    def in_state(self, *states: State) -> list[Outcome]:
        """The outcomes of changes that ended so."""
        return [each for each in self.outcomes if each.state in states]

    @property
    def found(self) -> bool:
        """True if the answer depends on a change."""
        return bool(self.in_state("broken"))

    @property
    def complete(self) -> bool:
        """True if every change was made that applies, and decided."""
        lacking = self.interrupted or self.problems or self.in_state("undecided", "failed")
        return not lacking and bool(self.in_state("held", "broken"))

    @property
    def code(self) -> int:
        """What a command ends with: a failure of the program before all else."""
        if self.exit_code:
            return code_of_failed(self.exit_code)
        if self.interrupted:
            return _INTERRUPTED
        if self.found:
            return _BROKEN
        return 0 if self.complete else IncompleteError.exit_code

    def __bool__(self) -> bool:
        return self.code == 0

    def as_dict(self) -> dict[str, Any]:
        """In JSON types."""
        return {
            **identity("invariant"),
            "folder": str(self.folder),
            "found": self.found,
            "complete": self.complete,
            "exit_code": self.exit_code,
            "problems": list(self.problems),
            "runs": self.runs,
            "seconds": round(self.seconds, 1),
            "changes": [_record(each) for each in self.outcomes],
        }


def _record(outcome: Outcome) -> dict[str, Any]:
    origin = outcome.origin
    return {
        "name": outcome.name,
        "title": outcome.change.title,
        "state": outcome.state,
        "reason": outcome.reason,
        "equal": outcome.equal,
        "compared": outcome.compared,
        "failed": outcome.failed,
        "origin": None
        if origin is None
        else {
            "op": origin.op,
            "op_type": origin.op_type,
            "step": origin.step,
            "certain": origin.certain,
            "candidates": list(origin.candidates),
            "kind": origin.kind,
            "evidence": origin.evidence,
        },
        "flip": None if outcome.flip is None else asdict(outcome.flip),
        "exit_code": outcome.exit_code,
        "dump": None if outcome.dump is None else str(outcome.dump),
        "reports": [str(path) for path in outcome.reports],
        "seconds": round(outcome.seconds, 1),
    }
