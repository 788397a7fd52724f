"""What chaos has drawn: lines of results, and the table in docs/robustness.md."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

BEGIN, END = "<!-- chaos: written by scripts/chaos --write -->", "<!-- end of chaos -->"


@dataclass(frozen=True)
class Drawn:
    """One draw.

    Attributes:
        seed, number: make it again.
        kind: of the subject.
        fault: without its numbers.
        what: the whole of it, for people.
        found: what it broke.
    """

    seed: int
    number: int
    kind: str
    fault: str
    what: str
    found: tuple[str, ...] = ()

    def line(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"


def read(path: Path) -> list[Drawn]:
    """What earlier runs have added to a file of results."""
    if not path.exists():
        return []
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [Drawn(**{**each, "found": tuple(each["found"])}) for each in records]


def table(draws: Sequence[Drawn], commit: str) -> str:
    """What was drawn, by fault and subject, and what was found."""
    drawn = Counter((each.kind, each.fault) for each in draws)
    faults = Counter(each.fault for each in draws)
    kinds = sorted({each.kind for each in draws})
    seeds = sorted({each.seed for each in draws})
    findings = [each for each in draws if each.found]
    word = "seed" if len(seeds) == 1 else "seeds"
    lines = [
        f"{len(draws):,} draws of {word} {', '.join(map(str, seeds))}, on {commit}: "
        f"{len(findings)} with findings.",
        "",
        f"| fault | {' | '.join(kinds)} | draws |",
        f"| --- |{' --- |' * (len(kinds) + 1)}",
    ]
    for fault in sorted(faults):
        cells = (str(drawn[kind, fault]) for kind in kinds)
        lines.append(f"| {fault} | {' | '.join(cells)} | {faults[fault]} |")
    for each in findings:
        lines += ["", f"- **{each.what}**: {'; '.join(each.found)}"]
    return "\n".join(lines)


def publish(page: Path, draws: Sequence[Drawn], commit: str) -> None:
    """Write the table between its marks in the page."""
    before, mark, rest = page.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise SystemExit(f"{page}: the marks of the table are missing")
    page.write_text(f"{before}{BEGIN}\n\n{table(draws, commit)}\n\n{END}{after}", "utf-8")
