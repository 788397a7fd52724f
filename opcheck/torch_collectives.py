"""Collectives of torch, captured as operators on all ranks: what each gets of what all bring."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.opcheck.api.collective_calls import LISTS, CollectiveCall
from ait_llm.opcheck.api.collectives import compute_of, roundings_of
from ait_llm.opcheck.case import Case, NoCase

if TYPE_CHECKING:
    import torch

_NAME = re.compile(r"c10d\.(\w+)\.default")
_ALONE = "speak to other ranks, and the dump does not have the calls of all of them"
_UNDEFINED = "speak to other ranks in ways that are not computed again"
_NOT_SAVED = "the tensors of all its ranks were not saved"


@dataclass(frozen=True, slots=True)
class _Kind:
    """The function of torch that an operator is.

    Attributes:
        function: its name.
        brought: how the names of tensors begin that a rank brings.
        root: the argument that says which place of the group has all.
    """

    function: str
    brought: str
    root: str = ""


_KINDS = {
    "allreduce_": _Kind("all_reduce", "input_0_"),
    "_allgather_base_": _Kind("all_gather_into_tensor", "input_1"),
    "allgather_": _Kind("all_gather", "input_1_"),
    "_reduce_scatter_base_": _Kind("reduce_scatter_tensor", "input_1"),
    "reduce_scatter_": _Kind("reduce_scatter", "input_1_0_"),
    "broadcast_": _Kind("broadcast", "input_0_", "input_2"),
    "alltoall_": _Kind("all_to_all", "input_1_"),
}


def is_torch_collective(type_name: str) -> bool:
    """True for ``c10d.allreduce_.default`` and others of its library."""
    return type_name.startswith("c10d.")


def torch_collective_case(operation: Operation) -> Case | NoCase:
    """How a collective is computed again, from the inputs of all ranks of its group."""
    from ait_llm.opcheck.golden.functions import golden_function

    name = _NAME.fullmatch(operation.type)
    kind = _KINDS.get(name[1]) if name else None
    group, peers = operation.group, operation.peers
    if kind is None:
        return NoCase(_UNDEFINED)
    if group is None or not peers:
        return NoCase(_ALONE)
    root = operation.params.get(kind.root, -1)
    call = CollectiveCall(operation, kind.function, group.ranks, group.reduction, root, ())
    count = len(peers)
    compute = compute_of(call, group.place, range(count), [()] * count)
    brought = [[each for each in one.inputs if each.stem.startswith(kind.brought)] for one in peers]
    outputs = dict(enumerate(operation.outputs))
    wanted = count if kind.function in LISTS else 1
    reductions = {one.group.reduction for one in peers if one.group is not None}
    if (
        compute is None
        or not outputs
        or any(len(own) != wanted for own in brought)
        or reductions != {group.reduction}
    ):
        return NoCase(_UNDEFINED)
    inputs = [each for own in brought for each in own]
    saved = all(one.has_data or 0 in one.shape for one in [*inputs, *outputs.values()])
    return Case(
        golden_function(operation.type, compute, roundings=roundings_of(call, count)),
        {},
        partial(_values, inputs),
        lambda: outputs,
        "" if saved else _NOT_SAVED,
    )


def _values(tensors: Sequence[Tensor]) -> list[torch.Tensor | None]:
    return [each.torch() for each in tensors]
