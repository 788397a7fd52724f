"""Overflow detection: calls that make NaN, Inf or saturated values from inputs that have none.

An NPU that saturates has a flag for it, which is read where ``torch_npu`` offers it. Everywhere
else the values are looked at.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ait_llm.dump.api.names import Api
from ait_llm.dump.ptdbg.files import DumpFiles, is_filtered, scalar_line, tensor_line, values_of
from ait_llm.dump.ptdbg.kernels import KernelDump
from ait_llm.dump.ptdbg.recording import Numbers, items_of
from ait_llm.dumps.ptdbg_lines import OVERFLOW_MARK

# What they return is memory that nobody has written yet.
_UNINITIALISED = frozenset({"empty", "empty_like", "empty_with_format", "resize_", "resize_as_"})
_log = logging.getLogger(__name__)


class _Call(NamedTuple):
    """A call that is being looked at.

    Attributes:
        name: of the call.
        parent: ptdbg knows no modules.
        args: what it got; copies where the call changes it.
        kwargs: what it got by name.
        clean: True if nothing in it had overflowed.
    """

    name: str
    parent: None
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    clean: bool


class OverflowRecording:
    """Looks at every call while the switch is on, and ends the program after some overflows.

    Args:
        numbers: of the calls.
        folder: of the rank, where ``Overflow_info_{time}_{n}.pkl`` are written.
        times: how many overflows end the program.
        kernels: has the device write the kernels of calls that overflowed.
    """

    def __init__(
        self, numbers: Numbers, folder: Path, times: int, kernels: KernelDump | None = None
    ) -> None:
        self.backward = True
        self.active = True
        self.is_on = True
        self.everything = False
        self.found = 0
        self._numbers = numbers
        self._folder = folder
        self._times = times
        self._kernels = kernels
        self._flag = device_flag()
        self._process = os.getpid()
        self._lock = threading.RLock()

    def wants(self, found: Api) -> bool:
        """Every function: numbers count calls inside a scope and outside."""
        return True

    def left_out(self, found: Api) -> _Call | None:
        """None: calls whose backward calls may be wanted are begun as others are."""

    def begin(
        self,
        found: Api,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        frame: FrameType | None,
        modules: list[str],
    ) -> _Call | None:
        """Look at what a call gets."""
        del frame, modules
        name = self._numbers.name(found)
        if not self._is_wanted() or found.name in _UNINITIALISED:
            return None
        clean = not any(map(is_overflowed, _tensors((args, *kwargs.values()))))
        kept = args
        if _changes_inputs(found.name, kwargs):
            kept = _copies(args)
        return _Call(name, None, kept, kwargs, clean)

    def end(self, call: _Call, output: Any, found: Api | None = None) -> None:
        """Look at what it returned.

        Raises:
            ValueError: it overflowed, and this was the last time that is allowed.
        """
        if self._is_wanted() and self._has_overflowed(call.clean, output):
            path = self._write(call.name, call.args, output)
            if self._kernels is not None and found is not None:
                self._kernels.rerun(call.name, found, call.args, call.kwargs)
            self._tell(path)

    def raised(self, call: _Call, error: BaseException) -> None:
        """A call that raised returned nothing to look at."""

    def drop(self, call: _Call) -> None:
        """An operator that left it to the other side."""

    def gradients(self, name: str, parent: str | None, arriving: Any, leaving: Any) -> None:
        """Look at a backward call.

        Raises:
            ValueError: as :meth:`end`.
        """
        if not self._is_wanted():
            return
        clean = not any(map(is_overflowed, _tensors(arriving)))
        if self._has_overflowed(clean, leaving):
            path = self._write(name, arriving, leaving)
            if self._kernels is not None:
                _log.info(
                    "%s is a backward call: dump its kernels with mode='acl' and its name", name
                )
            self._tell(path)

    def _is_wanted(self) -> bool:
        return self.is_on and self.found < self._times and os.getpid() == self._process

    def _has_overflowed(self, clean: bool, output: Any) -> bool:
        if self._flag is not None:
            return self._flag.is_raised()
        return clean and any(map(is_overflowed, _tensors(output)))

    def _write(self, name: str, given: Any, returned: Any) -> Path:
        with self._lock:
            self.found += 1
            stamp = time.strftime("%Y%m%d%H%M%S")
            path = self._folder / f"Overflow_info_{stamp}_{self.found}.pkl"
            files = DumpFiles(path)
            try:
                for part, value in (("input", given), ("output", returned)):
                    for item, each in items_of(f"{name}_{part}", value):
                        if self.everything or not is_filtered(each):
                            _put(files, item, each)
            finally:
                files.close()
            if self._flag is not None:
                self._flag.clear()
            _log.warning(
                "[overflow %d times]: module name :'%s' is overflow and dump file is saved "
                "in '%s'.",
                self.found,
                name,
                path,
            )
            return path

    def _tell(self, path: Path) -> None:
        if self.found >= self._times:
            raise ValueError(f"[overflow {self.found} times]: dump file is saved in '{path}'.")


def _put(files: DumpFiles, item: str, value: Any) -> None:
    try:
        if isinstance(value, Tensor):
            files.array(item, values_of(value))
            files.line(tensor_line(item, value, OVERFLOW_MARK, summary=False))
        elif isinstance(value, bool | int | float):
            files.line(scalar_line(item, value, OVERFLOW_MARK))
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        _log.warning("%s cannot be written: %s", item, error)


def is_overflowed(tensor: Tensor) -> bool:
    """True if a floating tensor has NaN, Inf, or a value at the limit of its 16 bits or less."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
        return False
    if tensor.layout is not torch.strided or tensor.is_meta:
        return False
    values = tensor.detach()
    if values.dtype.itemsize == 1:
        values = values.float()
    if not bool(torch.isfinite(values).all()):
        return True
    if tensor.is_complex() or tensor.dtype.itemsize > 2:
        return False
    return bool((values.abs() >= torch.finfo(tensor.dtype).max).any())


class _Flag(NamedTuple):
    """The overflow flag of an NPU that saturates."""

    functions: Any

    def is_raised(self) -> bool:
        return bool(self.functions._check_overflow_npu())

    def clear(self) -> None:
        self.functions._clear_overflow_npu()


def device_flag() -> _Flag | None:
    """The flag, cleared; None where values hold NaN and Inf, as everywhere but on some NPUs."""
    torch_npu: Any = sys.modules.get("torch_npu")
    functions = getattr(torch_npu, "_C", None)
    if functions is None or not hasattr(functions, "_check_overflow_npu"):
        return None
    if getattr(functions, "_npu_is_support_inf_nan", bool)():
        return None
    getattr(functions, "_enable_overflow_npu", bool)()
    flag = _Flag(functions)
    try:
        flag.clear()
    except RuntimeError as error:
        raise RuntimeError(
            f"the overflow flag of the NPU cannot be cleared ({error}); set the device of this "
            "process first: torch.npu.set_device(f'npu:{rank}')"
        ) from error
    return flag


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _tensors(each)


def _changes_inputs(name: str, kwargs: Mapping[str, Any]) -> bool:
    """True for ``add_``, ``__iadd__``, ``__setitem__`` and calls with ``out`` or ``inplace``."""
    in_place = name.endswith("_") and not name.endswith("__")
    special = name.startswith("__i") or name == "__setitem__"
    return in_place or special or "out" in kwargs or bool(kwargs.get("inplace"))


def _copies(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, tuple | list):
        return tuple(_copies(each) for each in value)
    return value
