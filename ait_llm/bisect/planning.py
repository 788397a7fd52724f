"""What to capture next: as much around the first difference as the budget allows, and no more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ait_llm.bisect.captures import Selection
from ait_llm.bisect.picture import Partner, Place, has_values
from ait_llm.bisect.sizes import operation_bytes
from ait_llm.dumps.model import Operation, Role
from ait_llm.match.model import Run
from ait_llm.opcheck.cases import golden_of
from ait_llm.probe import TensorPart

_BOTH: tuple[Role, ...] = ("in", "out")
# A ledger, tables and folders that come with every capture.
OVERHEAD = 4096
_NAMED = 3
_FEW = 6  # operations that need no narrowing down


@dataclass(frozen=True, slots=True)
class Capture:
    """One step of the search: one run of mine, of golden, or of both.

    Attributes:
        why: what it is for, in a few words.
        mine, golden: what they write; None for no run.
        my_bytes, golden_bytes: what they are expected to write.
    """

    why: str
    mine: Selection | None = None
    golden: Selection | None = None
    my_bytes: int = 0
    golden_bytes: int = 0

    @property
    def bytes(self) -> int:
        """What both write."""
        return self.my_bytes + self.golden_bytes


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
    if not place.is_alike and (layout := _token_layout(place, left)) is not None:
        return layout
    candidates = suspects(place)
    around = surroundings(place, candidates, depth)
    wanted = [op for op in around if not _is_captured(place, op)]
    if not _is_narrow(place, candidates) or len(wanted) < len(around):
        narrowing = _outputs_of(place, left)
        if narrowing is not None:
            return narrowing
    if not wanted:
        return None
    few = [op for op in candidates if op in wanted]
    for ops in filter(None, (wanted, few)):
        capture = _values_of(place, ops, "around the first difference")
        if _fits(capture, left):
            return capture
    if (narrowing := _outputs_of(place, left)) is not None:
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


def _is_narrow(place: Place, candidates: Sequence[int]) -> bool:
    """True if it is known well enough where the two part.

    Programs of different kinds have few statistics in common, so that the first failure may be
    far behind the first difference; failing values on both sides are another matter.
    """
    if place.is_alike:
        return True
    by_values = place.failed is not None and place.values.error(place.failed) is not None
    return by_values and len(candidates) <= _FEW


def suspects(place: Place) -> list[int]:
    """The operations that may have made the first difference, in execution order."""
    found: set[int] = set()
    if place.failed is not None:
        found |= set(place.values.upstream(place.failed).operations)
    if place.is_alike and place.first_unequal is not None and _mostly_equal(place):
        producer = place.values.producer(place.first_unequal)
        if producer is not None:
            found.add(producer)
    return sorted(found)


def surroundings(place: Place, ops: Sequence[int], depth: int) -> list[int]:
    """Operations and what computed their inputs, up to ``depth`` operations back."""
    found = set(ops)
    for _ in range(depth):
        more = [op for op in place.producers(found) if place.values.is_leaf(op)]
        if not more:
            break
        found |= set(more)
    return sorted(found)


def _mostly_equal(place: Place) -> bool:
    """True if values before the first failure are equal to the bit: both sides round alike."""
    assert place.first_unequal is not None
    if place.failed is None:
        return True
    before = [value for value in place.values.evidence if value < place.failed]
    equal = [value for value in before if value < place.first_unequal]
    return 2 * len(equal) >= len(before)


def _is_captured(place: Place, op: int) -> bool:
    """True if values of an operation are there, on both sides where a comparison must decide."""
    operation = place.mine.operations[op]
    if not has_values(operation):
        return False
    return not _needs_golden(place, operation, op) or all(
        partner.tensor.has_data for partner in _partners(place, [op], _BOTH)
    )


def _needs_golden(place: Place, operation: Operation, op: int) -> bool:
    """True if an operation cannot be computed once more from its own inputs."""
    return (
        place.mine.kind != "atb"
        or golden_of(operation.type) is None
        or not place.values.is_leaf(op)
    )


def _partners(place: Place, ops: Sequence[int], roles: Sequence[Role]) -> list[Partner]:
    """Golden tensors that answer tensors of these operations."""
    return [
        partner for (op, role, _), partner in place.partners.items() if op in ops and role in roles
    ]


def _values_of(place: Place, ops: Sequence[int], why: str) -> Capture:
    """Inputs and outputs of operations of mine, and of their partners where they decide."""
    operations = [place.mine.operations[op] for op in ops]
    missing = [each for each in operations if not has_values(each)]
    before = any(place.values.works_in_place(op) for op in ops)
    capture = Capture(why)
    if missing:
        capture = replace(
            capture,
            mine=_selection(place.mine, missing, TensorPart.BOTH, before=before),
            my_bytes=OVERHEAD
            + sum(operation_bytes(each, _BOTH, before=before) for each in missing),
        )
    compared = [op for op in ops if _needs_golden(place, place.mine.operations[op], op)]
    partners = _partners(place, compared, _BOTH)
    theirs = {id(each.operation): each.operation for each in partners if not each.tensor.has_data}
    if theirs:
        capture = replace(
            capture,
            golden=_selection(place.golden, list(theirs.values()), TensorPart.BOTH),
            golden_bytes=OVERHEAD + sum(operation_bytes(each, _BOTH) for each in theirs.values()),
        )
    return capture


def _outputs_of(place: Place, left: int | None) -> Capture | None:
    """Outputs on the way to the first failure and of their partners, evenly spread over the way.

    Where nothing failed, of all operations. None if values of all of them are there.
    """
    ops: Iterable[int] = place.values.leaves()
    if place.failed is not None:
        ops = place.values.upstream(place.failed, through=True).operations
    elif place.is_alike:
        return None  # their statistics answer each other and agree
    useful = [op for op in ops if place.values.is_leaf(op) and _is_open(place, op)]
    count = len(useful)
    while count:
        places = {round(each * (len(useful) - 1) / max(count - 1, 1)) for each in range(count)}
        capture = _checkpoints(place, [useful[each] for each in sorted(places)])
        # Half is left for the values of the operations that remain.
        if _fits(capture, None if left is None else left // 2):
            return capture
        count = 3 * count // 4
    return None


def _token_layout(place: Place, left: int | None) -> Capture | None:
    """Inputs that say which row is which token, where packed rows answer padded ones.

    Statistics tell neither lengths nor token ids. None if most outputs have partners, or those
    inputs were captured.
    """
    leaves = list(place.values.leaves())
    if 2 * sum(bool(_partners(place, [op], ("out",))) for op in leaves) >= len(leaves):
        return None
    mine, golden = _index_readers(place.mine, left), _index_readers(place.golden, left)
    if not mine and not golden:
        return None
    return Capture(
        "lengths and token ids, to tell which row is which token",
        _selection(place.mine, mine, TensorPart.INPUTS) if mine else None,
        _selection(place.golden, golden, TensorPart.INPUTS) if golden else None,
        OVERHEAD + sum(operation_bytes(each, ("in",)) for each in mine) if mine else 0,
        OVERHEAD + sum(operation_bytes(each, ("in",)) for each in golden) if golden else 0,
    )


def _index_readers(run: Run, left: int | None) -> list[Operation]:
    """Who reads vectors and matrices of whole numbers, of each type the one that reads least."""
    cheapest: dict[tuple[object, ...], Operation] = {}
    for operation in run.operations:
        for tensor in operation.inputs:
            if tensor.dtype.is_floating or not 1 <= len(tensor.shape) <= 2:
                continue
            key = (operation.type, tensor.shape, tensor.statistics)
            other = cheapest.get(key)
            if other is None or operation_bytes(operation, ("in",)) < operation_bytes(
                other, ("in",)
            ):
                cheapest[key] = operation
    wanted = {id(each): each for each in cheapest.values()}.values()
    share = None if left is None else left // 16
    return [
        each
        for each in wanted
        if (share is None or operation_bytes(each, ("in",)) <= share)
        and not has_values(each, ("in",))
    ]


def _is_open(place: Place, op: int) -> bool:
    """True if an output has a partner and the values of one of the two are not there."""
    own = has_values(place.mine.operations[op], ("out",))
    return any(not (own and each.tensor.has_data) for each in _partners(place, [op], ("out",)))


def _checkpoints(place: Place, ops: Sequence[int]) -> Capture:
    """Outputs of operations of mine and the tensors that answer them."""
    operations = [place.mine.operations[op] for op in ops]
    mine = [each for each in operations if not has_values(each, ("out",))]
    partners = [each for each in _partners(place, ops, ("out",)) if not each.tensor.has_data]
    theirs = list({id(each.operation): each.operation for each in partners}.values())
    outputs = all(each.tensor.role == "out" for each in partners)
    roles: tuple[Role, ...] = ("out",) if outputs else _BOTH
    part = TensorPart.OUTPUTS if outputs else TensorPart.BOTH
    return Capture(
        "outputs, to narrow down where they part",
        _selection(place.mine, mine, TensorPart.OUTPUTS) if mine else None,
        _selection(place.golden, theirs, part) if theirs else None,
        OVERHEAD + sum(operation_bytes(each, ("out",)) for each in mine) if mine else 0,
        OVERHEAD + sum(operation_bytes(each, roles) for each in theirs) if theirs else 0,
    )


def _selection(
    run: Run, operations: Sequence[Operation], part: TensorPart, *, before: bool = False
) -> Selection:
    """How a capture is told these operations."""
    names = (str(each.op_id) if run.kind == "atb" else each.name for each in operations)
    steps = tuple(sorted({each.step for each in operations}))
    return Selection(tuple(dict.fromkeys(names)), steps, part, before)


def _fits(capture: Capture, left: int | None) -> bool:
    return left is None or capture.bytes <= left
