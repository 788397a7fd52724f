"""What a command says of a fault of its own: one sentence, and a file to report it with."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from ait_llm import __version__
from ait_llm.faults import A_FAULT, EXIT_CODE, named, trace_of
from ait_llm.language import translate
from ait_llm.naming import shown, told

DEBUG = "AIT_DEBUG"
"""Environment variable: anything but nothing shows the traceback of an error."""

_MODE = 0o640


def end_with_fault(error: BaseException) -> int:
    """Tell of an exception that nobody foresaw, and return what the command ends with."""
    return tell_faults({named(error): trace_of(error)})


def tell_faults(faults: Mapping[str, str]) -> int:
    """Tell of faults, and return what the command ends with; 0 and no word where there are none.

    Args:
        faults: tracebacks by what was said of each.
    """
    if not faults:
        return 0
    path = _written(list(faults.values()))
    where = "the traceback above" if path is None else shown(str(path))
    if path is None or shows_traces():
        _say("\n".join(faults.values()))
    what = next(iter(faults)).partition(f"{A_FAULT}: ")[2] or next(iter(faults))
    text = f"a fault of ait itself ({what}), not of your input; please report it with {where}"
    _say(f"ait: {translate('error')}{translate(': ')}{translate(told(text))}")
    return EXIT_CODE


@contextlib.contextmanager
def keeping(journal: Path, option: str) -> Iterator[None]:
    """Where the block ends with an exception, say that what was done until then is kept.

    Args:
        journal: a file that grows in the block, with one line before the first result.
        option: the one that goes on from such a file.
    """
    try:
        yield
    except BaseException:
        if _has_results(journal):
            text = f"what was done is kept in {journal}; {option} {journal} goes on from there"
            _say(told(f"ait: {translate(text)}"))
        raise


def _has_results(journal: Path) -> bool:
    with contextlib.suppress(OSError), journal.open("rb") as file:
        return bool(file.readline() and file.readline())
    return False


def shows_traces() -> bool:
    """True where the user wants to see tracebacks: ``--log-level debug`` or the environment."""
    return bool(os.environ.get(DEBUG)) or logging.getLogger("ait_llm").isEnabledFor(logging.DEBUG)


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # nobody listens any more
        click.echo(text, err=True)


def _written(traces: Sequence[str]) -> Path | None:
    """The file with the tracebacks; None where none can be written."""
    from ait_llm.storage.addresses import redacted

    words = (redacted(word) for word in ["ait", *sys.argv[1:]])
    head = (
        f"ait {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
        f"{shlex.join(words)}\n"
    )
    text = "\n".join([head, *dict.fromkeys(traces)])
    name = f"ait_fault_{time.strftime('%Y%m%d%H%M%S')}_{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for folder in (Path.cwd, Path(tempfile.gettempdir()).absolute):
        for number in range(100):
            with contextlib.suppress(OSError):
                path = folder() / f"{name}{f'_{number}' if number else ''}.txt"
                handle = os.open(path, flags, _MODE)
                with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                    file.write(text)
                return path
    return None
