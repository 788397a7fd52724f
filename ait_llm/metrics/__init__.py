"""Pairs of tensors to numbers."""

from ait_llm.metrics.custom import CustomMetric, entry_point_names, load_custom
from ait_llm.metrics.measure import Measurement, measure_pair
from ait_llm.metrics.registry import METRIC_NAMES, metrics

__all__ = [
    "METRIC_NAMES",
    "CustomMetric",
    "Measurement",
    "entry_point_names",
    "load_custom",
    "measure_pair",
    "metrics",
]
