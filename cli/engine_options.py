"""``--engine`` and ``--address``: where commands compute."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from ait_llm.cli.supervised import RUNS_COMMAND, is_supervised, supervise
from ait_llm.engine import ENGINES, Engine, open_engine
from ait_llm.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--engine",
        "engine_name",
        type=click.Choice(ENGINES),
        default="local",
        show_default=True,
        help="Where to compute: 'local' in threads, 'ray' in worker processes of Ray, on this "
        "machine or with --address on a cluster.",
    ),
    click.option(
        "--address",
        metavar="ADDR",
        help="A running Ray cluster: auto, or HOST:PORT.  [default: start worker processes here]",
    ),
)


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """What the user asked for.

    Attributes:
        name: ``local`` or ``ray``.
        address: of a running cluster; None to start worker processes here.
    """

    name: str = "local"
    address: str | None = None

    def open(self, jobs: int | None = None) -> AbstractContextManager[Engine | None]:
        """See :func:`ait_llm.engine.open_engine`."""
        return open_engine(self.name, self.address, jobs)


def engine_options(command: F) -> F:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def take_engine(settings: dict[str, Any]) -> EngineChoice:
    """Take what :func:`engine_options` added out of a command's arguments.

    Raises:
        UsageError: an address without an engine that has one.
    """
    choice = EngineChoice(settings.pop("engine_name"), settings.pop("address"))
    if choice.address is not None and choice.name == "local":
        raise UsageError("--address is for --engine ray")
    if choice.name == "ray" and not is_supervised() and RUNS_COMMAND.get():
        raise click.exceptions.Exit(supervise())
    return choice
