"""What to capture next: as much around the first difference as the budget allows, and no more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ait_llm.bisect.around import is_narrow, surroundings, suspects
from ait_llm.bisect.picture import Place, has_values
from ait_llm.bisect.sizes import operation_bytes
from ait_llm.bisect.step import OVERHEAD, Capture, selection_of
from ait_llm.bisect.token_rows import token_layout
from ait_llm.dumps.model import Operation, Role
from ait_llm.opcheck.cases import golden_of
from ait_llm.probe import TensorPart

_BOTH: tuple[Role, ...] = ("in", "out")
_NAMED = 3


@dataclass(frozen=True, slots=True)
class TooLarge:
    """Nothing more fits into the budget.

    Attributes:
        bytes: what the smallest useful capture would write.
        operations: names of those that it would capture.
    """

    bytes: int
    operations: tuple[str, ...]


def next_capture(place: Place, left: int | None, depth: int) -> Capture | TooLarge | None:
    """The next capture around the first difference.

    The operations between values that agree and the first that does not come first, and those
    that computed their inputs up to ``depth`` operations back: statistics do not show every
    difference. If they do not fit, or both programs differ in kind, so that few statistics answer
    each other, outputs of operations spread over the way there narrow it down before.

    Args:
        place: where the difference is.
        left: bytes that may be written; None for any number.
        depth: how many producers back values are wanted.

    Returns:
        None if everything within that depth was captured already.
    """
    if not place.is_alike and (layout := token_layout(place, left)) is not None:
        return layout
    candidates = suspects(place)
    around = surroundings(place, candidates, depth)
    wanted = [op for op in around if not _is_captured(place, op)]
    if not is_narrow(place, candidates) or len(wanted) < len(around):
        narrowing = spread_outputs(place, left)
        if narrowing is not None:
            return narrowing
    if not wanted:
        return None
    few = [op for op in candidates if op in wanted]
    for ops in filter(None, (wanted, few)):
        capture = _values_of(place, ops, "around the first difference")
        if _fits(capture, left):
            return capture
    if (narrowing := spread_outputs(place, left)) is not None:
        return narrowing
    # Nearest to the difference first: what is further back is more likely to be right.
    order = [*reversed(candidates), *reversed([op for op in around if op not in candidates])]
    chosen: list[int] = []
    for op in order:
        if op in wanted and _fits(_values_of(place, [*chosen, op], ""), left):
            chosen.append(op)
    if chosen:
        return _values_of(place, sorted(chosen), "as many as fit, nearest first")
    smallest = min(_values_of(place, [op], "").bytes for op in wanted)
    names = tuple(place.mine.operations[op].name for op in wanted[:_NAMED])
    return TooLarge(smallest, names)


def cache_writers(place: Place, left: int | None) -> Capture | None:
    """What a run before the failure wrote into caches, with what was computed for it.

    None if there are no caches, or those values were captured, or do not fit.
    """
    writers = surroundings(place, place.values.writers_of_state(), 1)
    wanted = [op for op in writers if not _is_captured(place, op)]
    if not wanted:
        return None
    capture = _values_of(place, wanted, "what was written into caches before")
    return capture if _fits(capture, left) else None


def _is_captured(place: Place, op: int) -> bool:
    """True if values of an operation are there, on both sides where a comparison must decide."""
    operation = place.mine.operations[op]
    if not has_values(operation):
        return False
    return not _needs_golden(place, operation, op) or all(
        partner.tensor.has_data for partner in place.partners_of([op], _BOTH)
    )


def _needs_golden(place: Place, operation: Operation, op: int) -> bool:
    """True if an operation cannot be computed once more from its own inputs."""
    return place.mine.kind != "atb" or golden_of(operation) is None or not place.values.is_leaf(op)


def _values_of(place: Place, ops: Sequence[int], why: str) -> Capture:
    """Inputs and outputs of operations of mine, and of their partners where they decide."""
    operations = [place.mine.operations[op] for op in ops]
    missing = [each for each in operations if not has_values(each)]
    before = any(place.values.works_in_place(op) for op in ops)
    capture = Capture(why)
    if missing:
        capture = replace(
            capture,
            mine=selection_of(place.mine, missing, TensorPart.BOTH, before=before),
            my_bytes=OVERHEAD
            + sum(operation_bytes(each, _BOTH, before=before) for each in missing),
        )
    compared = [op for op in ops if _needs_golden(place, place.mine.operations[op], op)]
    partners = place.partners_of(compared, _BOTH)
    theirs = {id(each.operation): each.operation for each in partners if not each.tensor.has_data}
    if theirs:
        capture = replace(
            capture,
            golden=selection_of(place.golden, list(theirs.values()), TensorPart.BOTH),
            golden_bytes=OVERHEAD + sum(operation_bytes(each, _BOTH) for each in theirs.values()),
        )
    return capture


def spread_outputs(place: Place, left: int | None, *, anyway: bool = False) -> Capture | None:
    """Outputs on the way to the first failure and of their partners, evenly spread over the way.

    Where nothing failed, of all operations. None if values of all of them are there.

    Args:
        place: where the difference is.
        left: bytes that may be written; None for any number.
        anyway: also where statistics of both sides answer each other and nothing failed.
    """
    ways: list[Iterable[int]] = [place.values.leaves()]
    if place.failed is not None:
        # Between values that agree first; statistics that agree may hide a difference.
        ways = [
            place.values.upstream(place.failed, through=through).operations
            for through in (False, True)
        ]
    elif place.is_alike and not anyway:
        return None  # their statistics answer each other and agree
    useful: list[int] = []
    for ops in ways:
        useful = useful or [op for op in ops if place.values.is_leaf(op) and _is_open(place, op)]
    count = len(useful)
    while count:
        places = {round(each * (len(useful) - 1) / max(count - 1, 1)) for each in range(count)}
        capture = _checkpoints(place, [useful[each] for each in sorted(places)])
        # Half is left for the values of the operations that remain.
        if _fits(capture, None if left is None else left // 2):
            return capture
        count = 3 * count // 4
    return None


def _is_open(place: Place, op: int) -> bool:
    """True if an output has a partner and the values of one of the two are not there."""
    own = has_values(place.mine.operations[op], ("out",))
    return any(not (own and each.tensor.has_data) for each in place.partners_of([op], ("out",)))


def _checkpoints(place: Place, ops: Sequence[int]) -> Capture:
    """Outputs of operations of mine and the tensors that answer them."""
    operations = [place.mine.operations[op] for op in ops]
    mine = [each for each in operations if not has_values(each, ("out",))]
    partners = [each for each in place.partners_of(ops, ("out",)) if not each.tensor.has_data]
    theirs = list({id(each.operation): each.operation for each in partners}.values())
    outputs = all(each.tensor.role == "out" for each in partners)
    roles: tuple[Role, ...] = ("out",) if outputs else _BOTH
    part = TensorPart.OUTPUTS if outputs else TensorPart.BOTH
    return Capture(
        "outputs, to narrow down where they part",
        selection_of(place.mine, mine, TensorPart.OUTPUTS) if mine else None,
        selection_of(place.golden, theirs, part) if theirs else None,
        OVERHEAD + sum(operation_bytes(each, ("out",)) for each in mine) if mine else 0,
        OVERHEAD + sum(operation_bytes(each, roles) for each in theirs) if theirs else 0,
    )


def _fits(capture: Capture, left: int | None) -> bool:
    return left is None or capture.bytes <= left
