"""The common record of all commands that give a verdict: what a build has to know of a result."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Level = Literal["error", "warning", "notice"]
"""``error`` decides exit code 1, ``warning`` code 3, ``notice`` decides nothing."""

_ORDER: Mapping[Level, int] = {"error": 0, "warning": 1, "notice": 2}

TITLES: Mapping[str, str] = {
    "origin": "Where an error starts",
    "suspect": "Where an error may start",
    "worse": "Became worse",
    "failed": "Failed",
    "overflow": "Where numbers go wrong",
    "program": "A program failed",
    "unrepeatable": "Does not repeat itself",
    "not-computed": "Could not be computed",
    "not-checked": "Not checked",
    "doubtful": "To be looked at",
    "known": "Known from the baseline",
    "mended": "Mended since the baseline",
}
"""Kinds of findings, and what they are called."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a source file.

    Attributes:
        file: its path, as a stack or a compiler names it.
        line: from 1.
        function: in which it lies; empty if not known.
    """

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to look at.

    Attributes:
        rule: a key of :data:`TITLES`.
        level: what it decides.
        where: the operator or call, by a name that is the same in every run.
        text: what is wrong with it, in one sentence.
        part: which output, step or rank, by such a name; empty for all of it.
        source: the line that made the call, or that is wrong.
    """

    rule: str
    level: Level
    where: str
    text: str
    part: str = ""
    source: SourceLine | None = None

    @property
    def place(self) -> str:
        """``LinearOperation_0_1 outtensor0``."""
        return f"{self.where} {self.part}".strip()

    def fingerprint(self, command: str) -> str:
        """The same for the same finding of another run: neither numbers nor lines are in it."""
        text = "\0".join((command, self.rule, self.where, self.part))
        return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a command found.

    Attributes:
        command: ``compare``.
        verdict: ``PASS``, ``FAIL`` or ``INCOMPLETE``; another word where a program failed.
        exit_code: what the command ends with.
        about: what was looked at, in a sentence or two.
        counts: how many of what, in the order in which they are to be shown.
        counted: what is counted.
        findings: the gravest first.
        lacking: what is missing as a whole, a sentence each.
        reports: files that were written.
        next: the command that helps most now; empty if none does.
    """

    command: str
    verdict: str
    exit_code: int
    about: str
    counts: Mapping[str, int] = field(default_factory=dict)
    counted: str = "results"
    findings: tuple[Finding, ...] = ()
    lacking: tuple[str, ...] = ()
    reports: tuple[str, ...] = ()
    next: str = ""

    @property
    def title(self) -> str:
        """``ait llm compare: FAIL``."""
        return f"ait llm {self.command}: {self.verdict}"


def finding_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The gravest first, else as they are."""
    return tuple(sorted(findings, key=lambda each: _ORDER[each.level]))
