"""Collectives of API dumps that hold all ranks: what each gets follows from what all bring."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ait_llm.dumps.api_names import parse_name
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.opcheck.api.collective_calls import (
    GATHERED,
    KNOWN,
    LISTS,
    MOVED,
    ONE_RANK,
    SCATTERED,
    TO_ONE,
    CollectiveCall,
    call_of,
)
from ait_llm.opcheck.case import Case, NoCase

if TYPE_CHECKING:
    import torch

_ALONE = NoCase(
    "speak to other ranks, and the dump does not have the calls of all of them, or does not show "
    "that it does"
)
_UNDEFINED = NoCase("speak to other ranks in ways that are not computed again")
_ELSEWHERE = NoCase("bring something of which another rank gets the result")
_NOT_SAVED = "the tensors of all its ranks were not saved; capture with the task tensor"


def collective_case(operation: Operation) -> Case | NoCase:
    """How a collective is computed again, from the inputs of all ranks of its group."""
    from ait_llm.opcheck.golden.functions import golden_function

    if parse_name(operation.name).type not in KNOWN or operation.direction != "forward":
        return _UNDEFINED
    if not operation.peers:
        return _ALONE
    try:
        call, members = call_of(operation), [call_of(one) for one in operation.peers]
    except AitError as error:
        return NoCase(lost=str(error))
    own = next(place for place, one in enumerate(operation.peers) if one.rank == operation.rank)
    ranks = [one.rank for one in operation.peers]
    if call.function in TO_ONE and call.one in ranks and operation.rank != call.one:
        return _ELSEWHERE
    brought = [each.brought for each in members]
    if call.function == "scatter" and call.one in ranks:
        brought = [brought[ranks.index(call.one)]]
    outputs = dict(enumerate(call.got))
    compute = compute_of(call, own, ranks, [each.sizes for each in members])
    counts = {len(each) for each in brought}
    wanted = {len(members)} if call.function in LISTS | {"scatter"} else {1}
    if compute is None or not outputs or counts != wanted:
        return _UNDEFINED
    inputs = [tensor for each in brought for tensor in each]
    saved = all(one.has_data or 0 in one.shape for one in [*inputs, *outputs.values()])
    golden = golden_function(
        operation.api_name, compute, roundings=roundings_of(call, len(members))
    )
    return Case(
        golden,
        {},
        partial(_values, inputs),
        lambda: outputs,
        "" if saved else _NOT_SAVED,
    )


def _values(tensors: Sequence[Tensor]) -> list[torch.Tensor | None]:
    from ait_llm.opcheck.cases import values_of

    return [values_of(tensor) for tensor in tensors]


Compute = Callable[[Sequence["torch.Tensor | None"]], Any]


def compute_of(
    call: CollectiveCall, own: int, ranks: Sequence[int], sizes: Sequence[Sequence[int]]
) -> Compute | None:
    """What the rank at a place of its group gets of what all bring; None if nobody knows.

    Args:
        call: of that rank.
        own: its place.
        ranks: of the group.
        sizes: of what each of them brings for each.
    """
    import torch

    count = len(ranks)
    reduce = _reduction(call.reduction)
    if call.function in ONE_RANK and call.one not in ranks:
        return None
    if call.function == "broadcast":
        place = ranks.index(call.one)
        return lambda given: given[place]
    if call.function == "scatter":
        return lambda given: given[own]
    if call.function in ("all_gather", "gather"):
        return list
    if call.function == "all_to_all":
        return lambda given: list(given[own::count])
    if call.function == "all_to_all_single":
        return lambda given: torch.cat(
            [_share(each, own, count, size) for each, size in zip(given, sizes, strict=True)]
        )
    if call.function in GATHERED:
        return lambda given: torch.cat(list(given))  # type: ignore[arg-type]  # none is absent
    if reduce is None:
        return None
    if call.function in SCATTERED:
        return lambda given: reduce(given).chunk(count)[own].clone()
    if call.function == "reduce_scatter":
        return lambda given: reduce(given[own::count])
    return reduce


def _share(brought: Any, own: int, count: int, sizes: Sequence[int]) -> torch.Tensor:
    """What a rank brings for the one at a place."""
    parts: Sequence[torch.Tensor]
    parts = brought.split(list(sizes)) if sizes else brought.chunk(count)
    return parts[own]


def _reduction(name: str) -> Callable[[Sequence[Any]], torch.Tensor] | None:
    import torch

    known: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "SUM": lambda stacked: stacked.sum(0, dtype=stacked.dtype),
        "AVG": lambda stacked: stacked.sum(0, dtype=stacked.dtype) / len(stacked),
        "MAX": lambda stacked: stacked.amax(0),
        "MIN": lambda stacked: stacked.amin(0),
        "PRODUCT": lambda stacked: stacked.prod(0, dtype=stacked.dtype),
    }
    found = known.get(name)
    return None if found is None else lambda given: found(torch.stack(list(given)))


def roundings_of(call: CollectiveCall, ranks: int) -> int:
    """Ranks may add up one after the other in the tensors' own 16 bits, and divide first."""
    if call.function in GATHERED | MOVED:
        return 0
    return max(0, ranks - 2) + (call.reduction == "AVG")
