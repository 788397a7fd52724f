"""Exceptions that nobody foresaw: what is kept of them until the command ends.

An exception of that kind is a fault of ait itself. Where many results are made one by one it costs
its own result, and the rest is told; the command ends with :data:`EXIT_CODE` whatever was found.
"""

from __future__ import annotations

import traceback

EXIT_CODE = 4
A_FAULT = "a fault of ait"


class FaultElsewhereError(Exception):
    """An exception that nobody foresaw in another process, with its own traceback as the text."""


def trace_of(error: BaseException) -> str:
    """The traceback as Python prints it, with the exceptions that led to it."""
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


def told(error: BaseException) -> str:
    """What stands in a report where a result should be: ``a fault of ait: KeyError: 'x'``."""
    return f"{A_FAULT}: {named(error)}"


def named(error: BaseException) -> str:
    """``KeyError: 'x'``, in one line."""
    if isinstance(error, FaultElsewhereError):
        return str(error).rstrip().rpartition("\n")[2]
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
