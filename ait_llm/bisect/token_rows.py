"""What tells which packed row is which token of a padded batch."""

from __future__ import annotations

from ait_llm.bisect.picture import Place, has_values
from ait_llm.bisect.sizes import operation_bytes
from ait_llm.bisect.step import OVERHEAD, Capture, selection_of
from ait_llm.dumps.model import Operation
from ait_llm.probe import TensorPart
from ait_llm.program.one_pass import Pass


def token_layout(place: Place, left: int | None) -> Capture | None:
    """Inputs that say which row is which token, where packed rows answer padded ones.

    Statistics tell neither lengths nor token ids. None if most outputs have partners, or those
    inputs were captured.
    """
    leaves = list(place.values.leaves())
    if 2 * sum(bool(place.partners_of([op], ("out",))) for op in leaves) >= len(leaves):
        return None
    mine, golden = _index_readers(place.mine, left), _index_readers(place.golden, left)
    if not mine and not golden:
        return None
    return Capture(
        "lengths and token ids, to tell which row is which token",
        selection_of(place.mine, mine, TensorPart.INPUTS) if mine else None,
        selection_of(place.golden, golden, TensorPart.INPUTS) if golden else None,
        OVERHEAD + sum(operation_bytes(each, ("in",)) for each in mine) if mine else 0,
        OVERHEAD + sum(operation_bytes(each, ("in",)) for each in golden) if golden else 0,
    )


def _index_readers(run: Pass, left: int | None) -> list[Operation]:
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
