"""What the programs are given: token ids, positions, masks.

Statistics show that they differ and not how, and a mask tells which rows are padding, of which two
attentions may make what they like.
"""

from __future__ import annotations

from collections.abc import Sequence

from ait_llm.bisect.origins import origin_at
from ait_llm.bisect.picture import Place
from ait_llm.bisect.sizes import operation_bytes
from ait_llm.bisect.step import OVERHEAD, Capture, selection_of
from ait_llm.compare.origin_finding import OTHER_INPUT
from ait_llm.compare.origin_inputs import other_input
from ait_llm.core.comparison import Origin
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.probe import TensorPart


def given_inputs(place: Place, left: int | None, *, blamed: bool) -> Capture | None:
    """Inputs of both programs, if they may tell something.

    Args:
        place: where the first difference is.
        left: bytes that may be written; None for any number.
        blamed: what comes from outside is taken for the cause.

    Returns:
        None if they were captured, nothing speaks for another input, or they do not fit.
    """
    found = [op for op in outermost(place) if _is_open(place, op, blamed=blamed)]
    mine = [place.mine.operations[op] for op in found]
    partners = place.partners_of(found, ("in",))
    golden = list({id(each.operation): each.operation for each in partners}.values())
    if not mine or not golden:
        return None
    capture = Capture(
        "what the programs are given",
        selection_of(place.mine, mine, TensorPart.INPUTS),
        selection_of(place.golden, golden, TensorPart.INPUTS),
        _bytes(mine),
        _bytes(golden),
    )
    return capture if left is None or capture.bytes <= left else None


def outermost(place: Place) -> Sequence[int]:
    """The modules that the program itself calls; none of ATB, which has no such."""
    if not (place.mine.traits.dotted and place.golden.traits.dotted):
        return ()
    return [op for op, parent in enumerate(place.values.flow.parents) if parent is None]


def other_given(place: Place) -> Origin | None:
    """The first input that was captured of both and is another one; None if there is none."""
    counterparts = {
        op: partner.operation for (op, role, _), partner in place.partners.items() if role == "in"
    }
    found = other_input(place.values, counterparts)
    if found is None:
        return None
    operation = place.mine.operations[found.op]
    return origin_at(operation, f"inputs differ already: {found.text}", kind=OTHER_INPUT)


def has_padding(place: Place) -> bool:
    """True if a mask that was captured hides something: its statistics count what is hidden."""
    return any(
        _hides(tensor) and tensor.has_data
        for op in outermost(place)
        for tensor in place.mine.operations[op].inputs
    )


def _is_open(place: Place, op: int, *, blamed: bool) -> bool:
    inputs = place.mine.operations[op].inputs
    if not inputs or all(tensor.has_data for tensor in inputs):
        return False
    return blamed or any(
        not tensor.dtype.is_floating and (_hides(tensor) or _differs(place, op, tensor))
        for tensor in inputs
    )


def _hides(tensor: Tensor) -> bool:
    known = tensor.statistics
    is_mask = "mask" in (tensor.ir_name or "").lower() and not tensor.dtype.is_floating
    return is_mask and known is not None and known.min == 0


def _differs(place: Place, op: int, tensor: Tensor) -> bool:
    partner = place.partners.get((op, "in", tensor.index))
    return partner is not None and partner.tensor.statistics != tensor.statistics


def _bytes(operations: Sequence[Operation]) -> int:
    return OVERHEAD + sum(operation_bytes(each, ("in",)) for each in operations)
