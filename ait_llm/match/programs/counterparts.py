"""Which operation answers which, so that a value is compared where both sides show it alike."""

from __future__ import annotations

from collections.abc import Mapping

from ait_llm.dumps.model import Tensor
from ait_llm.program.flow import Use, Value
from ait_llm.program.program import Side
from ait_llm.program.roles import Role

# A graph answers a module if this share of the units of both together are in both.
_ENOUGH = 0.5


class Counterparts:
    """Operations of either side by those of the other.

    Args:
        atb, torch: the sides.
        units: paired units and layers, torch operations by ATB operation.
    """

    def __init__(self, atb: Side, torch: Side, units: Mapping[int, set[int]]) -> None:
        self._torch_of = {op: set(others) for op, others in units.items()}
        self._add_graphs(atb, torch)
        self._atb_of: dict[int, set[int]] = {}
        for op, others in self._torch_of.items():
            for other in others:
                self._atb_of.setdefault(other, set()).add(op)

    def _add_graphs(self, atb: Side, torch: Side) -> None:
        inside = {
            op: {member for member in torch.within(op) if member in torch.unit_of}
            for op, role in enumerate(torch.roles)
            if role is Role.CONTAINER
        }
        around: dict[int, list[int]] = {}
        for op, members in inside.items():
            for member in members:
                around.setdefault(member, []).append(op)
        for op, role in enumerate(atb.roles):
            if role is not Role.CONTAINER or op in self._torch_of:
                continue
            members = {
                other
                for member in atb.within(op)
                if member in atb.unit_of
                for other in self._torch_of.get(member, ())
            }
            candidates = {outer for member in members for outer in around.get(member, ())}
            scored = [
                (
                    len(members & inside[outer]) / len(members | inside[outer]),
                    -len(inside[outer]),
                    outer,
                )
                for outer in candidates
            ]
            if scored and max(scored)[0] >= _ENOUGH:
                self._torch_of.setdefault(op, set()).add(max(scored)[2])

    def torch_use(self, op: int, tensor: Tensor, value: Value) -> Use:
        """Where the torch side shows what an ATB tensor holds."""
        return _choose(self._torch_of.get(op, set()), tensor, value)

    def atb_use(self, op: int, tensor: Tensor, value: Value) -> Use:
        """Where the ATB side shows what a torch tensor holds."""
        return _choose(self._atb_of.get(op, set()), tensor, value)


def _choose(counterparts: set[int], tensor: Tensor, value: Value) -> Use:
    """The use of a counterpart in the same role; else of the same role; else who wrote it."""

    def rank(use: Use) -> tuple[bool, bool, bool]:
        same_role = use.role == tensor.role
        return (
            not (use.op in counterparts and same_role),
            not (tensor.role == "out" and same_role),
            use.role != "out",
        )

    return min(value.uses, key=rank)
