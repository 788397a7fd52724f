"""What a tool may read, run and answer."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ait_llm.errors import UsageError
from ait_llm.storage import is_url


@dataclass(frozen=True, slots=True)
class Limits:
    """What the person who starts the server permits.

    Attributes:
        folders: real paths; tools read and write below them only.
        programs: command lines that may be run; all others are refused.
        any_program: run whatever is asked for.
        most: characters of an answer.
        seconds: that a tool may take.
    """

    folders: tuple[Path, ...]
    programs: tuple[str, ...] = ()
    any_program: bool = False
    most: int = 20_000
    seconds: float = 600.0

    def path(self, text: str) -> str:
        """A path below one of the folders, with all links followed.

        Relative paths begin at the first folder.

        Raises:
            UsageError: it lies elsewhere, or is a URL.
        """
        if is_url(text) or "\0" in text:
            raise UsageError(f"{text!r} is no path of a permitted folder; {self._permitted()}")
        path = Path(os.path.realpath(self.folders[0] / Path(text).expanduser()))
        if not any(path == folder or folder in path.parents for folder in self.folders):
            raise UsageError(f"{text} is outside of the permitted folders; {self._permitted()}")
        return str(path)

    def program(self, command: str) -> str:
        """A command line that may be run.

        Raises:
            UsageError: it may not.
        """
        words = _words(command)
        if self.any_program or words in map(_words, self.programs):
            return command
        known = ", ".join(map(repr, self.programs)) or "none"
        raise UsageError(
            f"the program {command!r} may not be run; permitted: {known} (--program of "
            "ait llm mcp permits more)"
        )

    def _permitted(self) -> str:
        return f"permitted: {', '.join(map(str, self.folders))}"


def limits_of(
    folders: Sequence[Path],
    programs: Sequence[str],
    *,
    any_program: bool,
    most: int,
    seconds: float,
) -> Limits:
    """Limits with the real paths of folders.

    Raises:
        UsageError: one is no folder.
    """
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{folder}: is no folder; --allow takes folders that are there")
    real = tuple(Path(os.path.realpath(folder)) for folder in folders)
    return Limits(real, tuple(programs), any_program, most, seconds)


def _words(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError:
        return (command,)
