"""The contract with the preloaded C++ probe: its settings, its library, its launch."""

from ait_llm.probe.config import (
    ATB_TYPES,
    ProbeConfig,
    SaveTime,
    TensorPart,
    child_environment,
    probe_environment,
)
from ait_llm.probe.launch import run_command, split_command
from ait_llm.probe.library import HostLibrary, ProbeLibrary, find_host, find_probe

__all__ = [
    "ATB_TYPES",
    "HostLibrary",
    "ProbeConfig",
    "ProbeLibrary",
    "SaveTime",
    "TensorPart",
    "child_environment",
    "find_host",
    "find_probe",
    "probe_environment",
    "run_command",
    "split_command",
]
