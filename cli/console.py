"""What goes to the terminal besides results: messages, and whether they move or have colours.

Results go to stdout, all else to stderr. The rules are the same for every command: ``--quiet``
leaves results and errors only; colours and moving progress need a terminal, and neither is shown
where ``NO_COLOR``, ``TERM=dumb`` or ``CI`` say so.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO, TypeVar

import click

from ait_llm.cli.fitted import fitted
from ait_llm.cli.spoken import spoken
from ait_llm.naming import told

F = TypeVar("F", bound=Callable[..., Any])

_QUIET = "ait_llm.quiet"

EXITS = {
    0: "everything was done, and what was compared passed",
    1: "a verdict failed",
    2: "wrong usage, or input that cannot be read",
    3: "something could not be captured or compared",
    4: "a fault of ait itself",
    130: "interrupted",
}
"""What the exit codes mean, in every command."""

_HUES = {"PASS": "green", "complete": "green", "FAIL": "red", "INCOMPLETE": "yellow"}
_HEAD = re.compile(rf"\A(ait llm [\w-]+(?:: |\uff1a))({'|'.join(_HUES)})\b")

WORDS = {0: "PASS", 1: "FAIL", 3: "INCOMPLETE", 4: "INCOMPLETE"}
"""The verdict on all that was compared, by exit code."""


def quiet_option(function: F) -> F:
    """``-q/--quiet``."""
    return click.option(
        "-q",
        "--quiet",
        is_flag=True,
        expose_value=False,
        callback=lambda ctx, _param, value: ctx.meta.update({_QUIET: value}),
        help="Say nothing but results and errors: no progress, no notes.",
    )(function)


def is_quiet() -> bool:
    """True if the command that runs was given ``--quiet``."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool(ctx.meta.get(_QUIET))


def say(text: str) -> None:
    """A message: to stderr, unless the user wants none."""
    if not is_quiet():
        click.echo(marked(fitted(told(spoken(text)), sys.stderr), err=True), err=True)


def tell(text: str, code: int, *, as_json: bool, own: Mapping[int, str] = EXITS) -> None:
    """The result in words: to stdout, or as a message if the JSON line stands there.

    A reader at a terminal is also told what the exit code will mean, which ``own`` says of a
    command with codes of its own.
    """
    if (sys.stderr if as_json else sys.stdout).isatty():
        text = f"{text}\n  exit code {code}: {own.get(code, 'that of the program')}"
    if as_json:
        say(text)
    else:
        click.echo(marked(fitted(told(spoken(text)), sys.stdout), err=False))


def marked(text: str, *, err: bool) -> str:
    """A result in words with its verdict in colour, where colours are shown."""
    if not is_coloured(err=err):
        return text

    def colour(found: re.Match[str]) -> str:
        return found[1] + click.style(found[2], fg=_HUES[found[2]], bold=True)

    return _HEAD.sub(colour, text)


def is_coloured(*, err: bool) -> bool:
    """True on a terminal whose user did not ask for plain text (https://no-color.org)."""
    stream = sys.stderr if err else sys.stdout
    return stream.isatty() and not os.environ.get("NO_COLOR") and _terminal() != "dumb"


def can_move(stream: TextIO) -> bool:
    """True where a line may be drawn again and again: a terminal that is no log."""
    return stream.isatty() and _terminal() != "dumb" and not os.environ.get("CI")


def _terminal() -> str:
    return os.environ.get("TERM", "")
