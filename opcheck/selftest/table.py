"""What the grading found, as Markdown, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ait_llm.opcheck.selftest.cases import NOT_GRADED
from ait_llm.opcheck.selftest.faults import Produce, faults, summary, variations
from ait_llm.opcheck.selftest.runner import Kind, Trial, uncovered

# What a standard for gating kernels has to reach.
REQUIRED_KILLS = 0.99
GATE = "contract"


@dataclass(frozen=True, slots=True)
class Rate:
    """How many of some trials alarmed."""

    alarmed: int
    judged: int

    @property
    def share(self) -> float:
        """Between 0 and 1; 1 of none."""
        return self.alarmed / self.judged if self.judged else 1.0

    def __str__(self) -> str:
        if not self.judged:
            return "-"
        percent = 100 * self.share
        # What is not all, or not nothing, must not look as if it were.
        if self.alarmed < self.judged:
            percent = min(percent, 99.9)
        if self.alarmed:
            percent = max(percent, 0.1)
        return f"{percent:.1f}".removesuffix(".0") + " %"


def rate(trials: Sequence[Trial], kind: Kind, standard: str, name: str | None = None) -> Rate:
    """Alarms of a standard at one fault or variation, at all unless named."""
    judged = [
        trial.alarmed
        for trial in trials
        if (trial.kind, trial.standard) == (kind, standard)
        and trial.alarmed is not None
        and name in (None, trial.name)
    ]
    return Rate(sum(judged), len(judged))


def misses(trials: Sequence[Trial], standard: str = GATE) -> list[Trial]:
    """Faults that a standard passed, and legal variations that it failed."""
    return [
        trial
        for trial in trials
        if trial.standard == standard
        and trial.alarmed is not None
        and trial.alarmed != (trial.kind == "fault")
    ]


def is_good_enough(trials: Sequence[Trial]) -> bool:
    """Whether ``contract`` finds the faults that it has to, and never alarms without one."""
    kills = rate(trials, "fault", GATE)
    return not rate(trials, "variation", GATE).alarmed and kills.share >= REQUIRED_KILLS


def _judges(trials: Sequence[Trial]) -> list[str]:
    names = sorted({trial.standard for trial in trials if trial.standard})
    return sorted(names, key=lambda name: name != GATE)


def _rows(trials: Sequence[Trial], kind: Kind) -> list[list[str]]:
    registry = faults if kind == "fault" else variations
    judges = _judges(trials)
    rows = []
    for name in registry:
        rates = [rate(trials, kind, judge, name) for judge in judges]
        most = max((one.judged for one in rates), default=0)
        if most:
            rows.append([name, str(most), *map(str, rates)])
    rates = [rate(trials, kind, judge) for judge in judges]
    rows.append(["**all**", str(max(one.judged for one in rates)), *map(str, rates)])
    return rows


def class_tables(trials: Sequence[Trial]) -> str:
    """Two Markdown tables: kill rates by fault, false alarms by variation."""
    judges = _judges(trials)
    unchanged = sum(not trial.changed for trial in trials)
    return "\n".join(
        [
            "Faults found, of those that change a result:",
            "",
            *_markdown([["fault", "runs", *judges], *_rows(trials, "fault")]),
            "",
            f"{unchanged} further faults changed nothing that the operator defines and are not "
            "counted.",
            "",
            "False alarms, at legal ways to compute:",
            "",
            *_markdown([["variation", "runs", *judges], *_rows(trials, "variation")]),
        ]
    )


def operator_rows(trials: Sequence[Trial]) -> list[list[str]]:
    """What ``contract`` did: one row for each operator."""
    rows = []
    for op in sorted({trial.op for trial in trials}):
        own = [trial for trial in trials if trial.op == op]
        dtypes = dict.fromkeys(trial.dtype for trial in own)
        kills, alarms = rate(own, "fault", GATE), rate(own, "variation", GATE)
        missed: dict[str, list[str]] = {}
        for trial in misses(own):
            place = " ".join(filter(None, (trial.variant, trial.dtype)))
            missed.setdefault(trial.name, []).append(place)
        rows.append(
            [
                op.removesuffix("Operation"),
                ", ".join(dtypes),
                f"{kills.alarmed}/{kills.judged}",
                f"{alarms.alarmed}/{alarms.judged}",
                ", ".join(f"{name} ({'; '.join(places)})" for name, places in missed.items()),
            ]
        )
    return rows


def operator_table(trials: Sequence[Trial]) -> str:
    """One Markdown table of what ``contract`` did by operator."""
    head = ["operator", "data types", "faults found", "false alarms", "not told apart"]
    return "\n".join(_markdown([head, *operator_rows(trials)]))


def families(trials: Sequence[Trial]) -> dict[str, Rate]:
    """Faults that ``contract`` found in each family of operators."""
    return {
        family: rate([one for one in trials if one.family == family], "fault", GATE)
        for family in sorted({one.family for one in trials})
    }


def family_table(trials: Sequence[Trial]) -> str:
    """One Markdown table of the faults that ``contract`` found in each family, and missed."""
    missed = {
        family: dict.fromkeys(one.name for one in misses(trials) if one.family == family)
        for family in families(trials)
    }
    rows = [
        [family, f"{found.alarmed}/{found.judged}", str(found), ", ".join(missed[family])]
        for family, found in families(trials).items()
    ]
    return "\n".join(_markdown([["family", "faults found", "of all", "missed some of"], *rows]))


def page(trials: Sequence[Trial]) -> str:
    """All tables, for the documentation and the terminal."""
    missing = [name.removesuffix("Operation") for name in uncovered()]
    more = ["", f"Operators without a case of their own yet: {', '.join(missing)}."]
    return "\n".join(
        [
            class_tables(trials),
            "",
            f"Faults that `{GATE}` found, by family of operators:",
            "",
            family_table(trials),
            "",
            f"What `{GATE}` did, by operator:",
            "",
            operator_table(trials),
            "",
            "Not graded:",
            "",
            *(f"- {op.removesuffix('Operation')}: {why}" for op, why in NOT_GRADED.items()),
            *(more if missing else ()),
        ]
    )


def _markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]

    def line(cells: Sequence[str]) -> str:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return f"| {' | '.join(padded)} |"

    return [line(rows[0]), line(["-" * width for width in widths]), *map(line, rows[1:])]


def as_json(trials: Sequence[Trial]) -> dict[str, Any]:
    """The rates by standard and class, what ``contract`` missed, and what was not graded."""

    def rates(kind: Kind, names: Sequence[str], judge: str) -> dict[str, dict[str, int]]:
        found = {name: rate(trials, kind, judge, name) for name in names}
        return {
            name: {"alarmed": one.alarmed, "judged": one.judged}
            for name, one in found.items()
            if one.judged
        }

    return {
        "standards": {
            judge: {
                "kill_rate": rate(trials, "fault", judge).share,
                "false_alarm_rate": rate(trials, "variation", judge).share,
                "faults": rates("fault", list(faults), judge),
                "variations": rates("variation", list(variations), judge),
            }
            for judge in _judges(trials)
        },
        "unchanged": sum(not trial.changed for trial in trials),
        "families": {
            family: {"alarmed": found.alarmed, "judged": found.judged}
            for family, found in families(trials).items()
        },
        "missed": [
            {"op": one.op, "variant": one.variant, "dtype": one.dtype, one.kind: one.name}
            for one in misses(trials)
        ],
        "without_cases": uncovered(),
        "not_graded": NOT_GRADED,
        "good_enough": is_good_enough(trials),
    }


def descriptions() -> str:
    """Each fault and variation in one line of a Markdown list."""

    def line(name: str, produce: Produce) -> str:
        return f"- *{name}*: {summary(produce)}"

    return "\n".join(
        [
            *(line(name, faults.get(name)) for name in faults),
            "",
            "Legal variations:",
            "",
            *(line(name, variations.get(name)) for name in variations),
        ]
    )
