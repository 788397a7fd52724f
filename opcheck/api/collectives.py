"""Collectives of API dumps that hold all ranks: what each gets follows from what all bring.

A capture says which ranks a call is of where it was given a group. Without one it is of all ranks,
and how many these are no capture says; then the shapes of gathered tensors or sums that are right
have to show that the dump has them all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ait_llm.dumps.api_names import parse_name
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError
from ait_llm.opcheck.case import Case, NoCase

if TYPE_CHECKING:
    import torch

PREFIX = "Distributed."
_ALONE = NoCase(
    "speak to other ranks, and the dump does not have the calls of all of them, or does not show "
    "that it does"
)
_UNDEFINED = NoCase("speak to other ranks in ways that are not computed again")
_NOT_SAVED = "the tensors of all its ranks were not saved; capture with the task tensor"
_SUMMED = frozenset({"all_reduce"})
_GATHERED = frozenset({"all_gather_into_tensor", "_all_gather_base"})
_SCATTERED = frozenset({"reduce_scatter_tensor", "_reduce_scatter_base"})
_KNOWN = _SUMMED | _GATHERED | _SCATTERED | {"broadcast", "all_gather", "reduce_scatter"}
# Which argument a rank brings, by place and by keyword.
_BROUGHT: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_SUMMED | {"broadcast"}, ("input.0", "input.tensor")),
    **dict.fromkeys(_GATHERED, ("input.1", "input.input_tensor")),
    **dict.fromkeys(_SCATTERED, ("input.1", "input.input")),
    "all_gather": ("input.1", "input.tensor"),
    "reduce_scatter": ("input.1.", "input.input_list."),
}
# How many sums are looked at to see whether all ranks are there, the share of them that must be
# right, and how close to it they must be.
_SHOWN, _SHARE, _CLOSE = 8, 0.75, 0.02


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of one rank.

    Attributes:
        operation: the record.
        function: ``all_reduce``.
        ranks: of its group; empty for all.
        reduction: ``SUM``, ``MAX`` and so on.
        source: rank that a broadcast starts from, -1 if unknown.
    """

    operation: Operation
    function: str
    ranks: tuple[int, ...]
    reduction: str
    source: int

    @property
    def brought(self) -> list[Tensor]:
        """What its rank brings, a list of tensors in its order."""
        names = _BROUGHT[self.function]
        return [
            tensor
            for tensor in self.operation.inputs
            if str(tensor.ir_name) in names
            or any(each.endswith(".") and str(tensor.ir_name).startswith(each) for each in names)
        ]

    @property
    def got(self) -> list[Tensor]:
        """What its rank gets."""
        outputs = self.operation.outputs
        found = [each for each in outputs if str(each.ir_name) == "output.0"]
        return found or [each for each in outputs if str(each.ir_name).startswith("output.0.")]


def with_peers(operations: Sequence[Operation]) -> list[Operation]:
    """The same; collectives get the calls of all ranks of their group, in the order of the ranks.

    Of those whose group is not all there, or that did not call alike, nothing is added.
    """
    calls = [*_calls(operations)]
    everyone = tuple(sorted({call.operation.rank for call in calls}))
    is_whole = everyone == tuple(range(len(everyone)))
    found: dict[int, tuple[Operation, ...]] = {}
    unshown: list[list[_Call]] = []
    for meeting in _meetings(calls, everyone):
        if meeting[0].ranks:
            found |= _peers(meeting)
        elif is_whole:
            unshown.append(meeting)
    if unshown and _are_all(unshown):
        for meeting in unshown:
            found |= _peers(meeting)
    return [replace(one, peers=found[id(one)]) if id(one) in found else one for one in operations]


def _calls(operations: Iterable[Operation]) -> Iterator[_Call]:
    for one in operations:
        if _is_collective(one):
            try:
                yield _call_of(one)
            except AitError:
                continue  # a damaged record is told where it is judged


def collective_case(operation: Operation) -> Case | NoCase:
    """How a collective is computed again, from the inputs of all ranks of its group."""
    from ait_llm.opcheck.golden.functions import golden_function

    if parse_name(operation.name).type not in _KNOWN or operation.direction != "forward":
        return _UNDEFINED
    if not operation.peers:
        return _ALONE
    try:
        call, members = _call_of(operation), [_call_of(one) for one in operation.peers]
    except AitError as error:
        return NoCase(lost=str(error))
    own = next(place for place, one in enumerate(operation.peers) if one.rank == operation.rank)
    brought = [each.brought for each in members]
    outputs = dict(enumerate(call.got))
    compute = _compute(call, own, [one.rank for one in operation.peers])
    counts = {len(each) for each in brought}
    wanted = {len(members)} if call.function == "reduce_scatter" else {1}
    if compute is None or not outputs or counts != wanted:
        return _UNDEFINED
    inputs = [tensor for each in brought for tensor in each]
    saved = all(one.has_data or 0 in one.shape for one in [*inputs, *outputs.values()])
    golden = golden_function(operation.api_name, compute, roundings=_roundings(call, len(members)))
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


def _compute(call: _Call, own: int, ranks: Sequence[int]) -> Compute | None:
    """What the rank at a place of its group gets of what all bring; None if nobody knows."""
    import torch

    count = len(ranks)
    reduce = _reduction(call.reduction)
    if call.function == "broadcast":
        place = ranks.index(call.source) if call.source in ranks else None
        return None if place is None else lambda given: given[place]
    if call.function == "all_gather":
        return list
    if call.function in _GATHERED:
        return lambda given: torch.cat(list(given))  # type: ignore[arg-type]  # none is absent
    if reduce is None:
        return None
    if call.function in _SCATTERED:
        return lambda given: reduce(given).chunk(count)[own].clone()
    if call.function == "reduce_scatter":
        return lambda given: reduce(given[own::count])
    return reduce


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


def _roundings(call: _Call, ranks: int) -> int:
    """Ranks may add up one after the other in the tensors' own 16 bits, and divide first."""
    if call.function in _GATHERED | {"broadcast", "all_gather"}:
        return 0
    return max(0, ranks - 2) + (call.reduction == "AVG")


def _is_collective(operation: Operation) -> bool:
    if not operation.api_name.startswith(PREFIX) or operation.direction != "forward":
        return False
    return parse_name(operation.name).type in _KNOWN and operation.rank >= 0


def _call_of(operation: Operation) -> _Call:
    """What the arguments of a call say.

    Raises:
        FormatError: the record is damaged.
    """
    ranks: tuple[int, ...] = ()
    reduction, source = "SUM", -1
    function = parse_name(operation.name).type
    for value in operation.values:
        found = value.value
        if value.type == "torch.ProcessGroup" and isinstance(found, list):
            ranks = tuple(each for each in found if type(each) is int)
        elif value.section == "input" and str(found).startswith(("RedOpType.", "ReduceOp.")):
            reduction = str(found).rpartition(".")[2]
        elif value.label in ("input.src", "input.1") and type(found) is int:
            source = found
    return _Call(operation, function, ranks, reduction, source)


def _meetings(calls: Iterable[_Call], everyone: tuple[int, ...]) -> list[list[_Call]]:
    """The calls of all members of a group that are one communication.

    The k-th call of a function that one member makes in a group is the k-th of every other.
    """
    made: dict[tuple[Any, ...], dict[int, list[_Call]]] = defaultdict(lambda: defaultdict(list))
    for call in calls:
        own = call.operation
        made[own.step, call.function, call.ranks][own.rank].append(call)
    found: list[list[_Call]] = []
    for (_, _, ranks), by_rank in made.items():
        members = ranks or everyone
        counts = {len(by_rank[rank]) for rank in members if rank in by_rank}
        if len(members) < 2 or any(rank not in by_rank for rank in members) or len(counts) != 1:
            continue
        found += [list(one) for one in zip(*(by_rank[rank] for rank in members), strict=True)]
    return [one for one in found if len({call.reduction for call in one}) == 1]


def _peers(meeting: Sequence[_Call]) -> dict[int, tuple[Operation, ...]]:
    members = tuple(call.operation for call in meeting)
    return {id(one): members for one in members}


def _are_all(meetings: Sequence[Sequence[_Call]]) -> bool:
    """True if calls without a group show that the dump has all ranks."""
    shown = [size == len(one) for one in meetings if (size := _size_of(one[0])) is not None]
    if shown:
        return all(shown)
    sums = []
    for meeting in meetings:
        right = _adds_up(meeting)
        if right is not None:
            sums.append(right)
        if len(sums) == _SHOWN:
            break
    return bool(sums) and sum(sums) >= _SHARE * len(sums)


def _size_of(call: _Call) -> int | None:
    """How many ranks the shapes of a call tell; None if they tell nothing."""
    brought, got = call.brought, call.got
    if call.function == "all_gather":
        return len(got)
    if call.function == "reduce_scatter":
        return len(brought)
    if len(brought) != 1 or len(got) != 1:
        return None
    sizes = [int(np.prod(each.shape)) for each in (brought[0], got[0])]
    if call.function in _GATHERED and sizes[0]:
        return sizes[1] // sizes[0]
    if call.function in _SCATTERED and sizes[1]:
        return sizes[0] // sizes[1]
    return None


def _adds_up(meeting: Sequence[_Call]) -> bool | None:
    """Whether a sum is that of the ranks; None for what tells nothing."""
    if meeting[0].function not in _SUMMED or meeting[0].reduction != "SUM":
        return None
    try:
        given = [call.brought[0].nd().astype(np.float64) for call in meeting]
        made = meeting[0].got[0].nd().astype(np.float64)
    except (AitError, IndexError, ValueError):
        return None
    if len({each.shape for each in (*given, made)}) != 1:
        return None
    if not all(np.isfinite(each).all() and each.any() for each in (*given, made)):
        return None
    return bool(np.linalg.norm(made - sum(given)) <= _CLOSE * np.linalg.norm(made))
