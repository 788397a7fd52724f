"""What changed between a baseline and now, and what that decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ait_llm.core.comparison import Verdict
from ait_llm.errors import UsageError
from ait_llm.report.baseline.rows import Row
from ait_llm.report.stable_names import stable_text
from ait_llm.report.summary.record import Finding, Level, SourceLine
from ait_llm.report.wording import short

Kind = Literal["worse", "lost", "known", "mended", "new"]
KINDS: tuple[Kind, ...] = ("worse", "lost", "known", "mended", "new")
_LEVELS: Mapping[Kind, tuple[str, Level]] = {
    "worse": ("worse", "error"),
    "lost": ("not-checked", "warning"),
    "known": ("known", "notice"),
    "mended": ("mended", "notice"),
}
_TOLD = 5  # of each kind on a terminal
# A program that was changed keeps most of its operators; another one shares few of their names.
_SHARED = 0.5

Rows = Mapping[tuple[str, ...], Row]


@dataclass(frozen=True, slots=True)
class Change:
    """One row beside that of the baseline.

    Attributes:
        kind: ``worse`` fails and did not, or fails by far more; ``lost`` was compared and is not;
            ``known`` fails or lacks as before; ``mended`` passes and did not; ``new`` passes and
            was not there.
        place: what to call it.
        text: what changed, in a clause.
        op: its operator, with which ``place`` begins.
    """

    kind: Kind
    place: str
    text: str
    op: str


@dataclass(frozen=True)
class Against:
    """A result held against a baseline.

    Attributes:
        path: the baseline.
        changes: all rows that are not as they were, or do not pass.
        missing: problems of a whole dump that the baseline does not have.
        known_missing: those that it has.
    """

    path: str
    changes: Sequence[Change]
    missing: Sequence[str] = ()
    known_missing: Sequence[str] = ()
    counts: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        found = Counter(change.kind for change in self.changes)
        object.__setattr__(self, "counts", {kind: found[kind] for kind in KINDS})

    def exit_code(self, *, allow_skip: bool = False) -> int:
        """0 nothing became worse, 1 a tensor did, 3 something is no longer compared."""
        if self.counts["worse"]:
            return 1
        lost = bool(self.counts["lost"] or self.missing)
        return 3 if lost and not allow_skip else 0

    def lines(self) -> Iterator[tuple[str, str]]:
        """What a terminal shows: a label and a text each."""
        counts = ", ".join(f"{self.counts[kind]:,} {kind}" for kind in KINDS)
        yield "baseline", f"{self.path}: {counts}"
        for kind in ("worse", "lost", "mended", "known"):
            found = [change for change in self.changes if change.kind == kind]
            for change in found[:_TOLD]:
                yield kind, f"{change.place}: {change.text}"
            if len(found) > _TOLD:
                yield "", f"and {len(found) - _TOLD:,} more"
        for text in self.missing:
            yield "lost", text
        for text in self.known_missing:
            yield "known", text

    def findings(self, sources: Mapping[str, SourceLine]) -> Iterator[Finding]:
        """What a build is told of the rows, at the lines of their operators."""
        for change in self.changes:
            if change.kind in _LEVELS:
                part = change.place.removeprefix(change.op).strip()
                source = sources.get(change.op)
                yield Finding(*_LEVELS[change.kind], change.op, change.text, part, source)

    def worse_operators(self) -> frozenset[str]:
        """Operators with a tensor that became worse."""
        return frozenset(change.op for change in self.changes if change.kind == "worse")

    def as_dict(self) -> dict[str, Any]:
        """In JSON types."""
        changes: dict[str, Any] = {
            kind: [
                {"where": each.place, "what": each.text}
                for each in self.changes
                if each.kind == kind
            ]
            for kind in KINDS
            if kind != "new"
        }
        return {
            "path": self.path,
            "counts": dict(self.counts),
            **changes,
            "missing": list(self.missing),
            "known_missing": list(self.known_missing),
        }


def hold_against(
    path: str,
    before: Rows,
    now: Rows,
    problems_before: Sequence[str] = (),
    problems: Sequence[str] = (),
    *,
    strict: bool = False,
) -> Against:
    """Tell what changed.

    Args:
        path: of the baseline.
        before: its rows.
        now: rows of the result.
        problems_before, problems: what makes each of them incomplete as a whole.
        strict: what only one program makes counts as missing.

    Raises:
        UsageError: the baseline is of another program.
    """
    _check_belongs(path, before, now)
    changes = [
        change
        for identity, row in now.items()
        if (change := _change(row, before.get(identity), strict)) is not None
    ]
    changes += [
        Change("lost", row.place, "was compared and is no longer there", row.identity[0])
        for identity, row in before.items()
        if row.compared and identity not in now
    ]
    known = Counter(map(stable_text, problems_before))
    fresh: list[str] = []
    old: list[str] = []
    for text in problems:
        general = stable_text(text)
        (old if known[general] > 0 else fresh).append(text)
        known[general] -= 1
    return Against(path, tuple(changes), tuple(fresh), tuple(old))


def _check_belongs(path: str, before: Rows, now: Rows) -> None:
    theirs = {(row.identity, row.kind) for row in before.values()}
    ours = {(row.identity, row.kind) for row in now.values()}
    shared = len(theirs & ours)
    if shared < _SHARED * max(len(theirs), len(ours)) or not theirs:
        raise UsageError(
            f"{path} is no baseline of this program: {shared:,} of its {len(theirs):,} tensors are "
            f"among the {len(ours):,} here; give a result of the "
            "same program, or leave out --baseline"
        )


def _change(row: Row, before: Row | None, strict: bool) -> Change | None:
    def found(kind: Kind, text: str) -> Change:
        return Change(kind, row.place, text, row.identity[0])

    if row.verdict is Verdict.PASS:
        if before is None:
            return found("new", "passes")
        if before.compared and before.verdict is Verdict.PASS:
            return None
        return found("mended", f"passes; before: {_was(before)}") if before.comparable else None
    if row.verdict is Verdict.FAIL:
        return _failing(row, before, found)
    if not row.comparable:
        lacked = before is not None and not before.compared
        return found("lost", row.reason) if strict and not lacked else None
    if before is not None and not before.compared:
        return found("known", row.reason)
    return found("lost", f"{row.reason}; before: {_was(before)}")


def _failing(row: Row, before: Row | None, found: Callable[[Kind, str], Change]) -> Change:
    if before is None or before.verdict is not Verdict.FAIL:
        return found("worse", f"{row.reason}; before: {_was(before)}")
    sizes = ""
    if row.excess is not None and before.excess is not None:
        sizes = f" ({short(before.excess)} times its limit before, {short(row.excess)} now)"
    grown = row.has_grown_from(before)
    return found("worse" if grown else "known", f"{row.reason}{sizes}")


def _was(before: Row | None) -> str:
    if before is None:
        return "not there"
    if before.verdict is Verdict.PASS:
        return "passed"
    return before.reason or before.verdict.value
