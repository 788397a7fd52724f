"""``ait llm``: one command per module, imported when it is used."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint

import click
from click.shell_completion import CompletionItem

from ait_llm.cli.main import GROUP, LazyGroup
from ait_llm.cli.manual import write_examples
from ait_llm.cli.version import version_options
from ait_llm.language import translate


@dataclass(frozen=True, slots=True)
class Listed:
    """A command as the list shows it, without loading it.

    Attributes:
        group: the title beside which it stands.
        value: module and name, as an entry point writes them.
        summary: what it does, in a line of the list.
        hidden: left out of the list, which has to fit a screen.
    """

    group: str
    value: str
    summary: str
    hidden: bool = False


_CLI = "ait_llm.cli"
COMMANDS = {
    "dump": Listed("Capture", f"{_CLI}.dump:dump", "Run a program and save what it computes."),
    "attach": Listed("", f"{_CLI}.attach:attach", "Switch the capture of a running program."),
    "plan": Listed("", f"{_CLI}.plan:plan", "Tell what a capture would write."),
    "golden": Listed("", f"{_CLI}.golden:golden", "Run a checkpoint on the tokens of a capture."),
    "check": Listed("Compare", f"{_CLI}.check:check", "Compare a program with its checkpoint."),
    "compare": Listed("", f"{_CLI}.compare:compare", "Compare a run with a trusted one."),
    "bisect": Listed(
        "", f"{_CLI}.bisect:bisect_command", "Find where two programs part, for few bytes."
    ),
    "invariant": Listed(
        "", f"{_CLI}.invariant:invariant", "Change what must not matter, and compare."
    ),
    "transplant": Listed(
        "", f"{_CLI}.transplant:transplant", "Tell which difference matters for the answer."
    ),
    "tokens": Listed("", f"{_CLI}.tokens:tokens", "Tell why a token is another one."),
    "api-precision-compare": Listed(
        "",
        f"{_CLI}.api_check:api_precision_compare",
        "Compare API checks of two devices.",
        hidden=True,
    ),
    "merge-result": Listed(
        "",
        f"{_CLI}.merge_result:merge_result",
        "Put the tables of all ranks side by side.",
        hidden=True,  # of msprobe's tables, as the one above
    ),
    "opcheck": Listed("Check", f"{_CLI}.opcheck:opcheck", "Check operators against golden ones."),
    "errcheck": Listed("", f"{_CLI}.errcheck:errcheck", "Find where NaN and Inf are born."),
    "api-check": Listed(
        "", f"{_CLI}.api_check:api_check", "Run recorded API calls again on the CPU."
    ),
    "replay": Listed("", f"{_CLI}.replay:replay", "Compute a captured graph with golden ones."),
    "show": Listed("Tools", f"{_CLI}.show:show", "List the operations of a dump."),
    "convert": Listed("", f"{_CLI}.convert:convert", "Convert tensor files to another format."),
    "export": Listed(
        "", f"{_CLI}.export:export", "Write a dump or report for other programs.", hidden=True
    ),
    "repro": Listed("", f"{_CLI}.repro:repro", "Put one operator into a zip of its own."),
    "doctor": Listed("", f"{_CLI}.doctor:doctor", "Say what works on this machine."),
    "mcp": Listed("", f"{_CLI}.mcp:mcp", "Offer these commands to agents, over MCP.", hidden=True),
    "explain": Listed("", f"{_CLI}.explain:explain", "Say what an error code means.", hidden=True),
    "schema": Listed(
        "", f"{_CLI}.schema:schema", "Print the JSON Schema of an output.", hidden=True
    ),
}
"""In the order of the list; an empty group is that of the command before."""

_EXAMPLES = ["ait llm COMMAND --help"]
"""One line, so that the list fits a screen; each command shows its own."""

_FIRST = [
    'ait llm dump --type torch --exec "python trusted.py" -o golden',
    'ait llm dump --type torch --exec "python mine.py" -o mine',
    "ait llm compare -gp golden -mp mine -o report --format html",
]
"""What to begin with, where nothing was asked."""
_ALONE = "ait_llm.alone"  # in the context: without any argument


def own_commands() -> dict[str, EntryPoint]:
    """Our commands by name."""
    return {name: EntryPoint(name, each.value, GROUP) for name, each in COMMANDS.items()}


class GroupedCommands(LazyGroup):
    """Lists its commands by purpose, on one screen and without loading them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As the base class; remembers whether there were any."""
        ctx.meta[_ALONE] = not args
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """How it is called; examples tell that better, and a screen has no room for both."""
        if not ctx.meta.get(_ALONE):
            super().format_usage(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list and the examples; the few options go without saying."""
        width = max(len(translate(each.group)) for each in COMMANDS.values())
        rows = [
            (f"{translate(each.group):<{width}}  {name}", each.summary)
            for name, each in COMMANDS.items()
            if not each.hidden
        ]
        with formatter.indentation():  # right below the sentence, so that the list fits a screen
            formatter.write_dl(rows, col_max=40)
        lines = _FIRST if ctx.meta.get(_ALONE) else _EXAMPLES
        write_examples(lines, formatter, apart=False)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands that begin so."""
        names = [
            CompletionItem(name, help=translate(each.summary))
            for name, each in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


@click.command(cls=GroupedCommands, source=own_commands)
@version_options
def llm() -> None:
    """Find the operator whose numbers go wrong in large language model inference."""
