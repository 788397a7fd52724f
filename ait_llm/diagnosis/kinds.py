"""What kinds of bugs a residual can tell, and what is said about one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    """A kind of bug, by the words that reports print."""

    SCALE = "constant scale"
    OFFSET = "constant offset"
    EPSILON = "wrong epsilon"
    SOFTMAX_SCALE = "wrong softmax scale"
    TRANSPOSED = "transposition"
    SWAPPED_ROWS = "swapped rows"
    SWAPPED_HEADS = "swapped heads"
    SWAPPED_EXPERTS = "swapped experts"
    SHIFTED = "shifted position"
    MASK = "wrong mask area"
    TRUNCATED = "truncated reduction"
    DOUBLE_ROUNDING = "double rounding"
    HALF_ACCUMULATION = "half-precision accumulation"
    STALE = "stale or uninitialised region"
    SATURATED = "saturated values"
    NOT_FINITE = "values not finite"
    ELEMENTS = "isolated elements"
    ROUNDING = "rounding only"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What kind of bug explains a residual best.

    Attributes:
        kind: UNKNOWN where nothing explains it well, or two kinds do equally well.
        evidence: why, in one clause with its numbers.
        explained: share of the residual's energy that the kind explains, in [0, 1].
        output: index of the output that was looked at.
        parameters: what was found out about it, such as ``{"factor": 1.02}``.
    """

    kind: Kind
    evidence: str
    explained: float = 0.0
    output: int = 0
    parameters: Mapping[str, float | str] = field(default_factory=dict)
