"""``ait llm mcp``: our commands as tools of an agent."""

from __future__ import annotations

from pathlib import Path

import click

from ait_llm.cli.manual import ManualCommand
from ait_llm.cli.params import message_options
from ait_llm.mcp.limits import limits_of


def _folders(
    _ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]
) -> tuple[Path, ...]:
    return tuple(Path(text).expanduser().absolute() for text in value)


@click.command("mcp", cls=ManualCommand)
@click.option(
    "--allow",
    "folders",
    multiple=True,
    required=True,
    callback=_folders,
    metavar="DIR",
    help="Folder below which tools read and write; may be repeated.",
)
@click.option(
    "--program",
    "programs",
    multiple=True,
    metavar="COMMAND",
    help="Command that plan and dump may run, word by word; may be repeated.  [default: none]",
)
@click.option("--any-program", is_flag=True, help="Let plan and dump run any command.")
@click.option(
    "--characters",
    "most",
    type=click.IntRange(1000),
    default=20_000,
    show_default=True,
    help="Longest answer of a tool.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(1),
    default=600.0,
    show_default=True,
    help="Longest time that a tool may take.",
)
@message_options
def mcp(
    folders: tuple[Path, ...],
    programs: tuple[str, ...],
    any_program: bool,
    most: int,
    seconds: float,
    log_level: str,
) -> None:
    """Offer doctor, plan, dump, compare, show, opcheck and errcheck to agents, over MCP.

    \b
    ait llm mcp --allow ./runs
    ait llm mcp --allow ./runs --program "python generate.py"

    Speaks the Model Context Protocol on stdin and stdout until stdin ends. Paths outside of the
    folders are refused, and so is every program that was not named.
    """
    from ait_llm.mcp.server import serve

    serve(limits_of(folders, programs, any_program=any_program, most=most, seconds=seconds))
