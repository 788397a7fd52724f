"""``ait llm``: one command per module, imported when it is used."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import click

from ait_llm.cli.main import GROUP, LazyGroup

_COMMANDS = {
    "api-check": "ait_llm.cli.api_check:api_check",
    "api-precision-compare": "ait_llm.cli.api_check:api_precision_compare",
    "bisect": "ait_llm.cli.bisect:bisect_command",
    "compare": "ait_llm.cli.compare:compare",
    "convert": "ait_llm.cli.convert:convert",
    "doctor": "ait_llm.cli.doctor:doctor",
    "dump": "ait_llm.cli.dump:dump",
    "errcheck": "ait_llm.cli.errcheck:errcheck",
    "merge-result": "ait_llm.cli.merge_result:merge_result",
    "opcheck": "ait_llm.cli.opcheck:opcheck",
    "replay": "ait_llm.cli.replay:replay",
    "repro": "ait_llm.cli.repro:repro",
    "show": "ait_llm.cli.show:show",
}


def own_commands() -> dict[str, EntryPoint]:
    """Our commands by name."""
    return {name: EntryPoint(name, value, GROUP) for name, value in _COMMANDS.items()}


@click.command(cls=LazyGroup, source=own_commands)
def llm() -> None:
    """Find the operator whose numbers go wrong in large language model inference."""
