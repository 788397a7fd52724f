"""How a command that captures ends: the result for machines and the exit code."""

from __future__ import annotations

from typing import Any, Protocol

import click

from ait_llm.cli.console import marked, say
from ait_llm.cli.machine import emit
from ait_llm.cli.spoken import spoken
from ait_llm.errors import IncompleteError
from ait_llm.naming import told


class Result(Protocol):
    """What a capture brought back."""

    @property
    def exit_code(self) -> int:
        """How the program ended."""

    @property
    def complete(self) -> bool:
        """True if everything that was asked for lies on disk."""

    def as_dict(self) -> dict[str, Any]:
        """The result in JSON types."""


def report(text: str, result: Result) -> None:
    """Say on stderr, as stdout is the program's, what came back; a loss also with ``--quiet``."""
    if result.exit_code or not result.complete:
        click.echo(marked(told(spoken(text)), err=True), err=True)
    else:
        say(text)


def finish(
    ctx: click.Context,
    result: Result,
    next_command: str | None,
    as_json: bool,
    allow_skip: bool,
    *,
    verdict: int = 0,
    schema: str = "dump",
) -> None:
    """Print the JSON line if asked for, and end with the program's code.

    If that is 0, it is the code of a verdict on the capture, or 3 if the capture is incomplete.
    """
    if as_json:
        # On a line of its own even if the program left its last line open.
        emit(schema, {**result.as_dict(), "next": next_command}, lead="\n")
    if result.exit_code:
        ctx.exit(result.exit_code)
    if verdict:
        ctx.exit(verdict)
    if not result.complete and not allow_skip:
        ctx.exit(IncompleteError.exit_code)
