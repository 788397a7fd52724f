"""Devices under test: which there are, and how they are made ready."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from ait_llm.core.optional import import_optional
from ait_llm.errors import MissingDependencyError, UsageError

if TYPE_CHECKING:
    import torch

_KINDS = ("npu", "cuda", "cpu")


def choose_devices(text: str = "") -> list[torch.device]:
    """The devices that a text names.

    Args:
        text: ``cpu``, ``cuda:0``, ``npu:0,npu:1``; numbers alone, ``0,1``, mean the best kind that
            there is; empty for the first of that kind.

    Raises:
        UsageError: there is no such device.
        MissingDependencyError: its package is not installed.
    """
    framework = import_optional("torch", "running functions again")
    words = text.replace(",", " ").split() or [""]
    found = [_device(framework, word) for word in words]
    if len({device.type for device in found}) > 1:
        raise UsageError(f"--device {text!r} names devices of several kinds; choose one kind")
    return list(dict.fromkeys(found))


def set_up(kind: str, *, jit_compile: bool = False) -> None:
    """Make a kind of device compute as operators define it.

    Args:
        kind: ``npu``, ``cuda`` or ``cpu``.
        jit_compile: let the NPU compile its operators for each shape.
    """
    import torch

    if kind == "npu":
        npu: Any = getattr(torch, "npu")  # noqa: B009  # torch_npu puts it there
        npu.set_compile_mode(jit_compile=jit_compile)
    elif jit_compile:
        raise UsageError("--jit-compile is for NPUs; leave it out on other devices")


def _device(framework: ModuleType, word: str) -> torch.device:
    kind, _, number = word.partition(":")
    if word.isdigit():
        kind, number = "", word
    if not kind:
        kind = next(each for each in _KINDS if _count(framework, each))
        if kind == "cpu" and number:
            raise UsageError(
                f"--device {word}: there is no accelerator here; --device cpu checks the CPU itself"
            )
    if kind not in _KINDS or (number and not number.isdigit()):
        raise UsageError(f"--device {word!r} is none; write it like cpu, cuda:0 or npu:0")
    if kind == "npu":
        import_optional("torch_npu", "--device npu", "torch_npu")
    count = _count(framework, kind)
    index = int(number or 0)
    if index >= count:
        raise UsageError(
            f"--device {word}: there are {count} devices of the kind {kind} here"
            if count
            else f"--device {word}: there is no {kind} here; --device cpu checks the CPU itself"
        )
    found: torch.device = framework.device(*((kind, index) if kind != "cpu" else (kind,)))
    return found


def _count(framework: ModuleType, kind: str) -> int:
    if kind == "cpu":
        return 1
    if kind == "cuda":
        return int(framework.cuda.device_count()) if framework.cuda.is_available() else 0
    try:
        import_optional("torch_npu", "--device npu", "torch_npu")
    except MissingDependencyError:
        return 0
    return int(framework.npu.device_count())
