"""Which collective calls of several processes are one communication."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ait_llm.core import OpId
from ait_llm.dumps.operations import Group, Operation
from ait_llm.program.meetings import with_meetings

KIND = "c10d.allreduce_.default"


@dataclass(eq=False)
class Held:
    """A dump of these operations."""

    held: list[Operation] = field(default_factory=list)

    def operations(self) -> Iterator[Operation]:
        return iter(self.held)


def call(pid: int, ranks: tuple[int, ...], place: int, number: int) -> Operation:
    group = Group(ranks, place, "SUM")
    return Operation("root.x", OpId((0,)), KIND, call=number, pid=pid, group=group)


def peers(calls: list[Operation]) -> list[tuple[tuple[int, int], ...]]:
    made = with_meetings(Held(calls), calls)  # type: ignore[arg-type]  # all that it asks for
    return [tuple((one.pid, one.call) for one in each.peers) for each in made]


def test_calls_meet_in_the_order_of_their_process() -> None:
    calls = [
        call(pid, (4, 6), place, number) for place, pid in ((0, 9), (1, 7)) for number in (0, 1)
    ]
    first, other = ((9, 0), (7, 0)), ((9, 1), (7, 1))
    assert peers(calls) == [first, other, first, other]


def test_groups_are_apart() -> None:
    calls = [call(1, (0, 1), 0, 0), call(2, (0, 1), 1, 0), call(3, (2, 3), 0, 0)]
    assert peers(calls) == [((1, 0), (2, 0))] * 2 + [()]


def test_nothing_is_told_of_a_group_whose_members_called_unlike() -> None:
    calls = [call(1, (0, 1), 0, 0), call(1, (0, 1), 0, 1), call(2, (0, 1), 1, 0)]
    assert peers(calls) == [(), (), ()]


def test_nothing_is_told_where_two_processes_have_one_place() -> None:
    calls = [call(1, (0, 1), 0, 0), call(2, (0, 1), 1, 0), call(3, (0, 1), 1, 0)]
    calls.append(call(1, (0, 1), 0, 1))
    assert peers(calls) == [()] * 4
