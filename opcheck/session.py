"""What the tests of one pytest session checked, in one file for each reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from ait_llm.report.files import make_folder, replacing
from ait_llm.report.markup import legal_xml, quoted_xml
from ait_llm.report.summary import Finding, Level, SourceLine, Summary, write_summaries
from ait_llm.report.summary.github import annotation
from ait_llm.report.summary.markdown import markdown_text
from ait_llm.report.wording import counted, printable

if TYPE_CHECKING:
    from ait_llm.opcheck.kernels import CheckedKernel
    from ait_llm.opcheck.sweeps.report import SweepReport

_ELEMENTS = {"FAIL": "failure", "ERROR": "error", "SKIPPED": "skipped"}


@dataclass(frozen=True, slots=True)
class _Entry:
    """One check or sweep in one test."""

    test: str
    file: str
    line: int
    kernel: str
    verdict: str
    text: str
    speed: str = ""
    table: tuple[str, ...] = ()
    source: tuple[str, int, str] | None = None


class Session:
    """All checks and sweeps of a session, in their order."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def add_check(self, test: str, file: str, line: int, found: CheckedKernel) -> None:
        """A check in a test."""
        self._entries.append(
            _Entry(
                test,
                file,
                line,
                found.name,
                found.verdict.value,
                str(found),
                source=_plain(found.source),
            )
        )

    def add_sweep(self, test: str, file: str, line: int, found: SweepReport) -> None:
        """A sweep in a test."""
        self._entries.append(
            _Entry(
                test,
                file,
                line,
                found.name,
                found.verdict.value,
                str(found),
                found.speed_text.removeprefix("speed: "),
                tuple(found.table()),
                _plain(found.source),
            )
        )

    def handed_over(self) -> list[dict[str, Any]]:
        """All of it in plain types."""
        return [asdict(entry) | {"table": list(entry.table)} for entry in self._entries]

    def take_over(self, handed: Iterable[dict[str, Any]]) -> None:
        """Add what another process checked."""
        for one in handed:
            source = one["source"] and tuple(one["source"])
            self._entries.append(_Entry(**{**one, "table": tuple(one["table"]), "source": source}))

    def write(self, folder: str | Path) -> list[Path]:
        """Write the files of the session into a folder.

        Raises:
            UsageError: they cannot be written.
        """
        folder = Path(folder)
        make_folder(folder)
        written = []
        for name, lines in (
            ("opcheck.md", self.markdown()),
            ("opcheck.junit.xml", self.junit()),
            ("opcheck.annotations", self.annotations()),
        ):
            with replacing(folder / name) as file:
                file.writelines(f"{line}\n" for line in lines)
            written.append(folder / name)
        write_summaries(self.summary(), [folder / "opcheck.sarif"])
        return [*written, folder / "opcheck.sarif"]

    def summary(self) -> Summary:
        """What did not pass, each at the line where its kernel is written, else at its test."""
        rules: dict[str, tuple[str, Level]] = {
            "FAIL": ("failed", "error"),
            "ERROR": ("not-computed", "error"),
            "SKIPPED": ("not-checked", "warning"),
        }
        findings = tuple(
            Finding(
                *rules[entry.verdict],
                entry.kernel,
                entry.text,
                entry.test,
                SourceLine(*(entry.source or (entry.file, entry.line))),
            )
            for entry in self._entries
            if entry.verdict != "PASS"
        )
        verdict, code = ("FAIL", 1) if findings else ("PASS", 0)
        return Summary("opcheck", verdict, code, "checks of kernels in tests", findings=findings)

    def markdown(self) -> list[str]:
        """A summary for the page of a build."""
        counts = Counter(entry.verdict for entry in self._entries)
        words = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
        lines = [
            f"## opcheck: {counted(len(self._entries), 'check')}: {words or 'none'}",
            "",
            "| test | kernel | verdict | speed, times golden's |",
            "| --- | --- | --- | --- |",
        ]
        for entry in self._entries:
            cells = (entry.test, entry.kernel, entry.verdict, _speed(entry))
            lines.append(f"| {' | '.join(map(markdown_text, cells))} |")
        for entry in self._entries:
            if entry.verdict != "PASS":
                lines += [
                    "",
                    f"### {markdown_text(entry.test)}",
                    "",
                    "```",
                    *_printed(entry),
                    "```",
                ]
            if entry.table:
                lines += [
                    "",
                    f"### {markdown_text(entry.test)}, {markdown_text(entry.kernel)}",
                    "",
                    *entry.table,
                ]
        return lines

    def junit(self) -> list[str]:
        """JUnit XML: a case for each check, a suite for each kernel."""
        lines = ['<?xml version="1.0" encoding="UTF-8"?>', _tag("testsuites", self._entries)]
        for kernel in dict.fromkeys(entry.kernel for entry in self._entries):
            own = [entry for entry in self._entries if entry.kernel == kernel]
            lines.append(f"  {_tag('testsuite', own, kernel)}")
            for entry in own:
                start = (
                    f"    <testcase classname={quoted_xml(kernel)} name={quoted_xml(entry.test)} "
                    f'file={quoted_xml(entry.file)} line="{entry.line}"'
                )
                element = _ELEMENTS.get(entry.verdict)
                if element is None:
                    lines.append(f"{start}/>")
                    continue
                first = entry.text.splitlines()[0]
                lines += [
                    f"{start}>",
                    f"      <{element} message={quoted_xml(first)}>"
                    f"{escape(legal_xml(entry.text))}</{element}>",
                    "    </testcase>",
                ]
            lines.append("  </testsuite>")
        return [*lines, "</testsuites>"]

    def annotations(self) -> list[str]:
        """A workflow command of GitHub for each check that did not pass."""
        return [
            annotation(
                "warning" if entry.verdict == "SKIPPED" else "error",
                f"opcheck: {entry.kernel}",
                entry.text,
                SourceLine(entry.file, entry.line),
            )
            for entry in self._entries
            if entry.verdict != "PASS"
        ]


def _plain(source: SourceLine | None) -> tuple[str, int, str] | None:
    return None if source is None else (source.file, source.line, source.function)


def _speed(entry: _Entry) -> str:
    return entry.speed.removesuffix(" times that of golden")


def _printed(entry: _Entry) -> list[str]:
    return [printable(line).replace("```", "'''") for line in entry.text.splitlines()]


def _tag(name: str, entries: Iterable[_Entry], title: str = "opcheck") -> str:
    counts = Counter(entry.verdict for entry in entries)
    return (
        f'<{name} name={quoted_xml(title)} tests="{counts.total()}" failures="{counts["FAIL"]}" '
        f'errors="{counts["ERROR"]}" skipped="{counts["SKIPPED"]}">'
    )
