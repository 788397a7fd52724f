"""What ``ait llm invariant`` says, as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from ait_llm.cli.dump_text import table
from ait_llm.cli.numbers import counted
from ait_llm.dump.changes.catalogue import CHANGES
from ait_llm.invariance.result import Flip, InvariantResult, Outcome
from ait_llm.invariance.summary import exactness

_SECONDS = 90  # above, times are told in minutes


def run_line(name: str, outcome: Outcome | None) -> str:
    """A line before a run, and one when it has been compared."""
    if outcome is None:
        change = CHANGES.get(name)
        return f"run {name}: {'as it is' if change is None else change.title}"
    return f"  {outcome.state} after {_time(outcome.seconds)}"


def describe_result(result: InvariantResult, files: Sequence[Path], following: str) -> str:
    """Each change with what became of it, and what it cost."""
    lines: list[tuple[str, str]] = []
    if result.exit_code:
        lines.append(("program", f"failed with exit code {result.exit_code}"))
    lines += [("unknown", text) for text in result.problems]
    for outcome in result.outcomes:
        lines += _outcome(outcome)
    if result.interrupted:
        lines.append(("stopped", "interrupted before every change was made"))
    lines.append(("cost", f"{counted(result.runs, 'run')} of the program, {_time(result.seconds)}"))
    if files:
        lines.append(("files", ", ".join(map(str, files))))
    if following:
        lines.append(("next", following))
    return table(f"ait llm invariant: {_verdict(result)}", lines)


def next_step(result: InvariantResult) -> str:
    """The command that shows most of the first change that breaks the answer."""
    broken = result.in_state("broken")
    if not broken or broken[0].dump is None:
        return ""
    plain = result.folder / "plain"
    words = ["ait", "llm", "compare", "-gp", str(plain), "-mp", str(broken[0].dump), "--deep"]
    return shlex.join(words)


def _verdict(result: InvariantResult) -> str:
    if result.exit_code:
        return "the program failed"
    made = result.in_state("held", "broken", "undecided", "failed")
    broken = result.in_state("broken")
    if broken:
        return f"FAIL: the answer depends on {', '.join(each.name for each in broken)}"
    if not result.complete:
        return "INCOMPLETE"
    return f"PASS: the answer does not depend on {counted(len(made), 'change')}"


def _outcome(outcome: Outcome) -> Iterator[tuple[str, str]]:
    name = outcome.name
    if outcome.state == "held":
        yield name, f"held; {counted(outcome.compared, 'tensor')} {exactness(outcome)}"
        if outcome.flip is not None:
            yield "", _flip(outcome.flip)
            if outcome.reason:
                yield "", outcome.reason
        return
    if outcome.state != "broken":
        yield name, f"{outcome.state}: {outcome.reason}"
        return
    origin = outcome.origin
    yield name, f"broken: {outcome.change.breaks}"
    if origin is not None:
        kind = f" ({origin.op_type})" if origin.op_type else ""
        sure = "" if origin.certain else ", or one that cannot be told apart from it"
        yield "", f"first at {origin.op}{kind}, step {origin.step}{sure}"
    yield "", outcome.reason
    if outcome.failed:
        yield "", exactness(outcome)
    if outcome.flip is not None:
        yield "", _flip(outcome.flip)


def _flip(flip: Flip) -> str:
    before, after = ("nothing" if each is None else each for each in (flip.before, flip.after))
    more = f"; {counted(flip.count, 'token')} differ in all" if flip.count > 1 else ""
    return f"row {flip.row}: token {flip.place} is {after} instead of {before}{more}"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < _SECONDS else f"{seconds / 60:.1f} min"
