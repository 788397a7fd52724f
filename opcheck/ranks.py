"""Collective operators: the same call on every rank of its group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ait_llm.dumps.model import Operation
from ait_llm.opcheck.cases import golden_of, inputs_of

if TYPE_CHECKING:
    from ait_llm.opcheck.golden import Arithmetic, GoldenOp, Params, Result

_SEND, _RECV = "SendOperation", "RecvOperation"
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
        self._messages: dict[str, list[Operation]] = {_SEND: [], _RECV: []}
        for operation in operations:
            if operation.is_graph:
                continue
            golden = golden_of(operation)
            if operation.type in self._messages:
                self._messages[operation.type].append(operation)
            elif golden is not None and golden.compute_ranks is not None:
                self._calls.setdefault(_key(operation), []).append(operation)

    def group(self, operation: Operation) -> list[Operation | None]:
        """The calls of every rank, in rank order; None for a rank that does not take part.

        Raises:
            UnverifiableError: a rank's dump is not there, or two dumps claim the same rank.
        """
        return self._message(operation) if operation.type == _RECV else self._all(operation)

    def _message(self, received: Operation) -> list[Operation | None]:
        """The k-th message that a rank receives from another is the k-th that this sends to it."""
        from ait_llm.opcheck.golden import UnverifiableError

        rank, source = _number(received, "rank", 0), _number(received, "srcRank", 1)
        mine = [
            call
            for call in self._messages[_RECV]
            if _place(call) == _place(received) and _number(call, "srcRank", 1) == source
        ]
        theirs = [
            call
            for call in self._messages[_SEND]
            if call.step == received.step
            and (_number(call, "rank", 0), _number(call, "destRank", 1)) == (source, rank)
            and _group(call.params) == _group(received.params)
        ]
        number = next(index for index, call in enumerate(mine) if call.op_id == received.op_id)
        size = _number(received, "rankSize", 0)
        if len(theirs) != len(mine) or not 0 <= source < size or not 0 <= rank < size:
            raise UnverifiableError(
                f"rank {rank} receives {len(mine)} messages from rank {source}, and the dump has "
                f"{len(theirs)} that it sends there; give the folder with every rank's dump"
            )
        calls: list[Operation | None] = [None] * size
        calls[rank], calls[source] = received, theirs[number]
        return calls

    def _all(self, operation: Operation) -> list[Operation | None]:
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
    golden: GoldenOp,
    group: Sequence[Operation | None],
    own: Operation,
    params: Params,
    arithmetic: Arithmetic,
) -> Result:
    """What the call of one rank gives, from the inputs of all ranks.

    Raises:
        FormatError: a rank's tensors were not saved or are damaged.
    """
    import torch

    assert golden.compute_ranks is not None
    place = next(rank for rank, call in enumerate(group) if call and _place(call) == _place(own))
    inputs = [inputs_of(call) if call else [] for call in group]
    given = [call.params if call else {} for call in group]
    given[place] = params
    with torch.no_grad():
        return golden.compute_ranks(inputs, given, arithmetic)[place]


def _number(call: Operation, name: str, otherwise: int) -> int:
    return int(call.params.get(name, otherwise))


def _place(operation: Operation) -> tuple[int, int, int]:
    return operation.device, operation.pid, operation.step


def _key(operation: Operation) -> Key:
    return operation.step, str(operation.op_id), operation.type


def _group(params: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(str(params.get(name)) for name in _GROUP)
