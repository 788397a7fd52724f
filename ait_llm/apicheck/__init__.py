"""The use case *check APIs*: every recorded call run again and judged against a CPU run."""

from ait_llm.apicheck.outcome import ApiResult, Checked, Outcome, OutputResult
from ait_llm.apicheck.precision_compare import compare_precision
from ait_llm.apicheck.run import CheckOptions, check_apis
from ait_llm.apicheck.standards import standards

__all__ = [
    "ApiResult",
    "CheckOptions",
    "Checked",
    "Outcome",
    "OutputResult",
    "check_apis",
    "compare_precision",
    "standards",
]
