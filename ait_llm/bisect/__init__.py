"""The use case bisect: two programs in, the operator where they part out, for few bytes.

Statistics of every operator come first, values only of those around the first difference.
"""

from ait_llm.bisect.budget import Budget
from ait_llm.bisect.captures import Captured, Program, Runner, Selection
from ait_llm.bisect.result import BisectResult, RunRecord
from ait_llm.bisect.runs import Bisection
from ait_llm.bisect.search import bisect

__all__ = [
    "BisectResult",
    "Bisection",
    "Budget",
    "Captured",
    "Program",
    "RunRecord",
    "Runner",
    "Selection",
    "bisect",
]
