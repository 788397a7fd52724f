"""``--format markdown github sarif html``: a result for a build or a browser, alike everywhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from ait_llm.cli.completed import CompletedWords
from ait_llm.cli.params import ManyOption, comma_list, input_path
from ait_llm.core import Registry
from ait_llm.dumps.source_lines import source_lines
from ait_llm.errors import AitError
from ait_llm.naming import told
from ait_llm.report.baseline import Against
from ait_llm.report.summary import (
    BUILD_FORMATS,
    FORMATS,
    Finding,
    SourceLine,
    Summary,
    Table,
    annotate,
    finding_order,
    summary_files,
    wants_places,
    write_summaries,
)

F = TypeVar("F", bound=Callable[..., Any])

known: Registry[str] = Registry("summary format")
for _name in FORMATS:
    known.register(_name)(_name)


def _formats(_ctx: click.Context, _param: click.Parameter, value: Any) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name for text in value or () for name in comma_list(text)))
    return tuple(known.get(name) for name in names)


def summary_option(function: F) -> F:
    """``--format`` of a command whose other files have formats of their own."""
    return click.option(
        "--format",
        "formats",
        cls=ManyOption,
        type=CompletedWords(lambda: FORMATS),
        callback=_formats,
        metavar="NAME ...",
        help="The result as 'html', one page to look at offline, or for a build: 'markdown', "
        "'sarif', or 'github', which annotates the run and adds to the summary of its step.  "
        "[default: none]",
    )(function)


def baseline_option(what: str) -> Callable[[F], F]:
    """``--baseline``: only what became worse than an earlier result fails.

    Args:
        what: kind of file that it takes.
    """
    return click.option(
        "--baseline",
        callback=input_path,
        metavar="FILE",
        help=f"Fail only for what became worse than in {what}.  [default: none]",
    )


def split_summaries(
    formats: Sequence[str], every: Iterable[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Formats of the command's own, and those of summaries.

    Args:
        formats: that were asked for.
        every: all that the command knows.

    Raises:
        UnknownNameError: one is none of these.
    """
    names: Registry[str] = Registry("report format")
    for name in every:
        names.register(name)(name)
    for name in formats:
        names.get(name)
    summaries = tuple(name for name in formats if name in BUILD_FORMATS)
    return tuple(name for name in formats if name not in BUILD_FORMATS), summaries


def places_in(
    path: Path | None, names: Collection[str], formats: Collection[str]
) -> Mapping[str, SourceLine]:
    """Lines of source that made operations of a dump; none where no format has use for them."""
    if path is None or not names or not wants_places(formats):
        return {}
    from ait_llm.dumps import open_dump

    try:
        return source_lines(open_dump(path), names)
    except AitError:  # the command has said already what cannot be read
        return {}


@dataclass(frozen=True, slots=True)
class Build:
    """Where a command leaves what a build reads.

    Attributes:
        formats: summaries that were asked for.
        folder: of their files.
        stem: name of their files without its ending.
    """

    formats: tuple[str, ...]
    folder: Path
    stem: str

    def files(self) -> list[Path]:
        """The files that :meth:`publish` is going to write."""
        return summary_files(self.formats, self.folder, self.stem)

    def publish(self, summary: Summary, *, as_json: bool, tables: Sequence[Table] = ()) -> None:
        """Write the files, and print annotations: to stderr if the JSON line stands on stdout.

        GitHub reads both. They are printed with ``--quiet`` too, because they were asked for.

        Raises:
            UsageError: a file cannot be written.
        """
        if not self.formats:
            return
        write_summaries(summary, self.files(), tables)
        for line in annotate(summary, self.formats, os.environ):
            click.echo(told(line), err=as_json)


def summary_against(summary: Summary, against: Against) -> Summary:
    """The same with what the baseline makes of it: what is known decides nothing."""
    worse = against.worse_operators()
    sources = {each.where: each.source for each in summary.findings if each.source is not None}
    findings = [*against.findings(sources), *_of_worse(summary.findings, worse)]
    counts: Mapping[str, int] = {**summary.counts, **against.counts}
    return replace(
        summary,
        about=f"{summary.about}; held against {against.path}",
        counts=counts,
        findings=finding_order(findings),
        lacking=tuple(against.missing),
    )


def _of_worse(findings: Sequence[Finding], worse: frozenset[str]) -> Iterator[Finding]:
    for each in findings:
        if each.rule in ("origin", "suspect"):
            yield each if each.where in worse else replace(each, level="notice")
