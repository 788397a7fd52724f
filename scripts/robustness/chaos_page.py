"""What chaos has drawn: lines of results, the record of all runs, and its table in the docs."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from page_parts import commit, replace_part  # noqa: E402

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


@dataclass
class Record:
    """Draws of one seed, counted.

    Attributes:
        commit: of the last of them.
        numbers: that were drawn.
        counts: draws by kind and fault.
        findings: what was found, by number: the draw first.
    """

    commit: str = ""
    numbers: set[int] = field(default_factory=set)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    findings: dict[int, list[str]] = field(default_factory=dict)

    def add(self, draws: Iterable[Drawn], commit: str) -> None:
        """Count draws that are not counted yet; one that is made again says what it finds now."""
        for each in draws:
            self.commit = commit
            if each.found:
                self.findings[each.number] = [each.what, *each.found]
            else:
                self.findings.pop(each.number, None)
            if each.number not in self.numbers:
                self.numbers.add(each.number)
                self.counts[each.kind, each.fault] += 1

    def as_dict(self) -> dict[str, Any]:
        """In JSON types, numbers as ranges."""
        counts: dict[str, dict[str, int]] = {}
        for (kind, fault), count in sorted(self.counts.items()):
            counts.setdefault(kind, {})[fault] = count
        return {
            "commit": self.commit,
            "numbers": _ranges(self.numbers),
            "counts": counts,
            "findings": {str(number): said for number, said in sorted(self.findings.items())},
        }

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Record:
        """What :meth:`as_dict` made."""
        numbers = {n for first, last in values["numbers"] for n in range(first, last + 1)}
        counts = {
            (kind, fault): count
            for kind, faults in values["counts"].items()
            for fault, count in faults.items()
        }
        findings = {int(number): list(said) for number, said in values["findings"].items()}
        return cls(values["commit"], numbers, Counter(counts), findings)


def _ranges(numbers: Iterable[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def read_records(path: Path) -> dict[int, Record]:
    """The records of all seeds."""
    if not path.exists():
        return {}
    return {
        int(seed): Record.of(each) for seed, each in json.loads(path.read_text("utf-8")).items()
    }


def write_records(path: Path, records: Mapping[int, Record]) -> None:
    """Write the records of all seeds."""
    values = {str(seed): each.as_dict() for seed, each in sorted(records.items())}
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", "utf-8")


def added(records: dict[int, Record], draws: Sequence[Drawn], commit: str) -> dict[int, Record]:
    """The records with further draws."""
    for seed in {each.seed for each in draws}:
        own = [each for each in draws if each.seed == seed]
        records.setdefault(seed, Record()).add(own, commit)
    return records


def table(records: Mapping[int, Record]) -> str:
    """What was drawn, by fault and subject, and what was found."""
    counts: Counter[tuple[str, str]] = Counter()
    for each in records.values():
        counts.update(each.counts)
    kinds = sorted({kind for kind, _ in counts})
    faults = sorted({fault for _, fault in counts})
    findings = [said for each in records.values() for _, said in sorted(each.findings.items())]
    seeds = ", ".join(
        f"{len(each.numbers):,} of seed {seed} until {each.commit}"
        for seed, each in sorted(records.items())
    )
    lines = [
        f"{counts.total():,} draws ({seeds}): {len(findings)} with findings that are open.",
        "",
        f"| fault | {' | '.join(kinds)} | draws |",
        f"| --- |{' --- |' * (len(kinds) + 1)}",
    ]
    for fault in faults:
        cells = [counts[kind, fault] for kind in kinds]
        lines.append(f"| {fault} | {' | '.join(map(str, cells))} | {sum(cells)} |")
    for what, *found in findings:
        lines += ["", f"- **{what}**: {'; '.join(found)}"]
    return "\n".join(lines)


def keep(draws: Sequence[Drawn], path: Path, pages: Iterable[Path]) -> None:
    """Add draws of this commit to the record, and write its table."""
    records = added(read_records(path), draws, commit())
    write_records(path, records)
    publish(pages, records)


def publish(pages: Iterable[Path], records: Mapping[int, Record]) -> None:
    """Write the table between its marks in the pages."""
    replace_part(pages, BEGIN, END, table(records))
