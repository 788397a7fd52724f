"""What a capture says of itself while a program runs: through ``logging``, as everything does.

All loggers are below ``ait_llm``. The library installs no handler, so an application hears of it
what it asks for. In programs that a command started nobody asks, and :func:`show_notices` lets
them through to stderr.
"""

from __future__ import annotations

import contextlib
import logging
import sys

ROOT = "ait_llm"
_log = logging.getLogger(f"{ROOT}.capture")


class _ToStderr(logging.Handler):
    """Writes to the stderr of the moment, as ``ait: text``; one that is closed breaks nothing."""

    def emit(self, record: logging.LogRecord) -> None:
        """One line."""
        with contextlib.suppress(Exception):
            sys.stderr.write(f"ait: {record.getMessage()}\n")


def notice(text: str) -> None:
    """Say something that the user of a capture should know, in a sentence."""
    _log.warning("%s", text)


def show_notices() -> None:
    """Show warnings of the library on stderr; for programs that know nothing of it."""
    logger = logging.getLogger(ROOT)
    if not logger.handlers:
        logger.addHandler(_ToStderr(logging.WARNING))
        logger.propagate = False
