"""``ait llm doctor``: what this machine offers, and what is missing."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path

import click

from ait_llm.cli.fitted import fitted
from ait_llm.cli.machine import emit
from ait_llm.cli.manual import ManualCommand
from ait_llm.cli.params import absolute_path, json_option, message_options
from ait_llm.dump.checkup import Finding, check_machine
from ait_llm.errors import IncompleteError
from ait_llm.language import translate

_MARKS = {"ok": "ok", "absent": "--", "broken": "!!"}


@click.command(cls=ManualCommand)
@click.option(
    "-o",
    "--output",
    default="./",
    show_default=True,
    callback=absolute_path,
    metavar="DIR",
    help="Directory whose free space is looked at.",
)
@message_options
@json_option
@click.pass_context
def doctor(ctx: click.Context, /, output: Path, log_level: str, as_json: bool) -> None:
    """Check Python, torch, ATB, CANN, the probe and disk space.

    \b
    ait llm doctor

    Says what each missing thing disables, and tries one capture on the embedded CPU library.
    Exits with 3 if that does not work.
    """
    findings = check_machine(os.environ, output)
    works = all(finding.status == "ok" for finding in findings if finding.essential)
    if as_json:
        emit("doctor", {"works": works, "findings": [asdict(item) for item in findings]})
    else:
        for line in _lines(findings):
            click.echo(fitted(translate(line), sys.stdout))
        text = (
            "The embedded default works; start with: ait llm dump --help"
            if works
            else "The embedded default does not work; see the lines marked with !! and --"
        )
        click.echo(fitted(translate(text), sys.stdout))
    if not works:
        ctx.exit(IncompleteError.exit_code)


def _lines(findings: list[Finding]) -> list[str]:
    width = max(len(finding.name) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{_MARKS[finding.status]}  {finding.name:<{width}}  {finding.detail}")
        if finding.disables:
            lines.append(f"    {'':<{width}}  disables: {finding.disables}")
    return lines
