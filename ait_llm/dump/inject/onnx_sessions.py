"""Starts the capture of ONNX Runtime in a program that does not know of it."""

from __future__ import annotations

import atexit
import os

from ait_llm.dump.inject.channel import report
from ait_llm.dump.inject.graph_options import fx_options
from ait_llm.dump.inject.settings import VARIABLE, TorchSettings
from ait_llm.dump.onnx.hooks import capture_sessions


def start_from_environment() -> None:
    """Capture sessions with the settings that the launcher put into the environment.

    Raises:
        UsageError: the settings are damaged, or the output cannot be written.
        MissingDependencyError: the package ``onnx`` is not installed.
    """
    capture_sessions(fx_options(TorchSettings.from_json(os.environ[VARIABLE])))
    atexit.register(lambda: report("end"))
