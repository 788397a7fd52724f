"""The device that this thread's operations run on, and its context.

As in ``torch_atb``, every thread has a context of its own, made when it first runs an operation.
The device is only a number here: it names the directory of dumped tensors, as on a machine with
several cards.
"""

from __future__ import annotations

import os
import threading
import weakref

from ait_llm.errors import UsageError
from ait_llm.hostatb.native import NativeContext

DEVICE_VARIABLES = ("HOSTATB_DEVICE_ID", "LOCAL_RANK")


class _Owner:
    """Closes its context when its thread ends, or else at interpreter exit."""

    def __init__(self, device: int) -> None:
        self.context = NativeContext(device)
        self.context.set_stream()
        weakref.finalize(self, self.context.close)


class _Local(threading.local):
    def __init__(self) -> None:
        self.device: int | None = None
        self.owners: dict[int, _Owner] = {}


_local = _Local()


def default_device() -> int:
    """The device of a thread that chose none: ``HOSTATB_DEVICE_ID``, else ``LOCAL_RANK``, else 0.

    Raises:
        UsageError: the variable is not a whole number.
    """
    for name in DEVICE_VARIABLES:
        text = os.environ.get(name)
        if text:
            if not text.isdecimal():
                raise UsageError(f"{name} is {text!r}; it must be a whole number, such as 0")
            return int(text)
    return 0


def set_device(device: int) -> None:
    """Choose the device of this thread's later operations.

    Raises:
        UsageError: the number is negative.
    """
    if device < 0:
        raise UsageError(f"device {device} is negative; devices count from 0")
    _local.device = device


def current_device() -> int:
    """The device of this thread.

    Raises:
        UsageError: the environment names no valid one.
    """
    if _local.device is None:
        _local.device = default_device()
    return _local.device


def current_context() -> NativeContext:
    """The context of this thread on its device; made at the first call.

    Raises:
        UsageError: the environment names no valid device.
        ProbeError: the runtime is not built.
    """
    device = current_device()
    owner = _local.owners.get(device)
    if owner is None:
        owner = _local.owners[device] = _Owner(device)
    return owner.context
