"""What a sweep found, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.sweeps.cases import Case
from ait_llm.opcheck.sweeps.looking import Looked
from ait_llm.report.summary.record import SourceLine
from ait_llm.report.wording import counted

_LISTED = 3


@dataclass(frozen=True, slots=True)
class Speed:
    """The time of one case.

    Attributes:
        case: it.
        seconds: of the kernel.
        reference: of golden in the types of the inputs; None where that is not known.
    """

    case: Case
    seconds: float
    reference: float | None

    @property
    def times(self) -> float | None:
        """How many times faster than the reference the kernel is."""
        return None if self.reference is None else self.reference / max(self.seconds, 1e-9)


@dataclass(frozen=True)
class SweepReport:
    """What a sweep of a kernel found; true if no case failed and golden could be computed.

    Attributes:
        name: of the kernel.
        cases: all that were looked at.
        smallest: the smallest case that fails; None if none does.
        speeds: of the plain cases that passed.
        notes: what a reader should know of a kernel that passed.
        source: where the kernel is written; None where that is not known.
    """

    name: str
    cases: Sequence[Looked]
    smallest: Looked | None = None
    speeds: Sequence[Speed] = ()
    notes: Sequence[str] = field(default_factory=tuple)
    source: SourceLine | None = None

    @property
    def verdict(self) -> Verdict:
        """FAIL, ERROR where golden cannot be computed, SKIPPED where nothing passed, else PASS."""
        counts = Counter(one.verdict for one in self.cases)
        if counts[Verdict.FAIL]:
            return Verdict.FAIL
        if any(one.verdict is Verdict.ERROR and not one.kind for one in self.cases):
            return Verdict.ERROR
        return Verdict.PASS if counts[Verdict.PASS] else Verdict.SKIPPED

    def __bool__(self) -> bool:
        return self.verdict is Verdict.PASS

    def __str__(self) -> str:
        """The verdict, the smallest case that fails and how to make it, what was left out."""
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """The same, a line each."""
        counts = Counter(one.verdict for one in self.cases)
        words = ", ".join(f"{counts[one]} {one.value}" for one in Verdict if counts[one])
        lines = [f"{self.name}: {self.verdict.value}: {counted(len(self.cases), 'case')}: {words}"]
        if self.smallest is not None:
            lines += [
                f"  smallest case that fails: {self.smallest.case}",
                f"    {self.smallest.reason}",
                f"    inputs = {self.smallest.case.code}",
            ]
        for verdict in (Verdict.FAIL, Verdict.ERROR):
            chosen = [one for one in self.cases if one.verdict is verdict]
            lines += [f"  {verdict.value} {one.case}: {one.reason}" for one in chosen[:_LISTED]]
            if len(chosen) > _LISTED:
                lines.append(f"  {verdict.value} and {len(chosen) - _LISTED} more")
        skipped = Counter(one.reason for one in self.cases if one.verdict is Verdict.SKIPPED)
        for reason, count in skipped.most_common(_LISTED):
            lines.append(f"  left out {counted(count, 'case')}: {reason}")
        lines += [f"  note {note}" for note in self.notes[:_LISTED]]
        return lines + [f"  {self.speed_text}"] * bool(self.speed_text)

    @property
    def speed_text(self) -> str:
        """The slowest and the fastest case beside the reference; empty where that is not known."""
        times = [one.times for one in self.speeds if one.times is not None]
        if not times:
            return ""
        slow, fast = min(times), max(times)
        return f"speed: {slow:.2g} to {fast:.2g} times that of golden"

    def table(self) -> list[str]:
        """A table of Markdown: each shape and type with its cases, and the time."""
        rows: dict[tuple[str, str], list[Looked]] = {}
        for one in self.cases:
            shapes = " ".join(str(list(s)) if s is not None else "-" for s in one.case.shapes)
            rows.setdefault((shapes, "/".join(dict.fromkeys(one.case.dtypes))), []).append(one)
        speeds = {
            (
                " ".join(str(list(s)) if s is not None else "-" for s in one.case.shapes),
                "/".join(dict.fromkeys(one.case.dtypes)),
            ): one
            for one in self.speeds
        }
        lines = [
            "| shapes | types | cases | failed | left out | worst | ms | speed |",
            "|" + " --- |" * 8,
        ]
        for key, found in rows.items():
            counts = Counter(one.verdict for one in found)
            worst = max((one.worst for one in found if one.worst is not None), default=0.0)
            speed = speeds.get(key)
            own = "" if speed is None else f"{speed.seconds * 1e3:.3g}"
            times = "" if speed is None or speed.times is None else f"{speed.times:.2g}"
            lines.append(
                f"| {key[0]} | {key[1]} | {len(found)} | {counts[Verdict.FAIL]} | "
                f"{counts[Verdict.SKIPPED]} | {worst:.2g} | {own} | {times} |"
            )
        return lines
