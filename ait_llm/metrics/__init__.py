"""Pairs of tensors to numbers, and numbers to verdicts."""

from ait_llm.metrics.custom import CustomMetric, entry_point_names, load_custom
from ait_llm.metrics.judge import Judgement, judge
from ait_llm.metrics.measure import Measurement, measure_pair
from ait_llm.metrics.registry import METRIC_NAMES, metrics
from ait_llm.metrics.tolerance import QUANTISED, Limits, Tolerance, parse_tolerance, tolerance_for

__all__ = [
    "METRIC_NAMES",
    "QUANTISED",
    "CustomMetric",
    "Judgement",
    "Limits",
    "Measurement",
    "Tolerance",
    "entry_point_names",
    "judge",
    "load_custom",
    "measure_pair",
    "metrics",
    "parse_tolerance",
    "tolerance_for",
]
