"""The check of a dump: read every pass of every process, trace what is odd, say what was found."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ait_llm.dumps import Dump, Operation, Process, open_dump
from ait_llm.engine import Engine
from ait_llm.errcheck.events import Event, Seen, SeenPass, Tally, look_at
from ait_llm.errcheck.reading import read
from ait_llm.errcheck.remote import Reader, readers
from ait_llm.errcheck.result import (
    HARMFUL,
    Checked,
    ErrcheckResult,
    Finding,
    Flow,
    OddTensor,
    Place,
)
from ait_llm.errcheck.spread import Beginning, Key, Spread, spread
from ait_llm.program.one_pass import Pass
from ait_llm.program.passes import passes_of
from ait_llm.storage import address

_NAMED = 5  # operations that a finding names of those which handed it on


def check_dump(
    path: Path | str, *, engine: Engine | None = None, stop: threading.Event | None = None
) -> ErrcheckResult:
    """Find what is NaN, infinite or saturated in a dump, and where it began.

    Args:
        path: a dump of any kind that :func:`ait_llm.open_dump` reads.
        engine: reads the values in other processes; see :func:`ait_llm.engine.open_engine`.
        stop: once it is set, the passes that follow are left, and the result says so.

    Raises:
        FormatError: the folder is no dump, or its listing cannot be read.

    Example:
        >>> for finding in check_dump("out").harmful:  # doctest: +SKIP
        ...     print(finding.origin, finding.place.name, finding.tensors[0].kinds)
    """
    if engine is not None:
        engine.look_for((address(path),))
    return check(open_dump(path), engine=engine, stop=stop)


def check(
    dump: Dump, *, engine: Engine | None = None, stop: threading.Event | None = None
) -> ErrcheckResult:
    """The same for a dump that is open."""
    tally = Tally()
    processes: list[list[SeenPass]] = []
    for number, runs in enumerate(_runs(dump, engine)):
        found: list[SeenPass] = []
        order = 0
        for run, reader in runs:
            if stop is not None and stop.is_set():
                break
            found.append(look_at(run, number, order, tally, reader))
            order += len(run.operations)
        processes.append(found)
        if stop is not None and stop.is_set():
            break
    interrupted = stop is not None and stop.is_set()
    traced = spread(processes)
    ranks = [rank_of(process) for process in dump.processes]
    report = _Report(processes, ranks, traced)
    return ErrcheckResult(
        _checked(dump, processes, tally),
        tuple(report.findings()),
        tuple(_problems(dump.processes, tally, interrupted=interrupted)),
        _operators(processes, harmful=True),
        _operators(processes, harmful=False),
    )


def _runs(dump: Dump, engine: Engine | None) -> Iterator[Iterator[tuple[Pass, Reader]]]:
    """The passes of each process, each with what reads its tensors."""
    if engine is None or not engine.remote:
        for process in dump.processes:
            yield ((run, read) for run in passes_of(dump, process))
        return
    runs = [passes_of(dump, process) for process in dump.processes]
    for each, found in zip(runs, readers(engine, dump, runs), strict=True):
        yield zip(each, found, strict=True)


def rank_of(process: Process) -> int:
    """The rank that the launcher of the job gave a process, else its device; 0 if there is none."""
    environment = process.header.get("environment")
    for name in ("RANK", "LOCAL_RANK"):
        value = environment.get(name) if isinstance(environment, Mapping) else None
        if isinstance(value, str) and value.isdecimal() and value.isascii():
            return int(value)
    return max(process.device, 0)


def _checked(dump: Dump, processes: Sequence[Sequence[SeenPass]], tally: Tally) -> Checked:
    sources = {one.tokens.source for passes in processes for one in passes if one.tokens}
    return Checked(
        len(dump.processes),
        max((len(passes) for passes in processes), default=0),
        tally.operations,
        tally.tensors,
        tally.elements,
        tally.by_statistics,
        tally.narrow,
        " and ".join(sorted({part for each in sources for part in each.split(" and ")})[:3]),
    )


def _problems(processes: Iterable[Process], tally: Tally, *, interrupted: bool) -> Iterable[str]:
    if interrupted:
        yield "the check was interrupted, passes that follow were not looked at"
    for process in processes:
        if process.problem is not None:
            yield process.problem
    if tally.unread:
        count = "1 tensor" if tally.unread == 1 else f"{tally.unread} tensors"
        yield f"{count} could not be checked, the first is {tally.reason}"
    if not tally.tensors and not tally.unread and not interrupted:
        yield "the dump has no tensors; there was nothing to check"


def _operators(
    processes: Sequence[Sequence[SeenPass]], *, harmful: bool
) -> dict[int, tuple[str, ...]]:
    """Operations with odd outputs by process id; if ``harmful`` not those with odd padding."""
    found: dict[int, dict[str, None]] = {}
    for passes in processes:
        for one in passes:
            for event in one.events:
                concerns = event.kind not in ("padding", "held") or not harmful
                if event.is_leaf and event.odd_out and concerns:
                    found.setdefault(event.operation.pid, {})[event.operation.name] = None
    return {pid: tuple(names) for pid, names in found.items()}


class _Report:
    """Findings from beginnings."""

    def __init__(
        self, processes: Sequence[Sequence[SeenPass]], ranks: Sequence[int], traced: Spread
    ) -> None:
        self._ranks = ranks
        self._traced = traced
        self._lasts = {
            (event.process, event.order)
            for passes in processes
            for one in passes
            for event in one.events
            if event.op == len(one.tree.run.operations) - 1
        }
        self._tainted: dict[Key, list[Event]] = {}
        for passes in processes:
            for one in passes:
                for event in one.events:
                    for key in traced.taints.get((event.process, event.order), ()):
                        self._tainted.setdefault(key, []).append(event)

    def findings(self) -> list[Finding]:
        """All of them; what repeats itself at later steps is one."""
        merged: dict[tuple[object, ...], Finding] = {}
        # by when it happened first: pass, then place in the process
        for beginning in sorted(self._traced.beginnings.values(), key=_when):
            finding = self._finding(beginning)
            again = (finding.origin, finding.place.name, finding.place.pid, finding.place.rank)
            if again in merged:
                known = merged[again]
                steps = tuple(dict.fromkeys((*known.steps, *finding.steps)))
                merged[again] = replace(known, steps=steps, flow=_joined(known.flow, finding.flow))
            else:
                merged[again] = finding
        return sorted(merged.values(), key=lambda each: each.origin not in HARMFUL)

    def _finding(self, beginning: Beginning) -> Finding:
        event = beginning.event
        operation = event.operation
        blamed = operation
        if beginning.around is not None:
            blamed = event.run.operations[beginning.around]
        takes = beginning.origin in ("entered", "unread") or blamed is not operation
        origin, reason = beginning.origin, _reason(beginning, blamed is operation)
        if origin == "unread" and (reader := self._reads_around(beginning)) is not None:
            origin, reason = "padding", f"{reader} reads only what is beside it"
        others = self._traced.copies.get(beginning.key, frozenset()) - {event.process}
        return Finding(
            origin,
            _place(blamed, self._ranks[event.process]),
            tuple(_odd(seen) for seen in (takes and event.odd_in) or event.odd_out or event.odd_in),
            reason,
            self._flow(beginning),
            (blamed.step,),
            tuple(sorted(self._ranks[process] for process in others)),
        )

    def _reads_around(self, beginning: Beginning) -> str | None:
        """The first operation that was given it and let it be, as padding; None without one."""
        events = self._tainted.get(beginning.key, ())
        found = (e for e in events if e.kind == "padding" and e is not beginning.event)
        return next((event.operation.name for event in found), None)

    def _flow(self, beginning: Beginning) -> Flow:
        first = (beginning.event.process, beginning.event.order)
        later = [
            event
            for event in self._tainted.get(beginning.key, ())
            if (event.process, event.order) != first and event.is_leaf and event.odd_out
        ]
        later.sort(key=lambda event: (event.process != first[0], event.process, event.order))
        ranks = {self._ranks[event.process] for event in (beginning.event, *later)}
        ends = {(event.process, event.order) for event in (beginning.event, *later)}
        return Flow(
            len(later),
            tuple(_place(event.operation, self._ranks[event.process]) for event in later[:_NAMED]),
            tuple(sorted(ranks)),
            bool(ends & self._lasts),
        )


def _when(beginning: Beginning) -> tuple[int, int, int]:
    event = beginning.event
    return (event.run.step, event.op, event.process)


def _joined(first: Flow, second: Flow) -> Flow:
    return Flow(
        first.operations + second.operations,
        first.first or second.first,
        tuple(sorted({*first.ranks, *second.ranks})),
        first.reached_end or second.reached_end,
    )


def _place(operation: Operation, rank: int) -> Place:
    return Place(
        operation.name,
        str(operation.op_id),
        operation.type,
        operation.step,
        rank,
        operation.pid,
    )


def _odd(seen: Seen) -> OddTensor:
    tensor, reading = seen.tensor, seen.reading
    label = tensor.ir_name or ""
    return OddTensor(
        seen.parameter or tensor.name,
        "" if seen.parameter or label.isdecimal() else label,
        tensor.dtype.label,
        tensor.shape,
        reading.nan,
        reading.inf,
        reading.saturated,
        reading.counted,
        reading.first,
        seen.where,
    )


def _reason(beginning: Beginning, at_itself: bool) -> str:
    event = beginning.event
    name = event.operation.name
    if beginning.origin == "born":
        if not event.inputs_known:
            return "the first that shows it; its inputs are not all in the dump"
        return "its inputs are clean" + (" but for what a mask hides" if event.masks else "")
    if beginning.origin == "leak" and not at_itself:
        return f"only padding was odd in its inputs, and its own code gave it to tokens of {name}"
    if beginning.origin == "leak":
        return "only padding was odd in its inputs, and tokens are in its output"
    if beginning.origin == "own code":
        if at_itself:
            return "its inputs are clean, and so is all that its captured parts returned"
        return f"computed by its own code, between its captured parts; {name} received it"
    if beginning.origin == "entered" and any(seen.parameter for seen in event.odd_in):
        return "a parameter of its own, and its inputs are clean"
    if beginning.origin == "entered":
        return "came in from outside of what was captured" + (
            "" if at_itself else f"; {name} is the first that used it"
        )
    if beginning.origin == "received":
        return "its inputs are clean on this rank, and the dump lacks a rank that it received from"
    if beginning.origin == "padding":
        return "only padding is concerned; no token reads it"
    if event.kind == "held":
        return "the cache held it before, and what was written into the cache is clean"
    return "no operation took it over"
