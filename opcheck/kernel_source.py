"""Where a kernel is written: the line that code scanning shows its faults at."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from ait_llm.dumps.source_lines import LIBRARY
from ait_llm.errors import UsageError
from ait_llm.report.summary.record import SourceLine

_WRAPPED = 16  # a Triton kernel is wrapped by its autotuner, heuristics and compiler


def source_of(kernel: Any, told: str | None = None) -> SourceLine | None:
    """The line where a kernel begins; None where Python does not know it, as of C++.

    Python functions, methods, callable objects, partial functions and Triton kernels (whose Python
    function is their ``fn``) know their line.

    Args:
        kernel: a callable, or anything else.
        told: ``csrc/rms_norm.cu:42`` as a user says it, which counts more.

    Raises:
        UsageError: what the user says is no line.
    """
    if told is not None:
        file, _, line = told.rpartition(":")
        if not file or not line.isdecimal() or not int(line):
            raise UsageError(f"source={told!r} is no line; write it like 'csrc/rms_norm.cu:42'")
        return SourceLine(file, int(line))
    function = _function(kernel)
    if function is None:
        return None
    code = function.__code__
    if LIBRARY.search(code.co_filename):  # such as torch's own call of a C++ operator
        return None
    return SourceLine(code.co_filename, code.co_firstlineno, function.__name__)


def _function(kernel: Any) -> Any:  # a function of Python, or None
    for _ in range(_WRAPPED):
        if isinstance(kernel, functools.partial):
            kernel = kernel.func
        elif inspect.ismethod(kernel):
            kernel = kernel.__func__
        elif inspect.isfunction(kernel):
            wrapped = getattr(kernel, "__wrapped__", None)
            if wrapped is None:
                return kernel
            kernel = wrapped
        elif getattr(kernel, "fn", None) is not None:  # triton.JITFunction, Autotuner, Heuristics
            kernel = kernel.fn
        else:
            called = inspect.getattr_static(type(kernel), "__call__", None)
            return called if inspect.isfunction(called) else None
    return None
