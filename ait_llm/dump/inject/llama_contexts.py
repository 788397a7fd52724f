"""Starts the capture of llama.cpp in a program that does not know of it."""

from __future__ import annotations

import atexit
import os

from ait_llm.dump.ggml.hooks import capture_contexts
from ait_llm.dump.inject.channel import report
from ait_llm.dump.inject.graph_options import fx_options
from ait_llm.dump.inject.settings import VARIABLE, TorchSettings


def start_from_environment() -> None:
    """Capture contexts with the settings that the launcher put into the environment.

    Raises:
        UsageError: the settings are damaged, or the output cannot be written.
        ProbeError: ggml's own library is not beside the package.
    """
    capture_contexts(fx_options(TorchSettings.from_json(os.environ[VARIABLE])))
    atexit.register(lambda: report("end"))
