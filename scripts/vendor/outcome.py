"""What running one of the vendor's suites gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any


class Side(str, Enum):
    """Who is to blame for a disagreement.

    A disagreement is OURS until something else has been shown.
    """

    VENDOR = "vendor"
    CHIP = "another chip"
    OURS = "ours"


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A case in which the vendor's suite and this project differ.

    Attributes:
        operator: of the case.
        case: its name, as `linear 12`.
        what: the difference, in figures or statuses.
        side: who is to blame.
        why: what shows that; required where the side is not ours.
    """

    operator: str
    case: str
    what: str
    side: Side = Side.OURS
    why: str = ""

    def __post_init__(self) -> None:
        if self.side is not Side.OURS and not self.why:
            raise ValueError(f"{self.case}: what shows that it is not ours?")


@dataclass(slots=True)
class Outcome:
    """A suite that was run.

    Attributes:
        agreed: number of cases that agree, by operator.
        disagreed: those that do not.
        skipped: number of cases that could not be compared, by operator and reason.
    """

    agreed: dict[str, int] = field(default_factory=dict)
    disagreed: list[Disagreement] = field(default_factory=list)
    skipped: dict[str, dict[str, int]] = field(default_factory=dict)

    def agree(self, operator: str, count: int = 1) -> None:
        """Count cases that agree."""
        self.agreed[operator] = self.agreed.get(operator, 0) + count

    def skip(self, operator: str, reason: str) -> None:
        """Count a case that cannot be compared."""
        reasons = self.skipped.setdefault(operator, {})
        reasons[reason] = reasons.get(reason, 0) + 1

    @property
    def operators(self) -> list[str]:
        """All operators that it has cases of."""
        differ = {each.operator for each in self.disagreed}
        return sorted({*self.agreed, *self.skipped, *differ})

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "agreed": dict(sorted(self.agreed.items())),
            "disagreed": [asdict(each) for each in self.disagreed],
            "skipped": {name: dict(sorted(self.skipped[name].items())) for name in self.skipped},
        }

    @classmethod
    def recorded(cls, found: Mapping[str, Any]) -> Outcome:
        """Of what ``record`` gave."""
        differ = [Disagreement(**(row | {"side": Side(row["side"])})) for row in found["disagreed"]]
        return cls(dict(found["agreed"]), differ, dict(found["skipped"]))
