"""``ait llm attach``: switch the capture of a running program."""

from __future__ import annotations

import click

from ait_llm.cli.console import say
from ait_llm.cli.dump_text import table
from ait_llm.cli.machine import emit
from ait_llm.cli.manual import ManualCommand
from ait_llm.cli.numbers import human_bytes
from ait_llm.cli.params import json_option, message_options
from ait_llm.dump.attach import Attached, ProcessState, find_run, state_of, switch


@click.command(cls=ManualCommand)
@click.argument("pid", type=click.IntRange(1))
@click.argument("action", type=click.Choice(["on", "off", "status"]))
@message_options
@json_option
def attach(pid: int, action: str, log_level: str, as_json: bool) -> None:
    """Switch the capture of a running program on or off, or say what it does.

    \b
    ait llm dump --exec "vllm serve DIR" --type torch -er all --start off -o out
    ait llm attach 4242 on
    ait llm attach 4242 off

    PID is ait llm dump itself, or any process of the program that it started. While the capture is
    off no hook is left in the model. It begins and ends between two passes: a server that has
    nothing to do takes it up with its next request.
    """
    run = find_run(pid)
    found = state_of(run) if action == "status" else switch(run, on=action == "on")
    say(describe_attached(found))
    if as_json:
        emit("attach", found.as_dict())


def describe_attached(found: Attached) -> str:
    """What a run and its processes do."""
    lines = [("process", _process(each, found)) for each in found.processes]
    lines.append(("into", f"{found.output} ({human_bytes(found.written)} written)"))
    return table(f"ait llm attach: {'on' if found.wanted else 'off'}", lines)


def _process(each: ProcessState, found: Attached) -> str:
    name = each.process.rpartition("_")[2]
    if each.on is not found.wanted:  # it waits for work, or is within a long pass
        return f"{name} captures {'' if found.wanted else 'nothing '}from its next pass on"
    last = max(each.steps, default=-1)
    state = f"{name} captures" if each.on else f"{name} does not capture"
    return f"{state} since step {last + each.on}" if last >= 0 else state
