"""Every error that a user can cause or must hear about.

The command line turns an :class:`AitError` into one sentence on stderr and its exit code;
anything else is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ait_llm.naming import escaped, shown, told

PROGRAM_FAILED = 6
"""What a command that judges ends with where a program failed; its own code may be a verdict's."""
_SIGNALLED = 128


def code_of_failed(program_code: int) -> int:
    """What a command that judges ends with, from what a failed program ended with.

    A signal that ended the program stays to be seen, as 128 and its number.
    """
    return program_code if program_code > _SIGNALLED else PROGRAM_FAILED


class AitError(Exception):
    """Base of all expected errors. ``exit_code`` is what the command ends with.

    Copies of files from elsewhere go by their address in the message, and what names in files hold
    does not steer the terminal that shows it.
    """

    exit_code = 2

    def __init__(self, *args: object) -> None:
        super().__init__(*(told(each) if isinstance(each, str) else each for each in args))

    def __reduce__(self) -> tuple[Any, tuple[type[AitError], tuple[Any, ...], dict[str, Any]]]:
        """Let it travel between processes, whatever arguments its class takes."""
        return _made_again, (type(self), self.args, self.__dict__)


def _made_again(kind: type[AitError], args: tuple[Any, ...], fields: dict[str, Any]) -> AitError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class UsageError(AitError):
    """An option or argument has a value that cannot be used."""


class FormatError(AitError):
    """A file does not hold what its format promises.

    Args:
        path: the file.
        reason: what is wrong with it, as a clause without a final stop.
        advice: what the user can do next, as a sentence.
    """

    def __init__(self, path: Path | str, reason: str, advice: str = "") -> None:
        self.path = Path(path)
        self.reason = reason
        self.advice = advice
        super().__init__(f"{path}: {reason}" + (f". {advice}" if advice else ""))
        if not (name := str(path)).isprintable():  # a line end in it would make two lines
            self.args = (self.args[0].replace(told(name), escaped(shown(name)), 1),)


class MissingDependencyError(AitError):
    """An optional package or library is needed and absent."""


class ProbeError(AitError):
    """The probe library cannot be used with this program or this ATB."""


class IncompleteError(AitError):
    """Something that was asked for could not be captured or compared."""

    exit_code = 3


class OperationError(AitError):
    """An operation was given parameters or tensors that it cannot take."""


class UnknownNameError(AitError):
    """A registry has no entry of that name."""
