"""Which columns of which projections are the same when one side computes several as one.

``[tokens, q + k + v]`` of one ATB operation answers ``q_proj``, ``k_proj`` and ``v_proj``; or
three ATB operations answer one fused module. Members of equal width are twins: they are told apart
by what happens to their results, then by their names; their order alone makes no certain pair.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ait_llm.program.describe import params_of, shape_of, width_of
from ait_llm.program.flow import Value
from ait_llm.program.program import Column, Program, Unit
from ait_llm.program.roles import Role

# What projections are for, by the last parts of their names; the same words on both sides.
_NAMES = (
    ("query", r"(?:^|[._])(?:q|query|wq|to_q|q_lin)(?:_?(?:proj|projection|linear|lin))?$"),
    ("key", r"(?:^|[._])(?:k|key|wk|to_k|k_lin)(?:_?(?:proj|projection|linear|lin))?$"),
    ("value", r"(?:^|[._])(?:v|value|wv|to_v|v_lin)(?:_?(?:proj|projection|linear|lin))?$"),
    ("gate", r"(?:^|[._])(?:gate|w1|wi_0|fc_1)(?:_?(?:proj|projection|linear))?$"),
    ("up", r"(?:^|[._])(?:up|w3|wi_1|fc_2)(?:_?(?:proj|projection|linear))?$"),
)
_ORDER = ("query", "key", "value", "gate", "up")


@dataclass(frozen=True, slots=True)
class Share:
    """Columns of a result of one side that are columns of a result of the other.

    Attributes:
        left, right: the projections.
        left_start, right_start: first column.
        width: number of columns.
        purpose: ``query``, ``gate``; empty if unknown or all of it.
        evidence: how twins were told apart; empty where there are none.
        twins: other right projections that fit as well.
    """

    left: Unit
    right: Unit
    left_start: int
    right_start: int
    width: int
    purpose: str = ""
    evidence: str = ""
    twins: tuple[int, ...] = ()


def share(
    left: Program, right: Program, mine: Sequence[Unit], theirs: Sequence[Unit]
) -> tuple[Share, ...]:
    """Pair the columns of projections that read the same value; empty if they do not fit."""
    if len(mine) == 1 == len(theirs):
        width = mine[0].fan_out
        return (Share(mine[0], theirs[0], 0, 0, width),) if width == theirs[0].fan_out else ()
    by_purpose = _by_purpose(columns_of_all(left, mine), columns_of_all(right, theirs))
    if by_purpose:
        return by_purpose
    return _by_width(mine, theirs)


def _by_purpose(left: list[Column], right: list[Column]) -> tuple[Share, ...]:
    """Pair what both sides say the purpose of; all of it, or it proves nothing."""
    purposes = [column.purpose for column in left]
    named = {column.purpose: column for column in right if column.purpose}
    if not all(purposes) or len(set(purposes)) < len(purposes):
        return ()
    if len(named) < len(right) or set(named) != set(purposes):
        return ()
    if any(named[column.purpose].width != column.width for column in left):
        return ()
    widths = [column.width for column in left]
    return tuple(
        Share(
            column.unit,
            named[column.purpose].unit,
            column.start,
            named[column.purpose].start,
            column.width,
            column.purpose,
            "by purpose" if widths.count(column.width) > 1 else "",
        )
        for column in left
    )


def _by_width(mine: Sequence[Unit], theirs: Sequence[Unit]) -> tuple[Share, ...]:
    """Pair by widths in order; either side's projection may cover several of the other's."""
    shares: list[Share] = []
    free = list(theirs)
    for unit in mine:
        run = _run_of(free, unit.fan_out)
        if run is None:
            continue
        start = 0
        for other in run:
            twins = [t.op for t in theirs if t.fan_out == other.fan_out and t is not other]
            shares.append(Share(unit, other, start, 0, other.fan_out, twins=tuple(twins)))
            start += other.fan_out
            free.remove(other)
    if shares:
        return tuple(shares)
    for other in theirs:  # one projection of right covers several of ATB
        run = _run_of(list(mine), other.fan_out)
        if run is None:
            continue
        start = 0
        for unit in run:
            ambiguous = sum(u.fan_out == unit.fan_out for u in run) > 1
            twins = [other.op] if ambiguous else []
            shares.append(Share(unit, other, 0, start, unit.fan_out, twins=tuple(twins)))
            start += unit.fan_out
    return tuple(shares)


def _run_of(units: list[Unit], width: int) -> list[Unit] | None:
    """One of that width, else neighbours whose widths add up to it."""
    exact = next((unit for unit in units if unit.fan_out == width), None)
    if exact is not None:
        return [exact]
    for start in range(len(units)):
        total = 0
        for stop in range(start, len(units)):
            total += units[stop].fan_out
            if total == width:
                return units[start : stop + 1]
            if total > width:
                break
    return None


def columns_of_all(side: Program, units: Sequence[Unit]) -> list[Column]:
    """Columns of projections of one value; of two where one is the gate, the other is not."""
    columns = [column for unit in units for column in columns_of(side, unit)]
    if len(columns) == 2 and sorted(column.purpose for column in columns) == ["", "gate"]:
        return [replace(column, purpose=column.purpose or "up") for column in columns]
    return columns


def columns_of(side: Program, unit: Unit) -> list[Column]:
    """Columns of a projection as the operations behind it use them, else as its name says.

    Found once for each unit: alignment asks for every candidate.
    """
    if unit.op not in side.columns:
        side.columns[unit.op] = _columns_of(side, unit)
    return side.columns[unit.op]


def _columns_of(side: Program, unit: Unit) -> list[Column]:
    if unit.result is None:
        return [Column(unit, 0, unit.fan_out)]
    pieces = _pieces(side, unit.result)
    if pieces:
        columns = []
        start = 0
        for value, width in pieces:
            columns.append(Column(unit, start, width, _use_of(side, value)))
            start += width
        return columns if start == unit.fan_out else [Column(unit, 0, unit.fan_out)]
    if any(side.roles[use.op] is Role.GATED for use in unit.result.reads):
        half = unit.fan_out // 2
        return [Column(unit, 0, half, "gate"), Column(unit, half, half, "up")]
    purpose = _use_of(side, unit.result) or purpose_by_name(side.operations[unit.op].name)
    return [Column(unit, 0, unit.fan_out, purpose)]


def _pieces(side: Program, value: Value) -> list[tuple[Value, int]]:
    """What a split along the last axis makes of a value."""
    columns = sorted(value.pieces, key=lambda piece: piece.start)
    ends = [piece.start + piece.width for piece in columns]
    without_gaps = columns and [0, *ends[:-1]] == [piece.start for piece in columns]
    if without_gaps and ends[-1] == width_of(value.uses[0].tensor):
        return [(piece.value, piece.width) for piece in columns]
    for use in value.reads:
        operation = side.operations[use.op]
        if side.roles[use.op] is not Role.SPLIT:
            continue
        shape = shape_of(use.tensor)
        if not shape or params_of(operation).get("splitDim", -1) not in (-1, len(shape) - 1):
            continue
        pieces = []
        for tensor in operation.outputs:
            written = side.value(use.op, tensor)
            piece = shape_of(tensor)
            if written is None or not piece or piece[:-1] != shape[:-1]:
                return []
            pieces.append((written, piece[-1]))
        return pieces
    return []


def _use_of(side: Program, value: Value) -> str:
    """What a value is for: the place at which attention takes it, or the gate of an activation."""
    told = side.purpose_of(value)
    if told:
        return told
    seen: set[int] = set()
    pending = [value]
    while pending:
        current = pending.pop()
        if current.number in seen:
            continue
        seen.add(current.number)
        for use in current.reads:
            role = side.roles[use.op]
            if (
                role is Role.CORE
                and use.tensor.index < 3
                and len(side.operations[use.op].inputs) > 3
            ):
                return _ORDER[use.tensor.index]
            if role is Role.ROTARY and side.is_packed:
                turned = side.flow.at(use.op, "out", use.tensor.index)
                if turned is not None and use.tensor.index < 2:
                    pending.append(turned)
            elif role is Role.CACHE and use.tensor.index < 2:
                return _ORDER[1 + use.tensor.index]
            elif role is Role.ACTIVATION:
                return "gate"
            elif role is Role.MUL:
                return "up"
            elif role is Role.NORM:
                normed = side.flow.at(use.op, "out", 0)
                if normed is not None:
                    pending.append(normed)
    return ""


def same_family(first: str, second: str) -> bool:
    """True if two modules are, by their names, projections that are computed as one elsewhere."""
    families = ({"query", "key", "value"}, {"gate", "up"})
    return any({purpose_by_name(first), purpose_by_name(second)} <= family for family in families)


def purpose_by_name(path: str) -> str:
    """What a projection is for by the end of its name; empty if that says nothing."""
    return next((purpose for purpose, name in _NAMES if re.search(name, path)), "")
