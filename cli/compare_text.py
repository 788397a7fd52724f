"""What ``ait llm compare`` says about its result besides the report."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ait_llm.core.comparison import Report, Verdict
from ait_llm.naming import shown
from ait_llm.report.jsonl_records import origin
from ait_llm.report.next_command import next_command
from ait_llm.report.wording import printable

_ONE_LIFE = {"resume", "as_json"}  # options that a further command chooses anew


def started(report: Report) -> str:
    """What is going to be compared."""
    sides = f"{report.mine.path} ({report.mine.kind}) with {report.golden.path}"
    return printable(f"comparing {sides} ({report.golden.kind})")


def given_words(ctx: click.Context) -> list[str]:
    """The command as it was given, without what belongs to this run only."""
    words = ["ait", "llm", "compare"]
    for param in ctx.command.params:
        name = param.name or ""
        if name in _ONE_LIFE or name not in ctx.params:
            continue
        if ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        value = ctx.params[name]
        if value is False:  # the negative spelling of a switch
            words.append(param.secondary_opts[0])
            continue
        words.append(param.opts[0])
        if isinstance(value, tuple):
            words += (shown(str(each)) for each in value)
        elif value is not True:
            words.append(shown(str(value)))  # a URL as it was given
    return words


def what_next(report: Report, words: Sequence[str], journal: Path, formats: Sequence[str]) -> str:
    """The command that helps most now; empty if none does.

    Args:
        report: what was found.
        words: the command that was given.
        journal: the jsonl report of an interrupted comparison.
        formats: what was written.
    """
    if report.partial:
        return shlex.join([*words, "--resume", str(journal)])
    if report.verdict is Verdict.FAIL and len(report.comparisons) > 1 and "html" not in formats:
        if "--format" in words:
            place = list(words).index("--format") + 1
            return shlex.join([*words[:place], "html", *words[place:]])
        return shlex.join([*words, "--format", "csv", "html"])
    return next_command(report)


def as_dict(report: Report, files: Sequence[Path], next_command: str, code: int) -> dict[str, Any]:
    """The result in JSON types, for ``--json``; ``code`` is what the command ends with."""
    return {
        "verdict": report.verdict.value,
        "exit_code": code,
        "scenario": report.scenario,
        "counts": {verdict.value: count for verdict, count in report.counts.items()},
        "not_comparable": report.not_comparable,
        "left_out": report.left_out,
        "complete": report.complete,
        "partial": report.partial,
        "origins": [origin(item) for item in report.origins],
        "problems": [problem.text for problem in report.problems],
        "reports": [str(path) for path in files],
        "next": next_command or None,
    }
