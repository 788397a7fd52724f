"""What ``ait llm plan`` says, as text of 80 columns."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator

from ait_llm.cli.dump_text import ending
from ait_llm.cli.numbers import counted, human_bytes
from ait_llm.plan.amounts import Estimate
from ait_llm.plan.pipeline import Duration, Plan
from ait_llm.plan.proposals import Proposal

_WIDTH = 80
_NAME = 11
# Smaller parts are not worth a word.
_SMALL = 0.001


def describe(plan: Plan) -> str:
    """The estimate, and proposals if there is a budget."""
    estimate, duration = plan.estimate, plan.duration
    head = f"ait llm plan: {_size(estimate)}"
    if duration.program is not None:
        head += f", about {_seconds(duration.total)}"
    lines = [head]
    if plan.exit_code:
        lines += _row("program", f"{ending(plan.exit_code)}: what it did until then was counted")
    lines += _command(plan.command_of(plan.options), "capture")
    lines += _row("of", _contents(estimate))
    lines += _row("bytes", _bytes(plan))
    lines += _row("time", _time(duration, plan))
    for note in plan.notes:
        lines += _row("note", note)
    if plan.budget is not None:
        lines += _budget(plan, plan.budget)
    return "\n".join(lines)


def _budget(plan: Plan, budget: int) -> Iterator[str]:
    text = f"{budget:,} bytes ({human_bytes(budget)})"
    if not plan.proposals:
        smallest = plan.smallest
        assert smallest is not None
        yield from _row("budget", f"{text}: nothing fits; the smallest capture would be")
        yield from _proposal(plan, smallest, "smallest")
        return
    fits = plan.estimate.bytes <= budget
    yield from _row(
        "budget",
        f"{text}: {'all of it fits' if fits else 'it does not fit; what does, best first'}",
    )
    for number, proposal in enumerate(plan.proposals, 1):
        if not (fits and proposal.options == plan.options):
            yield from _proposal(plan, proposal, str(number))


def _proposal(plan: Plan, proposal: Proposal, name: str) -> Iterator[str]:
    duration = plan.duration_of(proposal.estimate)
    size = _size(proposal.estimate)
    if duration.program is not None:
        size += f", about {_seconds(duration.total)}"
    yield from _row(name, f"{size}: {proposal.keeps}")
    yield from _command(plan.command_of(proposal.options))


def _size(estimate: Estimate) -> str:
    return f"{human_bytes(estimate.bytes)} in {estimate.files:,} files"


def _contents(estimate: Estimate) -> str:
    counts = [counted(round(estimate.operations), "operation")]
    if estimate.kernels:
        counts.append(counted(round(estimate.kernels), "kernel"))
    counts += [counted(round(estimate.tensors), "tensor"), counted(estimate.steps, "step")]
    return ", ".join(counts)


def _bytes(plan: Plan) -> str:
    estimate = plan.estimate
    parts = ", ".join(
        f"{name} {human_bytes(round(amount.bytes))}"
        for name, amount in estimate.parts.items()
        if amount.bytes > _SMALL * estimate.bytes
    )
    room = human_bytes(round(estimate.total.room))
    return (
        f"{estimate.bytes:,} ({parts}); {room} on the disk in blocks of "
        f"{human_bytes(plan.disk.block)}, {human_bytes(plan.disk.free)} are free; the largest "
        f"step has {human_bytes(round(estimate.largest))}"
    )


def _time(duration: Duration, plan: Plan) -> str:
    speed = f"{plan.disk.bytes_per_second / 1e6:,.0f} MB/s"
    how = "as measured" if plan.disk.measured else "assumed"
    texts = [
        f"{_seconds(duration.writing)} to write at {speed} ({how})",
        f"{_seconds(duration.capturing)} to take the tensors",
    ]
    if duration.program is not None:
        texts.insert(0, f"{_seconds(duration.program)} of the program, as it ran for this")
    return ", ".join(texts)


def _seconds(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def _row(name: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=f"  {name:<{_NAME - 2}}",
        subsequent_indent=" " * _NAME,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _command(command: str, name: str = "") -> Iterator[str]:
    """A command line over several lines, as a shell takes it."""
    line = f"  {name:<{_NAME - 2}}"
    empty = True
    for word in map(shlex.quote, shlex.split(command)):
        if not empty and len(line) + len(word) + 3 > _WIDTH:
            yield f"{line} \\"
            line, empty = " " * (_NAME + 2), True
        line += word if empty else f" {word}"
        empty = False
    yield line
