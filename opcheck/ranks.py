"""Collective operators: the same call on every rank of its group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ait_llm.dumps.model import Operation
from ait_llm.opcheck.cases import golden_of, inputs_of

if TYPE_CHECKING:
    from ait_llm.opcheck.golden import Arithmetic, GoldenOp, Params, Result

# What calls of one group have in common.
_GROUP = ("rankSize", "rankRoot", "commDomain", "backend", "allReduceType", "type")
Key = tuple[int, str, str]


class Ranks:
    """The collective calls of all processes of a dump, by where they are.

    Args:
        operations: of all processes.
    """

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._calls: dict[Key, list[Operation]] = {}
        for operation in operations:
            if not operation.is_graph:
                golden = golden_of(operation.type)
                if golden is not None and golden.compute_ranks is not None:
                    self._calls.setdefault(_key(operation), []).append(operation)

    def group(self, operation: Operation) -> list[Operation]:
        """The calls of every rank, in rank order.

        Raises:
            UnverifiableError: a rank's dump is not there, or two dumps claim the same rank.
        """
        from ait_llm.opcheck.golden import UnverifiableError

        params = operation.params
        size = int(params.get("rankSize", 0))
        found: dict[int, Operation] = {}
        for call in self._calls.get(_key(operation), ()):
            if _group(call.params) != _group(params):
                continue
            rank = int(call.params.get("rank", -1))
            if rank in found:
                raise UnverifiableError(
                    f"processes {found[rank].pid} and {call.pid} are both rank {rank} of the "
                    "group; give the dumps of one run only"
                )
            found[rank] = call
        lacking = [rank for rank in range(size) if rank not in found]
        if lacking:
            raise UnverifiableError(
                f"its result depends on the tensors of all {size} ranks, and the dump has none of "
                f"rank {', '.join(map(str, lacking))}; give the folder with every rank's dump"
            )
        return [found[rank] for rank in range(size)]


def needs_ranks(golden: GoldenOp, params: Mapping[str, Any]) -> bool:
    """True for a collective operator of more than one rank."""
    size = params.get("rankSize", 0)
    return golden.compute_ranks is not None and isinstance(size, int) and size > 1


def compute_group(
    golden: GoldenOp, group: list[Operation], own: Operation, params: Params, arithmetic: Arithmetic
) -> Result:
    """What the call of one rank gives, from the inputs of all ranks.

    Raises:
        FormatError: a rank's tensors were not saved or are damaged.
    """
    import torch

    assert golden.compute_ranks is not None
    place = next(rank for rank, call in enumerate(group) if _process(call) == _process(own))
    given = [params if rank == place else call.params for rank, call in enumerate(group)]
    with torch.no_grad():
        results = golden.compute_ranks([inputs_of(call) for call in group], given, arithmetic)
    return results[place]


def _process(operation: Operation) -> tuple[int, int]:
    return operation.device, operation.pid


def _key(operation: Operation) -> Key:
    return operation.step, str(operation.op_id), operation.type


def _group(params: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(str(params.get(name)) for name in _GROUP)
