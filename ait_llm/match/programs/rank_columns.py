"""Which columns of the projections of a rank are which of the whole program.

A rank has its share of the columns of every projection. Where several are computed as one, it has
its share of each of them, one behind the other: never a stretch of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ait_llm.match.programs.fuse import Share, columns_of_all
from ait_llm.match.programs.shards import Portion, computes_several
from ait_llm.program.program import Column, Program, Unit
from ait_llm.program.roles import Role


def share_of_rank(
    left: Program, right: Program, mine: Sequence[Unit], theirs: Sequence[Unit], portion: Portion
) -> tuple[Share, ...]:
    """Pair the columns of projections that read the same value; empty if they do not fit."""
    if not (are_several(left, mine) or are_several(right, theirs)):
        found = portion.stretch(mine[0].fan_out, theirs[0].fan_out)
        return () if found is None else (Share(mine[0], theirs[0], *found),)
    return _by_purpose(columns_of_rank(left, mine), columns_of_rank(right, theirs), portion)


def columns_of_rank(side: Program, units: Sequence[Unit]) -> list[Column]:
    """Columns as operations use them, else as the one projection that computes them says."""
    found = columns_of_all(side, units)
    if len(units) > 1 or all(column.purpose for column in found):
        return found
    (unit,) = units
    operation = side.operations[unit.op]
    purposes = _PURPOSES["qkv" in operation.name.rpartition(".")[2]]
    widths = operation.definition.get(_WIDTHS)
    if not isinstance(widths, list | tuple) or len(widths) != len(purposes):
        return found
    if not all(type(width) is int for width in widths) or sum(widths) != unit.fan_out:
        return found
    starts = (sum(widths[:place]) for place in range(len(widths)))
    return [Column(unit, *each) for each in zip(starts, widths, purposes, strict=True)]


_WIDTHS = "output_partition_sizes"  # of vLLM and SGLang: the rank's columns of each part, in order
_PURPOSES = {True: ("query", "key", "value"), False: ("gate", "up")}


def _by_purpose(
    left: Sequence[Column], right: Sequence[Column], portion: Portion
) -> tuple[Share, ...]:
    """Pair what both sides say the purpose of; all of it, or it proves nothing."""
    ours = {column.purpose: column for column in left}
    theirs = {column.purpose: column for column in right}
    if "" in ours or ours.keys() != theirs.keys():
        return ()
    if len(ours) < len(left) or len(theirs) < len(right):
        return ()
    shares = []
    for purpose, column in ours.items():
        other = theirs[purpose]
        found = portion.stretch(column.width, other.width)
        if found is None:
            return ()
        one, two, width = found
        starts = column.start + one, other.start + two
        shares.append(Share(column.unit, other.unit, *starts, width, purpose, "by purpose"))
    return tuple(shares)


def are_several(side: Program, units: Sequence[Unit]) -> bool:
    """True for several projections, and one that is several by its name or its readers."""
    if len(units) > 1:
        return True
    (unit,) = units
    readers = () if unit.result is None else unit.result.reads
    return computes_several(side.operations[unit.op].name) or any(
        side.roles[use.op] is Role.GATED for use in readers
    )


def gives_summand(side: Program, op: int) -> bool:
    """True if what a rank's projection or embedding gives still has to be summed over ranks.

    Asked of one that has a share of the inputs, or of the rows of a table.
    """
    if side.operations[op].definition.get("reduce_results") is False:
        return True
    inside = [side.operations[member].type for member in side.within(op)]
    is_captured = any(kind.startswith("aten.") for kind in inside)
    return is_captured and not any(_COLLECTIVE in kind.replace("_", "") for kind in inside)


_COLLECTIVE = "reduce"  # c10d.allreduce_, _c10d_functional.all_reduce, vllm.all_reduce
