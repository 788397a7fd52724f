"""What becomes of a comparison: its reports, its baseline, and what a build is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ait_llm.cli.summaries import Build, places_in, summary_against
from ait_llm.core.comparison import Report
from ait_llm.errors import AitError
from ait_llm.report import ledger_path, write_ledger, write_reports
from ait_llm.report.baseline import Against
from ait_llm.report.baseline.of_compare import Baseline, exit_code
from ait_llm.report.summary.of_compare import compare_summary, named_operations


@dataclass
class Handover:
    """One comparison on its way to whoever reads it.

    Attributes:
        formats, summaries: reports that were asked for.
        output, stamp: their folder, and the time in their names.
        save_mapping: a file that the comparison has written besides.
        baseline: an earlier report; None without one.
        allow_skip, strict, as_json: the options.
        command: that ran.
        refused: why reports could not be written.
        written: files.
        report: the result, once it is written.
        against: the result held against the baseline.
    """

    formats: Sequence[str]
    summaries: tuple[str, ...]
    output: Path
    stamp: str
    save_mapping: Path | None
    baseline: Baseline | None
    allow_skip: bool
    strict: bool
    as_json: bool
    command: str
    refused: list[AitError] = field(default_factory=list)
    written: list[Path] = field(default_factory=list)
    report: Report | None = None
    against: Against | None = None

    @property
    def build(self) -> Build:
        """Where summaries go."""
        return Build(self.summaries, self.output, f"ait_cmp_report_{self.stamp}")

    def write(self, report: Report) -> list[Path]:
        """Write all reports; one that cannot be written does not keep the others back."""
        files: list[Path] = []
        for name in self.formats:
            try:
                files += write_reports(report, [name], self.output, self.stamp)
            except AitError as error:  # the others and the result must not be lost with it
                self.refused.append(error)
        if report.ledger:
            files += write_ledger(report, ledger_path(self.output, self.stamp))
        files += self.build.files()
        if self.save_mapping is not None:
            files.append(self.save_mapping)
        self.report = report
        self.written += files
        return files

    def code(self, report: Report, own: int) -> int:
        """What the command ends with: its own code, or with a baseline what that makes of it.

        Raises:
            UsageError: the baseline is of another program.
        """
        if self.baseline is None:
            return own
        self.against = self.baseline.hold(report, strict=self.strict)
        return exit_code(report, self.against, allow_skip=self.allow_skip)

    def as_dict(self) -> dict[str, Any]:
        """What ``--json`` says of the baseline; nothing without one."""
        return {} if self.against is None else {"baseline": self.against.as_dict()}

    def publish(self, code: int, next_command: str = "") -> None:
        """Hand the result over to a build; what cannot be written is among ``refused``."""
        if not self.summaries or self.report is None:
            return
        report = self.report
        lines = places_in(Path(report.mine.path), named_operations(report), self.summaries)
        found = compare_summary(
            report, code, self.written, next_command, lines=lines, command=self.command
        )
        if self.against is not None:
            found = summary_against(found, self.against)
        try:
            self.build.publish(found, as_json=self.as_json)
        except AitError as error:
            self.refused.append(error)
