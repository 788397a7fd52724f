"""Options of a capture as the command line that asks for them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ait_llm.core import StepRange
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.probe import ProbeConfig, SaveTime, TensorPart
from ait_llm.probe.config import DEFAULT_MIN_FREE_BYTES, DEFAULT_QUEUE_BYTES, FIRST_STEP


def dump_command(command: str, options: ProbeConfig | TorchSettings, more: str = "") -> str:
    """``ait llm dump`` with options; those at their default are left out.

    Args:
        command: what ``--exec`` gets.
        options: options of the capture.
        more: options that are no part of it, such as ``--probe-lib``, as text.
    """
    words = ["ait", "llm", "dump", "--exec", command, *_words(options)]
    return shlex.join(words) + (f" {more}" if more else "")


def _words(options: ProbeConfig | TorchSettings) -> Iterator[str]:
    yield from ("--type", *options.types)
    if isinstance(options, ProbeConfig):
        yield from _atb(options)
    else:
        yield from _torch(options)
    if options.steps != FIRST_STEP:
        yield from ("-er", str(options.steps))
    if options.description_only:
        yield "-sd"
    if options.queue_bytes != DEFAULT_QUEUE_BYTES:
        yield from ("--queue-size", str(options.queue_bytes))
    yield from ("-o", str(options.output))


def _atb(config: ProbeConfig) -> Iterator[str]:
    if config.operation_ids:
        yield from ("-ids", ",".join(map(str, config.operation_ids)))
    if not config.with_children:
        yield from ("-child", "False")
    if config.operation_names:
        yield from ("-opname", ",".join(config.operation_names))
    if config.save_time is not SaveTime.AFTER:
        yield from ("-time", str(int(config.save_time)))
    if config.tensor_part is not TensorPart.BOTH:
        yield from ("-stp", str(int(config.tensor_part)))
    if config.tiling:
        yield "-tiling"
    if config.device is not None:
        yield from ("-device", str(config.device))
    if config.log_level != "info":
        yield from ("-l", config.log_level)
    if config.dedupe:
        yield "--dedupe"
    if config.min_free_bytes != DEFAULT_MIN_FREE_BYTES:
        yield from ("--min-free", str(config.min_free_bytes))


def _torch(settings: TorchSettings) -> Iterator[str]:
    for name in settings.module_names:
        yield from ("--module-name", name)
    if settings.layers:
        yield from ("--layers", str(StepRange(settings.layers)))
    if settings.type_prefixes:
        yield from ("-opname", ",".join(settings.type_prefixes))
    if not (settings.inputs and settings.outputs):
        yield from ("-stp", "0" if settings.inputs else "1")
    if settings.device_id is not None:
        yield from ("-device", str(settings.device_id))
    if settings.own_code:
        yield "--own-code"
    if settings.weights:
        yield "--weights"
    if settings.warmup:
        yield from ("--warmup", str(settings.warmup))
    if settings.follow is not None:
        yield from ("--follow", str(settings.follow))
    if settings.observe:
        yield "--verify-observer"
