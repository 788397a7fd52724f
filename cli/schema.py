"""``ait llm schema``: the JSON Schemas of what ``--json`` prints."""

from __future__ import annotations

import json

import click

from ait_llm.cli.manual import ManualCommand
from ait_llm.cli.params import message_options
from ait_llm.schemas import VERSIONS, read_schema


@click.command(cls=ManualCommand)
@click.argument("name", required=False, metavar="[NAME]")
@message_options
def schema(name: str | None, log_level: str) -> None:
    """Print the JSON Schema of an output, or list them.

    \b
    ait llm schema
    ait llm schema compare-result > compare-result.schema.json

    Every object that --json prints begins with the name and version of its schema.
    """
    if name is None:
        for each, version in VERSIONS.items():
            click.echo(f"{each:<24}version {version}  {read_schema(each)['title']}")
    else:
        click.echo(json.dumps(read_schema(name), indent=1))
