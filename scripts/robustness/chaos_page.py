"""The table of what chaos has drawn, in docs/robustness.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

Drawn = Mapping[tuple[str, str], int]  # by subject and fault
Findings = Mapping[str, Sequence[str]]
BEGIN, END = "<!-- chaos: written by scripts/chaos --write -->", "<!-- end of chaos -->"


def table(seed: int, commit: str, drawn: Drawn, findings: Findings) -> str:
    """What was drawn, by fault and subject, and what was found."""
    faults: Counter[str] = Counter()
    subjects: Counter[str] = Counter()
    for (kind, fault), count in drawn.items():
        faults[fault] += count
        subjects[kind] += count
    lines = [
        f"{faults.total()} draws of seed {seed}, on {commit}: {len(findings)} with findings.",
        "",
        f"| fault | {' | '.join(sorted(subjects))} | draws |",
        f"| --- |{' --- |' * (len(subjects) + 1)}",
    ]
    for fault in sorted(faults):
        cells = (str(drawn.get((kind, fault), 0)) for kind in sorted(subjects))
        lines.append(f"| {fault} | {' | '.join(cells)} | {faults[fault]} |")
    for what, found in findings.items():
        lines += ["", f"- **{what}**: {'; '.join(found)}"]
    return "\n".join(lines)


def publish(
    page: Path,
    seed: int,
    commit: str,
    drawn: Drawn,
    findings: Findings,
) -> None:
    """Write the table between its marks in the page."""
    before, mark, rest = page.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise SystemExit(f"{page}: the marks of the table are missing")
    text = f"{before}{BEGIN}\n\n{table(seed, commit, drawn, findings)}\n\n{END}{after}"
    page.write_text(text, "utf-8")
