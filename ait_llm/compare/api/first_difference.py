"""The first call that differs, across all ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ait_llm.compare.api.rank_order import Call, Communication, depths
from ait_llm.compare.api.row import Row, fraction, number
from ait_llm.compare.api.without_rules import function_of
from ait_llm.core import Verdict, whole_number

_LIMIT = 0.5
# Memory without values, and writes that change what was there before.
_LEFT_OUT = ("Torch.empty", "Torch.fill", "Tensor.__setitem__")
# Outputs that carry the state of a random generator.
_STATES = {"npu_fusion_attention": (4, 5)}


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """Where one rank first differs.

    Attributes:
        rank: its number.
        name: the record.
        why: what makes it the first, as a clause.
    """

    rank: int
    name: str
    why: str


def record_differs(rows: Sequence[Row], mode: str, *, output: bool = True) -> bool:
    """True if msprobe calls an output, or an input, of a record different."""
    return any(_row_differs(row, mode) for row in rows if row.matched and row.is_output is output)


def call_of(record: str, rows: Sequence[Row]) -> Call:
    """What the search needs to know of a record: by what rounding permits, as every verdict."""
    return Call(
        record,
        _fails(rows, output=True) and not record.startswith(_LEFT_OUT),
        _fails(rows, output=False),
        communication_of(record, rows),
    )


def _fails(rows: Sequence[Row], *, output: bool) -> bool:
    return any(
        row.judged.verdict is Verdict.FAIL and not _is_state(row)
        for row in rows
        if row.matched and row.is_output is output
    )


def _is_state(row: Row) -> bool:
    """True for an output that is the state of a random generator."""
    assert row.mine is not None
    states = _STATES.get(function_of(row.mine.record), ())
    return row.is_output and any(row.mine.name.endswith(f".output.{place}") for place in states)


def first_differences(ranks: Mapping[int, Sequence[Call]]) -> list[FirstDifference]:
    """The earliest calls that differ, at most one per rank.

    What came before any communication is earlier than what came after it. A collective is blamed
    only if what went into it was right on all ranks; else the rank that brought it is.

    Args:
        ranks: calls in their order, by rank.
    """
    found = depths(ranks)
    differing = {
        rank: [
            (depth, call)
            for depth, call in zip(found[rank], calls, strict=True)
            if call.differs or (call.communication is not None and call.input_differs)
        ]
        for rank, calls in ranks.items()
    }
    earliest = min((each[0][0] for each in differing.values() if each), default=None)
    if earliest is None:
        return []
    first = {
        rank: each[0][1]
        for rank, each in sorted(differing.items())
        if each and each[0][0] == earliest
    }
    brought = {
        rank: call for rank, call in first.items() if call.communication and call.input_differs
    }
    if brought:
        why = "what it gives to the other ranks differs, and nothing before it on any rank does"
        return [FirstDifference(rank, call.name, why) for rank, call in brought.items()]
    return [FirstDifference(rank, call.name, _why(call)) for rank, call in first.items()]


def _why(call: Call) -> str:
    if call.communication is not None:
        return "its inputs are right on all ranks, its output differs"
    return "its output differs, and nothing before it on any rank does"


def _row_differs(row: Row, mode: str) -> bool:
    assert row.mine is not None
    assert row.golden is not None
    if mode == "md5":
        return row.mine.md5 != row.golden.md5
    return not _is_state(row) and any(_is_far(row, place) for place in range(4))


def _is_far(row: Row, place: int) -> bool:
    """True if one statistic is more than half of golden's away from it."""
    assert row.golden is not None
    error = fraction(row.cells[4 + place])
    if error is None:
        return row.cells[4 + place] in ("Nan", "Diff")
    if error <= _LIMIT:
        return False
    if error != float("inf"):
        return True
    # Golden's is 0, or one is infinite: measured with the range of golden's values.
    away = number(row.cells[place])
    if away is None:
        return True
    high, low = (number(each) or 0.0 for each in row.golden.statistics[:2])
    return abs(away) > _LIMIT * max(abs(high), abs(low))


def communication_of(record: str, rows: Sequence[Row]) -> Communication | None:
    """What a record says to other ranks, by my side of its rows; None for computation."""
    if not record.startswith("Distributed."):
        return None
    function = function_of(record)
    group: tuple[int, ...] = ()
    peers: list[tuple[str, int]] = []
    for row in rows:
        item = row.mine
        if item is None or item.state != "input":
            continue
        keyword = item.name.rpartition(".")[2]
        if item.dtype == "torch.ProcessGroup":
            group = _ranks(item.statistics[0])
        elif item.p2p[0]:
            peers.append((item.p2p[0].rpartition(".")[2], int(item.p2p[1])))
        elif keyword in ("src", "dst") and function in ("send", "isend", "recv", "irecv"):
            peers.append((function, int(item.statistics[0])))
    if not peers and function in ("send", "isend", "recv", "irecv"):
        numbers = [_positional(row) for row in rows]
        peers = [(function, each) for each in numbers if each is not None][:1]
    return Communication(function, group, tuple(peers))


def _positional(row: Row) -> int | None:
    """The rank that a call names without a keyword."""
    item = row.mine
    if item is None or item.state != "input" or item.dtype != "<class 'int'>":
        return None
    value: Any = item.statistics[0]
    return int(value)


def _ranks(text: object) -> tuple[int, ...]:
    found = (whole_number(part.strip()) for part in str(text).strip("[]").split(","))
    return tuple(rank for rank in found if rank is not None)
