"""The collective calls of all ranks of an API dump, and which of them are one communication.

A capture says which ranks a call is of where it was given a group. Without one it is of all ranks,
and how many these are no capture says; then the shapes of gathered tensors or sums that are right
have to show that the dump has them all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ait_llm.dumps.api_names import parse_name
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import AitError

PREFIX = "Distributed."
SUMMED = frozenset({"all_reduce"})
TO_ONE = frozenset({"reduce", "gather"})
MOVED = frozenset(
    {"broadcast", "all_gather", "gather", "scatter", "all_to_all", "all_to_all_single"}
)
GATHERED = frozenset({"all_gather_into_tensor", "_all_gather_base"})
SCATTERED = frozenset({"reduce_scatter_tensor", "_reduce_scatter_base"})
KNOWN = SUMMED | GATHERED | SCATTERED | TO_ONE | MOVED | {"reduce_scatter"}
LISTS = frozenset({"reduce_scatter", "all_to_all"})  # each rank brings something for each
# Which argument a rank brings, by place and by keyword.
_BROUGHT: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(SUMMED | TO_ONE | {"broadcast"}, ("input.0", "input.tensor")),
    **dict.fromkeys(GATHERED, ("input.1", "input.input_tensor")),
    **dict.fromkeys(SCATTERED, ("input.1", "input.input")),
    "all_gather": ("input.1", "input.tensor"),
    "reduce_scatter": ("input.1.", "input.input_list."),
    "scatter": ("input.1.", "input.scatter_list."),
    "all_to_all": ("input.1.", "input.input_tensor_list."),
    "all_to_all_single": ("input.1", "input.input"),
}
# Which argument says the rank that has or gets all; some have a default.
ONE_RANK: Mapping[str, tuple[str, ...]] = {
    "broadcast": ("input.1", "input.src"),
    "reduce": ("input.1", "input.dst"),
    "scatter": ("input.2", "input.src"),
    "gather": ("input.2", "input.dst"),
}
_BY_DEFAULT: Mapping[str, int] = {"scatter": 0, "gather": 0}
_SIZES = ("input.3.", "input.input_split_sizes.")  # of what a rank brings for each
# How many sums are looked at to see whether all ranks are there, the share of them that must be
# right, and how close to it they must be.
_SHOWN, _SHARE, _CLOSE = 8, 0.75, 0.02


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """One call of one rank.

    Attributes:
        operation: the record.
        function: ``all_reduce``.
        ranks: of its group; empty for all.
        reduction: ``SUM``, ``MAX`` and so on.
        one: the rank that has or gets all, -1 if unknown.
        sizes: of what it brings for each rank, along the first axis; empty if they are equal.
    """

    operation: Operation
    function: str
    ranks: tuple[int, ...]
    reduction: str
    one: int
    sizes: tuple[int, ...]

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
        if self.function == "gather":  # behind what it brings
            return [each for each in outputs if str(each.ir_name) != "output.0"]
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
    unshown: list[list[CollectiveCall]] = []
    for meeting in _meetings(calls, everyone):
        if meeting[0].ranks:
            found |= _peers(meeting)
        elif is_whole:
            unshown.append(meeting)
    if unshown and _are_all(unshown):
        for meeting in unshown:
            found |= _peers(meeting)
    return [replace(one, peers=found[id(one)]) if id(one) in found else one for one in operations]


def _calls(operations: Iterable[Operation]) -> Iterator[CollectiveCall]:
    for one in operations:
        if _is_collective(one):
            try:
                yield call_of(one)
            except AitError:
                continue  # a damaged record is told where it is judged


def _is_collective(operation: Operation) -> bool:
    if not operation.api_name.startswith(PREFIX) or operation.direction != "forward":
        return False
    return parse_name(operation.name).type in KNOWN and operation.rank >= 0


def call_of(operation: Operation) -> CollectiveCall:
    """What the arguments of a call say.

    Raises:
        FormatError: the record is damaged.
    """
    ranks: tuple[int, ...] = ()
    function = parse_name(operation.name).type
    reduction, one = "SUM", _BY_DEFAULT.get(function, -1)
    sizes: list[int] = []
    for value in operation.values:
        found = value.value
        if value.type == "torch.ProcessGroup" and isinstance(found, list):
            ranks = tuple(each for each in found if type(each) is int)
        elif value.section == "input" and str(found).startswith(("RedOpType.", "ReduceOp.")):
            reduction = str(found).rpartition(".")[2]
        elif value.label in ONE_RANK.get(function, ()) and type(found) is int:
            one = found
        elif value.label.startswith(_SIZES) and type(found) is int:
            sizes.append(found)
    return CollectiveCall(operation, function, ranks, reduction, one, tuple(sizes))


def _meetings(
    calls: Iterable[CollectiveCall], everyone: tuple[int, ...]
) -> list[list[CollectiveCall]]:
    """The calls of all members of a group that are one communication.

    The k-th call of a function that one member makes in a group is the k-th of every other.
    """
    made: dict[tuple[Any, ...], dict[int, list[CollectiveCall]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for call in calls:
        own = call.operation
        made[own.step, call.function, call.ranks][own.rank].append(call)
    found: list[list[CollectiveCall]] = []
    for (_, _, ranks), by_rank in made.items():
        members = ranks or everyone
        counts = {len(by_rank[rank]) for rank in members if rank in by_rank}
        if len(members) < 2 or any(rank not in by_rank for rank in members) or len(counts) != 1:
            continue
        found += [list(one) for one in zip(*(by_rank[rank] for rank in members), strict=True)]
    return [one for one in found if len({call.reduction for call in one}) == 1]


def _peers(meeting: Sequence[CollectiveCall]) -> dict[int, tuple[Operation, ...]]:
    members = tuple(call.operation for call in meeting)
    return {id(one): members for one in members}


def _are_all(meetings: Sequence[Sequence[CollectiveCall]]) -> bool:
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


def _size_of(call: CollectiveCall) -> int | None:
    """How many ranks the shapes of a call tell; None if they tell nothing."""
    brought, got = call.brought, call.got
    if call.function == "all_gather":
        return len(got)
    if call.function in LISTS:
        return len(brought)
    if len(brought) != 1 or len(got) != 1:
        return None
    sizes = [int(np.prod(each.shape)) for each in (brought[0], got[0])]
    if call.function in GATHERED and sizes[0]:
        return sizes[1] // sizes[0]
    if call.function in SCATTERED and sizes[1]:
        return sizes[0] // sizes[1]
    return None


def _adds_up(meeting: Sequence[CollectiveCall]) -> bool | None:
    """Whether a sum is that of the ranks; None for what tells nothing."""
    if meeting[0].function not in SUMMED or meeting[0].reduction != "SUM":
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
