"""Tensors looked at in other processes, pass by pass; what they found is put together here.

Reading the values is nearly all of the work. A worker goes through a pass as the check itself does
and sends home what it read, in that order; the check then goes through the pass once more with the
answers at hand.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from ait_llm.dumps import Dump, open_dump
from ait_llm.dumps.model import Tensor
from ait_llm.engine import Engine, Lost
from ait_llm.errcheck.events import Tally, look_at
from ait_llm.errcheck.reading import Reading, read
from ait_llm.errors import FormatError
from ait_llm.naming import shown
from ait_llm.program.one_pass import Pass
from ait_llm.program.passes import passes_of
from ait_llm.storage import address, local_path

Reader = Callable[[Tensor], Reading]
# What was read of a pass, each with the name of its tensor.
Readings = list[tuple[str, Reading]]


@dataclass(frozen=True)
class Request:
    """A check, as far as a worker must know it.

    Attributes:
        token: differs for each check, so that nothing is remembered too long.
        root: path or URL of the dump.
    """

    token: str
    root: str


def read_pass(request: Request, place: tuple[int, int]) -> Readings:
    """Read a pass, by the numbers of its process and of itself, in this process."""
    opened = _opened(request)
    run = opened.run(*place)
    found: Readings = []

    def recorded(tensor: Tensor) -> Reading:
        reading = read(tensor)
        # a reason may name a copy that only this process has
        found.append((tensor.name, replace(reading, reason=shown(reading.reason))))
        return reading

    if run is not None:
        look_at(run, place[0], 0, Tally(), recorded)
    return found


def readers(engine: Engine, dump: Dump, runs: Sequence[Sequence[Pass]]) -> list[list[Reader]]:
    """For each pass of each process what gives its readings, found by an engine."""
    request = Request(uuid.uuid4().hex, address(dump.root))
    places = [(process, number) for process, each in enumerate(runs) for number in range(len(each))]
    found: dict[tuple[int, int], Readings | Lost] = {}
    running = engine.run(partial(read_pass, request), tuple(places), roots=(request.root,))
    with closing(running) as results:
        for index, answer in results:
            found[places[index]] = answer
    return [
        [_reader(request.root, found[process, number]) for number in range(len(each))]
        for process, each in enumerate(runs)
    ]


def _reader(root: str, found: Readings | Lost) -> Reader:
    if isinstance(found, Lost):
        lost = Reading("unread", reason=found.reason)
        return lambda _tensor: lost
    answers = iter(found)
    return partial(_next_answer, root, answers)


def _next_answer(root: str, answers: Iterator[tuple[str, Reading]], tensor: Tensor) -> Reading:
    name, reading = next(answers, ("", None))
    if reading is None or name != tensor.name:
        raise FormatError(root, "the node that was to check it sees other files under this path")
    return reading


class _Opened:
    """The passes of a dump in this process."""

    def __init__(self, request: Request) -> None:
        self.token = request.token
        self._dump = open_dump(local_path(request.root))
        self._process = -1
        self._runs: list[Pass] = []

    def run(self, process: int, number: int) -> Pass | None:
        """A pass, None where there is none; those of the last process are remembered."""
        processes = self._dump.processes
        if process >= len(processes):
            return None
        if process != self._process:
            self._process, self._runs = process, passes_of(self._dump, processes[process])
        return self._runs[number] if number < len(self._runs) else None


_last: _Opened | None = None


def _opened(request: Request) -> _Opened:
    global _last
    if _last is None or _last.token != request.token:
        _last = None  # memory for the next one
        _last = _Opened(request)
    return _last
