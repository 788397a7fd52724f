"""``ait completion``: scripts that make a shell complete commands, options and their values."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from ait_llm.cli.manual import ManualCommand

SHELLS = ("bash", "zsh", "fish")
PROGRAM, VARIABLE = "ait", "_AIT_COMPLETE"


@click.command(cls=ManualCommand)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, /, shell: str) -> None:
    """Print a script that makes a shell complete commands, options and their values.

    \b
    echo 'eval "$(ait completion bash)"' >> ~/.bashrc
    echo 'eval "$(ait completion zsh)"' >> ~/.zshrc
    ait completion fish > ~/.config/fish/completions/ait.fish
    ait completion bash

    SHELL is bash (4.4 or later), zsh or fish. A new shell completes then; the lines above need to
    run once.
    """
    kind = get_completion_class(shell)
    assert kind is not None  # all of SHELLS come with click
    script = kind(ctx.find_root().command, {}, PROGRAM, VARIABLE)
    # The class's own source() asks bash for its version, which may not be the user's.
    click.echo(script.source_template % script.source_vars())
