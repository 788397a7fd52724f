"""What the captures of two sides say of themselves, before any of their tensors is looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ait_llm.core import Problem
from ait_llm.dumps import Dump, Process
from ait_llm.dumps.following import followed
from ait_llm.dumps.runs import newest_run
from ait_llm.match.model import SideName
from ait_llm.match.scenario import Input
from ait_llm.program.passes import assistants_of


def captures_say(golden: Input, mine: Input) -> tuple[Problem, ...]:
    """What the ledgers of both sides say is missing, stale, or another run's choice."""
    sides: tuple[tuple[SideName, Dump | None], ...]
    sides = (("golden", golden.dump), ("mine", mine.dump))
    return tuple(each for side, dump in sides if dump is not None for each in _of_side(side, dump))


def _of_side(side: SideName, dump: Dump) -> Iterator[Problem]:
    processes = newest_run(dump.processes)
    stale = [each for each in dump.processes if each not in processes]
    if stale:
        yield Problem(side, _stale(stale, processes), decides=False)
    yield from (Problem(side, each.problem) for each in processes if each.problem is not None)
    # ranks that say the same say it once
    told: dict[str, None] = {}
    for process in processes:
        took = followed(process.ledger.follow) if process.ledger is not None else None
        if took is not None:
            told |= dict.fromkeys(took.refused if took.done is None else (took.done,))
        told |= dict.fromkeys(map(_assistant, assistants_of(process)))
    yield from (Problem(side, text, decides=False) for text in told)


def _assistant(root: str) -> str:
    return (
        f"{root} is an assistant model: it only proposes tokens, of which the model itself makes "
        "sure; it was left out"
    )


def _stale(stale: Sequence[Process], newest: Sequence[Process]) -> str:
    """That earlier runs lie in the same folder, and which was taken."""
    which = ", ".join(_named(each) for each in stale[:2])
    more = f" and {len(stale) - 2} more" if len(stale) > 2 else ""
    return (
        f"an earlier run lies in the same folder and was left out: {which}{more}; taken was "
        f"{_named(newest[-1])}. Give each run an output of its own"
    )


def _named(process: Process) -> str:
    return f"process {process.pid} of {process.header.get('time')}"
