"""Implementations of the metrics, chosen through the environment."""

import numpy as np
import pytest

from ait_llm.metrics import measure_pair
from ait_llm.metrics.native import native_metrics


def choose(name, monkeypatch):
    """Take that implementation for the rest of a test; skip the test if it cannot run here."""
    monkeypatch.setenv("AIT_LLM_METRICS", name)
    if name == "numpy":
        return
    if native_metrics() is None:
        pytest.skip("the native metrics are not installed")
    try:
        measure_pair(np.zeros(1, np.float32), np.zeros(1, np.float32))
    except ValueError as error:
        pytest.skip(str(error))
