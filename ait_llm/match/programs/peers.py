"""What the other ranks of a job have in the place of a tensor."""

from __future__ import annotations

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.match.model import record_of
from ait_llm.match.views import Plus
from ait_llm.program.describe import shape_of
from ait_llm.program.one_pass import Pass

_Call = tuple[str, int]  # name of an operation, and which call of it


class Peers:
    """The same pass of the other ranks.

    Args:
        run: the pass of one rank.
    """

    def __init__(self, run: Pass) -> None:
        self._runs = run.peers
        self._calls: list[dict[_Call, int]] = []

    def summands(self, operation: Operation, tensor: Tensor) -> tuple[Plus, ...] | None:
        """What the others bring to a sum, to be added to what this rank brings.

        Returns:
            None if one of them has no such tensor, and without others.
        """
        found = []
        for run, calls in zip(self._runs, self._known(), strict=True):
            place = calls.get((operation.name, operation.call))
            twin = None if place is None else _twin(run.operations[place], tensor)
            if place is None or twin is None:
                return None
            record = record_of(run.operations[place], twin, run.first_order + place)
            found.append(Plus(record, twin))
        return tuple(found) or None

    def _known(self) -> list[dict[_Call, int]]:
        if not self._calls:
            self._calls = [
                {(each.name, each.call): place for place, each in enumerate(run.operations)}
                for run in self._runs
            ]
        return self._calls


def _twin(operation: Operation, tensor: Tensor) -> Tensor | None:
    """The tensor in the same place, if it has the same shape."""
    return next(
        (
            each
            for each in operation.tensors
            if (each.role, each.index) == (tensor.role, tensor.index)
            and shape_of(each) == shape_of(tensor)
        ),
        None,
    )
