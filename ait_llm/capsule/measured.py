"""A case with what its script will say, and the signature by which an error is known again."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ait_llm.capsule.case import Case
from ait_llm.capsule.tolerance import Tolerance, tolerance_of
from ait_llm.errors import AitError
from ait_llm.judge.standards import Output
from ait_llm.opcheck.cases import REFUSALS

if TYPE_CHECKING:
    from ait_llm.capsule.carried.verdict import Found

# The typical error may change by this factor: fewer elements scatter more.
_LEVEL = 2.0


@dataclass(frozen=True, eq=False)
class Measured:
    """A case with what the script will say about it.

    Attributes:
        case: the case.
        output: golden beside the dumped output.
        tolerance: its limits.
        found: the verdict.
        kind: of the error, as :mod:`ait_llm.diagnosis` names it; empty where it does not know.
    """

    case: Case
    output: Output
    tolerance: Tolerance
    found: Found
    kind: str = ""

    @property
    def signature(self) -> tuple[str, float]:
        """Which check fails, and the median error of the bad elements relative to golden."""
        return self.found.check, self._level()

    def _level(self) -> float:
        bad = self.found.bad
        golden, mine = self.output.golden.double(), self.output.mine.double()
        if bad is not None:
            golden, mine = golden[bad], mine[bad]
        error = (mine - golden).abs() / golden.abs().clamp(min=2.0**-24)
        error = error[error.isfinite()]
        return float(error.median()) if error.numel() else math.inf

    def shows_the_same(self, other: Measured) -> bool:
        """True if the error is of the same kind and size."""
        check, level = self.signature
        other_check, other_level = other.signature
        if not check or check != other_check or self.kind != other.kind:
            return False
        if check == "bits" or not (math.isfinite(level) and math.isfinite(other_level)):
            return math.isfinite(level) == math.isfinite(other_level) or check == "bits"
        return level <= _LEVEL * other_level and other_level <= _LEVEL * level


def measured(case: Case) -> Measured:
    """A case with its verdict.

    Raises:
        AitError: golden cannot be computed.
    """
    output = case.evaluated()
    tolerance = tolerance_of(output)
    shaped = replace(case, dumped=output.mine)
    found = tolerance.judge(output)
    return Measured(shaped, output, tolerance, found, _kind(output) if found.check else "")


def _kind(output: Output) -> str:
    """What kind of error it is; empty where that is not known."""
    from ait_llm.diagnosis import Call, Kind, diagnose

    if output.is_input:
        return ""
    computation = output.computation
    call = Call(
        computation.golden, computation.inputs, computation.params, {output.index: output.mine}
    )
    try:
        kind = diagnose(call).kind
    except (AitError, *REFUSALS):
        return ""
    return "" if kind in (Kind.UNKNOWN, Kind.ROUNDING) else kind.value
