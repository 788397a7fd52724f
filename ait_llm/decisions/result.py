"""What two runs thought of each token, and why they chose differently."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ait_llm.errors import PROGRAM_FAILED, IncompleteError
from ait_llm.schemas import identity

Cause = Literal["", "rounding", "difference", "undecided"]
Status = Literal["compared", "undecided", "failed", "interrupted"]
_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Contribution:
    """What the own error of one value, or of some that follow each other, does to a margin.

    Attributes:
        op, op_type, name: the module of mine, its class, and which of its values.
        change: of the margin, in logits; negative towards the token that mine chose.
        within_rounding: its own error is no more than rounding.
        measured: by runs with the errors up to it and without it, in place of its gradient.
        through: the module of the last of several values; empty for one.
    """

    op: str
    op_type: str
    name: str
    change: float
    within_rounding: bool
    measured: bool = False
    through: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What both runs thought of one token.

    Attributes:
        step: of mine.
        place: where it is in mine's logits: request, then position.
        golden, mine: ids of the tokens with the largest logit.
        golden_margin, mine_margin: how far the logit of ``golden`` is above that of ``mine`` on
            either side; above that of the runner-up where both are one token.
        golden_probability, mine_probability: what either side gives to ``golden``.
        other_probabilities: what golden and mine give to ``mine``.
        drift: of the logarithm of the probability of ``golden``, mine's less golden's.
        kl: Kullback-Leibler divergence of mine's distribution from golden's, in nats.
        cause: of another token: ``rounding``, or a ``difference`` between the programs.
        reason: how that is known, in one sentence.
        contributions: what each value's own error did to the margin, the largest first.
        explained: their sum, and that of those that are not listed; None where it was not computed.
    """

    step: int
    place: tuple[int, ...]
    golden: int
    mine: int
    golden_margin: float
    mine_margin: float
    golden_probability: float
    mine_probability: float
    other_probabilities: tuple[float, float]
    drift: float
    kl: float
    cause: Cause = ""
    reason: str = ""
    contributions: Sequence[Contribution] = ()
    explained: float | None = None

    @property
    def flips(self) -> bool:
        """True if the two chose different tokens."""
        return self.golden != self.mine

    @property
    def change(self) -> float:
        """Of the margin, from golden to mine."""
        return self.mine_margin - self.golden_margin


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of the choice that is not the same on both sides.

    Attributes:
        name: such as ``temperature``.
        golden, mine: its values, as text; empty where it is not set.
    """

    name: str
    golden: str
    mine: str


@dataclass(frozen=True, slots=True)
class TokensResult:
    """What two runs thought of their tokens.

    Attributes:
        status: ``compared``; or why there is nothing to say.
        reason: that in one sentence; empty if compared.
        folder: where the runs are; None where dumps were given.
        decisions: in order.
        settings: of the choice, that differ.
        runs: how often a program ran.
        seconds: that everything took.
        program_code: what a failed program ended with.
        notes: what else must be known, a sentence each.
    """

    status: Status
    reason: str = ""
    folder: Path | None = None
    decisions: Sequence[Decision] = ()
    settings: Sequence[Setting] = ()
    runs: int = 0
    seconds: float = 0.0
    program_code: int = 0
    notes: tuple[str, ...] = ()

    @property
    def flips(self) -> list[Decision]:
        """The choices in which the two differ."""
        return [each for each in self.decisions if each.flips]

    @property
    def code(self) -> int:
        """What a command ends with."""
        if self.status != "compared":
            known = {"failed": PROGRAM_FAILED, "interrupted": _INTERRUPTED}
            return known.get(self.status, IncompleteError.exit_code)
        causes = {each.cause for each in self.flips}
        if "difference" in causes or self.settings:
            return 1
        return IncompleteError.exit_code if "undecided" in causes else 0

    def __bool__(self) -> bool:
        return self.code == 0

    @property
    def mean_drift(self) -> float:
        """Mean of the absolute drift; 0 without decisions."""
        drifts = [abs(each.drift) for each in self.decisions]
        return math.fsum(drifts) / len(drifts) if drifts else 0.0

    @property
    def worst(self) -> Decision | None:
        """The decision that drifts most."""
        return max(self.decisions, key=lambda each: abs(each.drift), default=None)

    def as_dict(self) -> dict[str, Any]:
        """In JSON types; what is not finite is null."""
        return {
            **identity("tokens"),
            "status": self.status,
            "exit_code": self.code,
            "reason": self.reason,
            "folder": None if self.folder is None else str(self.folder),
            "mean_drift": _finite(self.mean_drift),
            "worst_drift": _finite(self.worst.drift) if self.worst is not None else 0.0,
            "decisions": [
                {key: _finite(value) for key, value in asdict(each).items()}
                | {"place": list(each.place), "flips": each.flips, "change": _finite(each.change)}
                for each in self.decisions
            ],
            "settings": [asdict(each) for each in self.settings],
            "runs": self.runs,
            "seconds": round(self.seconds, 1),
            "program_code": self.program_code,
            "notes": list(self.notes),
        }


def _finite(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
