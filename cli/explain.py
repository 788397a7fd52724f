"""``ait llm explain``: what an error code means, and what to do."""

from __future__ import annotations

from collections.abc import Mapping

import click

from ait_llm.cli.machine import emit
from ait_llm.cli.manual import ManualCommand
from ait_llm.cli.params import json_option, message_options
from ait_llm.cli.spoken import spoken
from ait_llm.language.codes import Explained, explained

CURES: Mapping[str, str] = {
    "DumpPathError": "give a folder that can be written, with a plain name",
    "FormatError": "give another file, or make this one again with the tool that wrote it",
    "IncompleteError": "make what the message names, and run the command again",
    "MissingDependencyError": "install the package that the message names",
    "OperationError": "give the operation parameters and tensors that it takes",
    "ProbeError": "run ait llm doctor, which says what the probe needs on this machine",
    "StorageError": "check the address, the rights and the network; then run the command again",
    "UnfinishedError": "run again what was cut off",
    "UnknownNameError": "give one of the names that the message lists",
}
"""What helps where a message says nothing of it, by class."""
_USUAL = "change the command line or the file that the message names"


@click.command(cls=ManualCommand)
@click.argument("code")
@json_option
@message_options
def explain(code: str, as_json: bool, log_level: str) -> None:
    """Say what an error code means, and what to do.

    \b
    ait llm explain AIT-F012

    A code stands in brackets behind the message of an error. docs/errors.md lists all of them.
    """
    found = explained(code)
    cure = found.cure or CURES.get(found.kind, _USUAL)
    if as_json:
        emit("explain", _plain(found, cure))
        return
    lines = [
        f"{found.code} is said by: {found.area}",
        f"  cause    {found.cause}",
        f"  cure     {cure}",
        f"  class    {found.kind}: {found.meaning}"
        if found.meaning
        else f"  class    {found.kind}",
        f"  ends     with exit code {found.exit_code}",
    ]
    click.echo(spoken("\n".join(lines)))


def _plain(found: Explained, cure: str) -> dict[str, object]:
    return {
        "code": found.code,
        "class": found.kind,
        "exit_code": found.exit_code,
        "area": found.area,
        "message": found.message,
        "meaning": found.meaning,
        "cause": found.cause,
        "cure": cure,
    }
