"""Settings of a capture, and the environment variables that carry them into the probe.

This file is the whole contract: every variable that the launcher sets is written in
:func:`probe_environment` and nowhere else. ``docs/formats.md`` lists their meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from ait_llm.core import OpId, StepRange
from ait_llm.errors import UsageError

ATB_TYPES = ("model", "layer", "op", "kernel", "tensor", "cpu_profiling", "onnx", "stats")
"""What the probe can capture, as ``--type`` spells it."""

LOG_LEVELS = ("debug", "info", "warning", "error", "fatal", "critical")
"""Names of log levels; the position is the number that the probe is given."""

DEFAULT_QUEUE_BYTES = 256 * 1024 * 1024
DEFAULT_MIN_FREE_BYTES = 256 * 1024 * 1024

FIRST_STEP = StepRange(((0, 0),))
"""Default of ``-er``: only the first execution of each operation."""

# Older probes read step numbers as 32-bit integers and fail the operation on anything larger.
_LAST_STEP_OF_ALL = 2**31 - 1


class SaveTime(IntEnum):
    """When tensors are saved, relative to the execution of their operation."""

    BEFORE = 0
    AFTER = 1
    BOTH = 2


class TensorPart(IntEnum):
    """Which tensors of an operation are saved."""

    INPUTS = 0
    OUTPUTS = 1
    BOTH = 2


@dataclass(frozen=True, slots=True)
class ProbeConfig:
    """Everything that one capture is told.

    Attributes:
        output: absolute directory that ``ait_dump`` is created in.
        start_time: ``%Y%m%d%H%M%S`` of the launch; names the directory of cpu_profiling.
        types: members of :data:`ATB_TYPES`.
        description_only: write tensor headers without data.
        operation_ids: operations to save; with ``operation_names`` both empty, all are saved.
        with_children: an id stands for everything below it too.
        operation_names: prefixes of operation types, lower case; matched in addition to the ids.
        steps: execute counts to save, 0-based.
        device: the only device to save; None for all.
        log_level: member of :data:`LOG_LEVELS`.
        queue_bytes: bytes that may wait to be written before the host has to wait.
        min_free_bytes: free space that the capture leaves on the disk.
        dedupe: store identical tensors once.
        hand_over: directory in which the probe lists the topology files that it wrote.
        overflow_check: the library looks for infinities after each kernel and reports them.
        overflow_stop: an operation that overflows fails.
        odd_only: with types tensor and stats, write data only of tensors with NaN, infinite or
            saturated elements, and of small tensors of whole numbers; statistics of all others.

    Raises:
        UsageError: a combination that cannot be captured.
    """

    output: Path
    start_time: str
    types: tuple[str, ...] = ("tensor",)
    description_only: bool = False
    operation_ids: tuple[OpId, ...] = ()
    with_children: bool = True
    operation_names: tuple[str, ...] = ()
    steps: StepRange = FIRST_STEP
    save_time: SaveTime = SaveTime.AFTER
    tensor_part: TensorPart = TensorPart.BOTH
    tiling: bool = False
    device: int | None = None
    log_level: str = "info"
    queue_bytes: int = DEFAULT_QUEUE_BYTES
    min_free_bytes: int = DEFAULT_MIN_FREE_BYTES
    dedupe: bool = False
    hand_over: Path | None = None
    overflow_check: bool = False
    overflow_stop: bool = False
    odd_only: bool = False

    def __post_init__(self) -> None:
        if not self.types:
            raise UsageError("no dump type is given; name one of " + ", ".join(ATB_TYPES))
        for name in self.types:
            if name not in ATB_TYPES:
                raise UsageError(f"unknown dump type {name!r}; known: {', '.join(ATB_TYPES)}")
        if "onnx" in self.types and not {"model", "layer"} & set(self.types):
            raise UsageError(
                "type 'onnx' converts topology files; add 'model' or 'layer', as in "
                "--type model onnx"
            )
        if not self.output.is_absolute():
            raise UsageError(f"output directory {self.output} must be an absolute path")

    @property
    def dump_dir(self) -> Path:
        """The directory that the probe writes into."""
        return self.output / "ait_dump"

    @property
    def captures_tensors(self) -> bool:
        """True if single operations are selected by ids, names, steps and device."""
        return bool({"tensor", "stats"} & set(self.types))


# Variables that would change what is captured if they were left over from the user's shell.
CONTRACT_VARIABLES = frozenset(
    {
        "AIT_PROBE_DEDUPE",
        "AIT_PROBE_MIN_FREE_BYTES",
        "AIT_PROBE_ODD_ONLY",
        "AIT_PROBE_PATIENCE_SECONDS",
        "AIT_PROBE_QUEUE_BYTES",
        "AIT_PROBE_START_TIME",
        "ATB_AIT_LOG_LEVEL",
        "ATB_DEVICE_ID",
        "ATB_DUMP_SUB_PROC_INFO_SAVE_PATH",
        "ATB_DUMP_TYPE",
        "ATB_OUTPUT_DIR",
        "ATB_SAVE_CHILD",
        "ATB_SAVE_CPU_PROFILING",
        "ATB_SAVE_TENSOR",
        "ATB_SAVE_TENSOR_IDS",
        "ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER",
        "ATB_SAVE_TENSOR_PART",
        "ATB_SAVE_TENSOR_RANGE",
        "ATB_SAVE_TENSOR_RUNNER",
        "ATB_SAVE_TENSOR_TIME",
        "ATB_SAVE_TILING",
    }
)


def probe_environment(config: ProbeConfig) -> dict[str, str]:
    """The variables that tell the probe ``config``; a filter that is not set is absent."""
    variables = {
        "ATB_DUMP_TYPE": "|".join(config.types),
        "ATB_SAVE_TENSOR": "2" if config.description_only else "1",
        "ATB_SAVE_CHILD": _flag(config.with_children),
        "ATB_SAVE_TENSOR_RANGE": _steps(config.steps),
        "ATB_SAVE_TENSOR_TIME": str(int(config.save_time)),
        "ATB_SAVE_TENSOR_PART": str(int(config.tensor_part)),
        # Probes of the 2024 and 2025 generations save both phases unless this is 0.
        "ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER": "0",
        "ATB_SAVE_TILING": _flag(config.tiling),
        "ATB_SAVE_CPU_PROFILING": _flag("cpu_profiling" in config.types),
        # The trailing slash matters: other probes use the value as a plain prefix.
        "ATB_OUTPUT_DIR": f"{str(config.output).rstrip('/')}/",
        "ATB_AIT_LOG_LEVEL": str(LOG_LEVELS.index(config.log_level)),
        "AIT_PROBE_QUEUE_BYTES": str(config.queue_bytes),
        "AIT_PROBE_MIN_FREE_BYTES": str(config.min_free_bytes),
        "AIT_PROBE_DEDUPE": _flag(config.dedupe),
        "AIT_PROBE_START_TIME": config.start_time,
    }
    if config.operation_ids:
        variables["ATB_SAVE_TENSOR_IDS"] = ",".join(map(str, config.operation_ids))
    if config.operation_names:
        names = ",".join(name.lower() for name in config.operation_names)
        variables["ATB_SAVE_TENSOR_RUNNER"] = names
    if config.device is not None:
        variables["ATB_DEVICE_ID"] = str(config.device)
    if config.odd_only:
        variables["AIT_PROBE_ODD_ONLY"] = "1"
    if config.overflow_check:
        variables["ATB_CHECK_TYPE"] = "1"
        variables["ATB_EXIT"] = _flag(config.overflow_stop)
    if config.hand_over is not None:
        variables["ATB_DUMP_SUB_PROC_INFO_SAVE_PATH"] = str(config.hand_over)
    return variables


def child_environment(
    base: Mapping[str, str], variables: Mapping[str, str], preload: Path
) -> dict[str, str]:
    """The environment of the traced program.

    Args:
        base: the user's environment; kept, except for stale variables of the contract.
        variables: result of :func:`probe_environment`.
        preload: library put before any other in ``LD_PRELOAD``.
    """
    environment = {name: value for name, value in base.items() if name not in CONTRACT_VARIABLES}
    environment.update(variables)
    others = environment.get("LD_PRELOAD", "").strip(": ")
    environment["LD_PRELOAD"] = f"{preload}:{others}" if others else str(preload)
    return environment


def _flag(value: bool) -> str:
    return "1" if value else "0"


def _steps(steps: StepRange) -> str:
    return ",".join(
        f"{first},{_LAST_STEP_OF_ALL if last == 2**64 - 1 else last}"
        for first, last in steps.intervals
    )
