"""What rounding permits: of a pair of tensors, and of one operation by its own inputs."""

from ait_llm.judge.pairs import Judgement, judge_pair
from ait_llm.judge.tolerance import (
    WEIGHTS,
    Limits,
    Tolerance,
    behind_steps,
    parse_tolerance,
    tolerance_for,
)

__all__ = [
    "WEIGHTS",
    "Judgement",
    "Limits",
    "Tolerance",
    "behind_steps",
    "judge_pair",
    "parse_tolerance",
    "tolerance_for",
]
